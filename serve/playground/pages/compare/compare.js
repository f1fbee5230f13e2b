// Compare: one question to a model twice, with the whole text and with what compression keeps of it, one after the other.
import { Conversation } from "../chat/conversation.js";
import { followReply } from "../chat/reply.js";
import { Compressions } from "../compress/compressions.js";
import { Context, limitsOf } from "../compress/context.js";
import { sizesOf } from "../compress/sizes.js";
import { SourceView } from "../compress/source_view.js";
import { bringUp, byId, make, say } from "../parts/dom.js";
import { count, percent, pricesOf } from "../parts/format.js";
import { askForKey, checkedKey, currentKey, noteRefusal, onKey } from "../parts/key.js";
import { cacheWords, differenceWords } from "./difference.js";
import { QUESTIONS } from "./examples.js";
import { Side } from "./side.js";

// The same question has the same answer, and a model that goes on and on ends.
const SETTINGS = { temperature: 0, maxTokens: 160 };
const TURNS = ["asked first", "asked second"];

export function startCompare(about, running) {
  if (!about.compression.length) {
    say(byId("compare-fault"), "This server has no compression model.");
    byId("compare-go").disabled = true;
    return;
  }
  new Compare(about, running).start();
}

class Compare {
  constructor(about, running) {
    this.about = about;
    this.running = running;
    // Its first, as in a chat.
    [this.compressor] = about.compression;
    this.compressions = new Compressions();
    this.source = new SourceView(byId("compare-source"));
    this.sides = { whole: new Side(byId("side-whole")), compressed: new Side(byId("side-compressed")) };
    // Whoever is second may find the beginning of its prompt in the engine's cache: each is in its turn.
    this.order = ["compressed", "whole"];
  }

  start() {
    this.context = new Context(() => limitsOf(this.about, this.compressor), "compare-", QUESTIONS);
    byId("compare-model").append(...this.about.chat.map((model) => make("option", { value: model.id }, model.name)));
    for (const event of ["change", "running"]) byId("compare-model").addEventListener(event, () => this.describeModel());
    byId("compare-form").addEventListener("submit", (event) => (event.preventDefault(), this.compare()));
    byId("compare-form").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.compare();
    });
    byId("compare-stop").addEventListener("click", () => this.stop());
    byId("compare-add-key").addEventListener("click", () => askForKey());
    this.startRatio();
    this.context.addEventListener("example", ({ detail }) => this.setRatio(detail.ratio));
    this.context.take(QUESTIONS[0]);
    onKey(() => this.describeWho());
    this.describeWho();
    this.describeModel();
  }

  startRatio() {
    const { min, max } = this.compressor.ratio;
    const slider = byId("compare-ratio");
    slider.min = Math.ceil(100 * min);
    slider.max = Math.floor(100 * max);
    slider.addEventListener("input", () => this.setRatio(this.ratio));
  }

  get ratio() {
    return Number(byId("compare-ratio").value) / 100;
  }

  setRatio(ratio) {
    byId("compare-ratio").value = 100 * ratio;
    byId("compare-ratio-value").textContent = percent(this.ratio);
  }

  get model() {
    return this.about.chat.find((one) => one.id === byId("compare-model").value);
  }

  describeModel() {
    const words = `${this.model.blurb} ${pricesOf(this.model)}.`;
    if (byId("compare-blurb").textContent !== words) say(byId("compare-blurb"), words);
  }

  describeWho() {
    const hasKey = Boolean(currentKey());
    byId("compare-go").textContent = hasKey ? "Ask both" : "Compress it";
    say(byId("compare-note"), hasKey ? "Both are charged to your key." : "Without a key: what is kept. With one, both answers.");
    if (hasKey) byId("compare-key-wanted").hidden = true;
    this.context.describe();
  }

  stop() {
    this.asking?.abort();
    this.compressions.cancel();
  }

  fault(query) {
    if (!this.context.text) return "There is no text yet: paste one, or take an example.";
    return query ? this.context.tooLarge() : "There is no question yet.";
  }

  async compare() {
    if (this.asking) return;
    const asked = { query: byId("compare-query").value.trim(), text: this.context.text, ratio: this.ratio, model: this.model };
    const fault = this.fault(asked.query);
    say(byId("compare-fault"), fault);
    if (fault) return;
    const asking = (this.asking = new AbortController());
    this.setRunning(true);
    try {
      const key = await checkedKey();
      if ((await this.showKept(asked, key)) && key) await this.askBoth(asked, key, asking.signal);
    } finally {
      this.asking = null;
      this.setRunning(false);
    }
  }

  // What compression keeps, before any model is asked; false where it was stopped, or failed.
  async showKept({ query, text, ratio }, key) {
    byId("compare-sides").hidden = !key;
    byId("compare-key-wanted").hidden = Boolean(key);
    for (const id of ["compare-kept", "compare-outcome"]) byId(id).hidden = true;
    for (const side of Object.values(this.sides)) side.clear();
    const endWait = this.running.wait(this.compressor, (words) => say(byId("compare-note"), words));
    try {
      const body = { model: this.compressor.id, query, input: text, compression: { target_ratio: ratio }, include: ["spans"] };
      const found = await this.compressions.get(body);
      if (found) this.drawKept(text, found.body, key);
      return Boolean(found);
    } catch (error) {
      say(byId("compare-fault"), error.message);
      noteRefusal(key, error);
      return false;
    } finally {
      endWait();
      this.describeWho();
    }
  }

  drawKept(text, answer, key) {
    const sizes = sizesOf(answer);
    this.source.load(text, sizes);
    this.source.show(sizes.at(-1));
    const { original_tokens: before, output_tokens: after, compression_ratio: ratio } = answer.receipt;
    const words = `Kept: ${count(after)} of ${count(before)} tokens, as the compressor counts (${percent(ratio)})`;
    byId("compare-kept-words").textContent = words;
    byId("compare-kept").hidden = false;
    bringUp(byId(key ? "compare-sides" : "compare-key-wanted"), 0.75);
    if (!key) say(byId("compare-said"), `${words}. The answers need a key.`);
  }

  async askBoth(asked, key, signal) {
    const found = {};
    const order = this.order;
    this.order = [...order].reverse();
    order.forEach((name, at) => this.sides[name].announce(TURNS[at]));
    for (const name of order) {
      found[name] = await this.receive(this.sides[name], bodyOf(name, asked, this.compressor), asked.model, key, signal);
      if (signal.aborted || currentKey() !== key) return;
    }
    const words = differenceWords(asked.model.name, found.whole, found.compressed);
    byId("compare-difference").textContent = words;
    byId("compare-cache").textContent = cacheWords(found);
    byId("compare-outcome").hidden = !words;
    say(byId("compare-said"), words ? `Both are answered. ${words}` : "There is nothing to compare.");
  }

  // The reply; null where there is none.
  async receive(side, body, model, key, signal) {
    const wait = () => this.running.wait(model, (words) => side.wait(words));
    try {
      const done = await followReply(body, { key, signal, wait, write: (text) => side.write(text) });
      side.finish(done);
      return done;
    } catch (error) {
      side.fail(error);
      noteRefusal(key, error);
      return null;
    }
  }

  setRunning(isRunning) {
    const hadFocus = [byId("compare-go"), byId("compare-stop"), document.body].includes(document.activeElement);
    byId("compare-go").hidden = isRunning;
    byId("compare-stop").hidden = !isRunning;
    byId("compare-sides").setAttribute("aria-busy", String(isRunning));
    if (hadFocus) byId(isRunning ? "compare-stop" : "compare-go").focus({ preventScroll: true });
  }
}

// Whatever the key's project has by default, one is sent whole, and the other as it is shown.
function bodyOf(name, { query, text, ratio, model }, compressor) {
  const conversation = new Conversation();
  conversation.ask(query, text);
  const body = conversation.body({ ...SETTINGS, model: model.id, ratio });
  const compression = { ...body.compression, model: compressor.id, mark_gaps: false };
  return { ...body, compression: name === "compressed" && compression };
}
