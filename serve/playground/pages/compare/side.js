// One side of a comparison: the answer as it comes, and what it took: tokens, dollars, seconds.
import { bill, compressionWords } from "../chat/bill.js";
import { make, say } from "../parts/dom.js";
import { count, dollars, seconds } from "../parts/format.js";
import { costOf } from "./difference.js";

export class Side {
  constructor(element) {
    this.turn = make("span", { class: "note" });
    this.waiting = make("p", { class: "waiting" });
    this.said = make("div", { class: "said", dir: "auto" });
    this.notes = make("div", { class: "stack" });
    this.fault = make("p", { class: "fault", role: "alert", hidden: true });
    this.stats = make("dl", { class: "stats" });
    element.querySelector("h2").after(this.turn, this.waiting, this.said, this.notes, this.fault, this.stats);
    this.element = element;
    this.clear();
  }

  clear() {
    say(this.fault, "");
    for (const part of [this.turn, this.waiting, this.said]) part.textContent = "";
    this.notes.replaceChildren();
    this.showStats({});
  }

  announce(turn) {
    this.turn.textContent = turn;
  }

  wait(words) {
    this.waiting.textContent = words;
  }

  write(text) {
    this.said.textContent = text;
  }

  finish(done) {
    this.note(done.text ? "" : "The answer is empty.");
    this.note(done.finishReason === "length" ? `Cut off at ${count(done.usage?.completion_tokens)} tokens.` : "");
    this.note(compressionWords(done.service?.compression));
    this.showStats(done);
  }

  // What it was charged until then, where that is known.
  fail(error) {
    if (error.name === "AbortError") this.note("Stopped. What was done until then may be charged.");
    else say(this.fault, error.message);
    this.notes.append(bill(error) ?? "");
  }

  note(words) {
    if (words) this.notes.append(make("p", { class: "cut-off" }, words));
  }

  showStats({ usage, service, firstMs, lastMs }) {
    const cached = usage?.prompt_tokens_details?.cached_tokens;
    const cost = costOf(service);
    const rows = [
      ["Prompt tokens", count(usage?.prompt_tokens), usage && (cached ? `${count(cached)} of them cached` : "none cached")],
      ["Cost", dollars(cost), cost === null ? "" : `${dollars(1000 * cost)} for a thousand`],
      ["First word", firstMs ? seconds(firstMs) : "–", ""],
      ["In all", lastMs ? seconds(lastMs) : "–", usage && `${count(usage.completion_tokens)} tokens of answer`],
    ];
    this.stats.replaceChildren(
      ...rows.map(([name, value, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, more || null)))),
    );
  }
}
