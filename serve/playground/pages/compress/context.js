// The context: pasted, from a file, or an example. A field of text makes other line ends of a file's, so its own are kept.
import { open } from "../api/request.js";
import { byId, make, say } from "../parts/dom.js";
import { bytes, count } from "../parts/format.js";
import { currentKey } from "../parts/key.js";
import { codePoints } from "./spans.js";

// What a text may have: without a key, of the demo; with one, of the compression model.
export const limitsOf = (about, model) => ({
  isDemo: !currentKey(),
  chars: about.demo.max_chars,
  bytes: Math.min(model?.max_input_bytes ?? 0, about.max_body_bytes),
});

export class Context extends EventTarget {
  #exact = null;
  #name = "";

  // `form` is what the ids of its fields begin with.
  constructor(limits, form, examples) {
    super();
    this.limits = limits;
    this.form = form;
    this.field = this.#part("context");
    this.field.addEventListener("input", () => this.#changed(null));
    this.#part("file").addEventListener("change", (event) => this.#readFile(event.target));
    this.#part("examples").append(...examples.map((example) => this.#button(example)));
  }

  #part(name) {
    return byId(`${this.form}${name}`);
  }

  get text() {
    return this.#exact ?? this.field.value;
  }

  set(text, name = "") {
    this.field.value = text;
    this.#changed(text === this.field.value ? null : text, name);
  }

  async take(example) {
    let texts;
    try {
      texts = await Promise.all(example.files.map(async (file) => (await open(`playground/examples/${file}`)).text()));
    } catch (error) {
      this.#complain(error.message);
      return;
    }
    this.set(texts.join("\n"));
    this.#part("query").value = example.query;
    for (const button of this.#part("examples").children) button.setAttribute("aria-pressed", String(button.textContent === example.name));
    this.dispatchEvent(new CustomEvent("example", { detail: example }));
  }

  // What is wrong with its size, in words; empty where nothing is.
  tooLarge() {
    const { chars, bytes: most, isDemo } = this.limits();
    const size = new Blob([this.text]).size;
    const over = isDemo ? codePoints(this.text) > chars : size > most;
    if (!over) return "";
    return isDemo
      ? `Too large for the demo, which takes ${count(chars)} characters. With a key it may be longer.`
      : `Too large: this model takes ${bytes(most)}.`;
  }

  describe() {
    const text = this.text;
    const over = this.tooLarge();
    const from = this.#name ? `${this.#name}: ` : "";
    const { chars, isDemo } = this.limits();
    const most = isDemo ? ` of the demo’s ${count(chars)}` : "";
    const size = `${from}${count(codePoints(text))}${most} characters, ${bytes(new Blob([text]).size)}`;
    say(this.#part("size"), text ? `${size}${over ? `. ${over}` : ""}` : "Empty");
    this.#part("size").classList.toggle("over", Boolean(over));
  }

  #button(example) {
    const found = make("button", { type: "button", "aria-pressed": "false", lang: example.lang }, example.name);
    found.addEventListener("click", () => this.take(example));
    return found;
  }

  #changed(exact, name = "") {
    this.#exact = exact;
    this.#name = name;
    for (const button of this.#part("examples").children) button.setAttribute("aria-pressed", "false");
    say(this.#part("context-fault"), "");
    this.describe();
    this.dispatchEvent(new Event("change"));
  }

  async #readFile(input) {
    const [file] = input.files;
    if (!file) return;
    const { bytes: most } = this.limits();
    input.value = "";
    if (file.size > most) {
      this.#complain(`${file.name} has ${bytes(file.size)}. Too large: this model takes ${bytes(most)}.`);
      return;
    }
    try {
      this.set(new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()), file.name);
    } catch {
      this.#complain(`${file.name} is not text in UTF-8.`);
    }
  }

  // What was to take the place of the context and could not: that one is still there.
  #complain(words) {
    const kept = this.#name ? ` The context is still ${this.#name}.` : " The context is as it was.";
    say(this.#part("context-fault"), this.text ? words + kept : words);
  }
}
