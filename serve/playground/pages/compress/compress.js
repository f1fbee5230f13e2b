// Compress: from what is asked to what is shown. One answer tells of every size, so that the slider needs no other.
import { bringUp, byId, copy, make, onceAFrame, say } from "../parts/dom.js";
import { count, milliseconds, percent } from "../parts/format.js";
import { currentKey, noteRefusal, onKey } from "../parts/key.js";
import { curl, python, shortened } from "../parts/snippets.js";
import { Compressions, pathFor } from "./compressions.js";
import { Context, limitsOf } from "./context.js";
import { EXAMPLES } from "./examples.js";
import { drawFlags } from "./flags.js";
import { gridOf, nearest, sizeAt, sizesOf, sizesToAsk } from "./sizes.js";
import { SourceView } from "./source_view.js";
import { outputOf } from "./spans.js";

// After the last move of the slider: a request where one is needed, and what is too slow for each move.
const SETTLED_MS = 250;
const CODE = { curl, python };
const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

export function startCompress(about, running) {
  if (!about.compression.length) {
    say(byId("compress-fault"), "This server has no compression model.");
    byId("compress-go").disabled = true;
    return;
  }
  new Compress(about, running).start();
}

class Compress {
  constructor(about, running) {
    this.about = about;
    this.running = running;
    this.endWait = () => {};
    this.compressions = new Compressions();
    this.context = new Context(() => limitsOf(this.about, this.model), "", EXAMPLES);
    this.source = new SourceView(byId("source"));
    this.slider = byId("slider");
    // What is shown: the text, its sizes, and the latency of the request that told of them.
    this.result = null;
    this.draw = onceAFrame(() => this.show());
  }

  start() {
    byId("compressor").append(...this.about.compression.map((model) => make("option", { value: model.id }, model.name)));
    byId("compress-form").addEventListener("submit", (event) => (event.preventDefault(), this.compress()));
    byId("context").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.compress();
    });
    byId("try-first").addEventListener("click", () => this.context.take(EXAMPLES[0]));
    byId("compressor").addEventListener("change", () => (this.setGrid(), this.outdate()));
    byId("in-order").addEventListener("change", () => (this.result && !this.isStale ? this.compress() : this.outdate()));
    byId("query").addEventListener("input", () => this.outdate());
    this.context.addEventListener("change", () => this.outdate());
    this.context.addEventListener("example", ({ detail }) => (this.setSlider(detail.ratio), this.compress()));
    this.startSlider();
    this.startResult();
    onKey(() => this.describeWho());
    this.setGrid();
    this.describeWho();
  }

  startSlider() {
    this.slider.addEventListener("input", () => this.moved());
    for (const kind of document.querySelectorAll('input[name="size-kind"]')) {
      kind.addEventListener("change", () => (this.setSlider(), this.moved()));
    }
  }

  startResult() {
    byId("copy-output").addEventListener("click", (event) => {
      copy(outputOf(this.result.text, this.size.kept), event.target);
    });
    byId("copy-snippet").addEventListener("click", (event) => copy(this.snippet(), event.target));
    for (const choice of document.querySelectorAll('input[name="shown"], input[name="snippet"]')) {
      choice.addEventListener("change", () => (this.show(), this.showSnippet()));
    }
  }

  get model() {
    return this.about.compression.find((model) => model.id === byId("compressor").value);
  }

  get kind() {
    return chosen("size-kind");
  }

  get value() {
    return this.grid[this.kind][Number(this.slider.value)];
  }

  get size() {
    return this.result && sizeAt(this.result.sizes, this.kind, this.value);
  }

  describeWho() {
    const { max_chars: chars, requests_per_minute: rate } = this.about.demo;
    const demo = `Without a key: ${count(chars)} characters, ${rate} requests a minute.`;
    say(byId("compress-who"), currentKey() ? "Charged to your key." : demo);
    this.context.describe();
    this.outdate();
  }

  setGrid() {
    this.grid = gridOf(this.model);
    const promise = document.querySelector('input[name="size-kind"][value="keep"]');
    promise.disabled = !this.grid.keep.length;
    if (promise.disabled && promise.checked) document.querySelector('input[name="size-kind"]').checked = true;
    this.setSlider();
  }

  setSlider(ratio = Math.min(0.4, this.model.ratio.default)) {
    const values = this.grid[this.kind];
    this.slider.max = values.length - 1;
    this.slider.value = nearest(values, this.kind === "keep" ? 0.95 : ratio);
    this.describeSlider();
  }

  describeSlider() {
    const isPromise = this.kind === "keep";
    const words = percent(this.value);
    byId("size-value").textContent = words;
    this.slider.setAttribute("aria-label", isPromise ? "Probability that the evidence is kept" : "Most of the tokens that may be kept");
    this.slider.setAttribute("aria-valuetext", words);
    const meaning = isPromise ? "As little as keeps the evidence with this probability." : "At most this share of the tokens is kept.";
    byId("size-note").textContent = this.model.offers_sizes ? meaning : `${meaning} This model is asked anew for each size.`;
  }

  moved() {
    this.describeSlider();
    clearTimeout(this.settling);
    if (!this.result) return;
    if (this.size) this.draw();
    this.settling = setTimeout(() => this.settled(), SETTLED_MS);
  }

  settled() {
    if (this.isStale) return;
    if (!this.size) {
      // A model that cannot tell of other sizes: one request for this one.
      this.compress();
      return;
    }
    this.announce();
    this.showSnippet();
  }

  body() {
    const options = { [this.kind]: this.value, preserve_order: byId("in-order").checked };
    return { model: this.model.id, query: byId("query").value, input: this.context.text, compression: options };
  }

  asked() {
    const body = { ...this.body(), include: ["spans"] };
    const fits = new Blob([body.input]).size <= this.about.sizes.longest_bytes;
    // Promises take the server longest: they are asked for when somebody wants some.
    const sizes = sizesToAsk(this.grid, this.kind);
    if (this.model.offers_sizes && fits && body.input !== this.unsized && sizes.length <= this.about.sizes.most) body.sizes = sizes;
    return body;
  }

  async compress() {
    const fault = this.context.text ? this.context.tooLarge() : "There is no context yet: paste one, or take an example.";
    say(byId("compress-fault"), fault);
    if (fault) return;
    this.setBusy(true);
    this.isBroughtUp = bringUp(document.querySelector(".result"), 0.6);
    const body = this.asked();
    const asking = (this.asking = {});
    const key = currentKey();
    try {
      const found = await this.answer(body);
      if (found) this.take(body, found);
    } catch (error) {
      if (this.asking === asking) this.fail(error, key);
    } finally {
      if (this.asking === asking) this.setBusy(false);
    }
  }

  async answer(body) {
    try {
      return await this.compressions.get(body);
    } catch (error) {
      if (error.param !== "sizes" || !body.sizes) throw error;
      // A text of very many units: it is asked anew for each size.
      this.unsized = body.input;
      return this.compressions.get({ ...body, sizes: undefined });
    }
  }

  fail(error, key) {
    say(byId("compress-fault"), error.message);
    byId("compress-fault").scrollIntoView({ block: "center" });
    noteRefusal(key, error);
  }

  setBusy(isBusy) {
    byId("compress-go").textContent = isBusy ? "Compressing…" : "Compress";
    this.endWait();
    this.endWait = isBusy ? this.running.wait(this.model, (words) => say(byId("compress-wait"), words)) : () => {};
    document.querySelector(".result").setAttribute("aria-busy", String(isBusy));
  }

  take(asked, { body: answer }) {
    const { query, input: text, model } = asked;
    const what = JSON.stringify([query, text, model, asked.compression.preserve_order]);
    const others = this.result?.what === what ? this.result.sizes : [];
    const sizes = [...sizesOf(answer), ...others];
    this.result = { what, text, sizes, latency: answer.receipt.latency_ms };
    this.isStale = false;
    document.querySelector(".result").classList.remove("stale");
    this.source.load(text, sizes);
    byId("result-empty").hidden = true;
    for (const id of ["result-body", "stats", "share"]) byId(id).hidden = false;
    // The slider may have moved on since it was asked.
    if (!this.size) this.settled();
    this.show();
    this.showSnippet();
    this.announce();
    // While it was empty, the page may have been too short for that.
    if (this.isBroughtUp) bringUp(document.querySelector(".result"), 0.1);
  }

  outdate() {
    this.compressions.cancel();
    this.asking = null;
    this.setBusy(false);
    say(byId("compress-fault"), "");
    if (!this.result || this.isStale) return;
    this.isStale = true;
    document.querySelector(".result").classList.add("stale");
    say(byId("compress-said"), "The result is of what was asked before.");
  }

  show() {
    const size = this.size;
    if (!size) return;
    this.source.show(size);
    this.showText(size);
    this.showStats(size.receipt);
    drawFlags(byId("flags"), size.receipt.risk_flags, (place) => this.goTo(place));
  }

  showText(size) {
    const isSource = chosen("shown") === "source";
    byId("source").hidden = !isSource;
    byId("legend").hidden = !isSource;
    byId("output").hidden = isSource;
    if (!isSource) byId("output").textContent = outputOf(this.result.text, size.kept);
  }

  showStats(receipt) {
    const rows = [
      ["Tokens", `${count(receipt.original_tokens)} → ${count(receipt.output_tokens)}`, `${count(receipt.tokens_saved)} saved`],
      ["Ratio", percent(receipt.compression_ratio), receipt.target_ratio === null ? `about ${percent(receipt.estimated_ratio)} needed` : `of at most ${percent(receipt.target_ratio)}`],
      ["Evidence kept", percent(receipt.evidence_kept_probability), "estimated"],
      ["Latency", milliseconds(this.result.latency), "on the server"],
    ];
    byId("stats").replaceChildren(
      ...rows.map(([name, value, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, more)))),
    );
    byId("share").firstElementChild.style.width = `${100 * receipt.compression_ratio}%`;
  }

  snippet() {
    return CODE[chosen("snippet")](pathFor(currentKey()), this.body(), { hasKey: Boolean(currentKey()) });
  }

  showSnippet() {
    byId("snippet").textContent = shortened(this.snippet());
  }

  goTo(place) {
    document.querySelector('input[name="shown"][value="source"]').checked = true;
    this.showText(this.size);
    this.source.goTo(place);
  }

  announce() {
    const { receipt } = this.size ?? {};
    if (!receipt) return;
    const flags = receipt.risk_flags.length;
    const tokens = `${count(receipt.output_tokens)} of ${count(receipt.original_tokens)} tokens kept`;
    say(byId("compress-said"), `${tokens}. ${flags} risk ${flags === 1 ? "flag" : "flags"}.`);
  }
}
