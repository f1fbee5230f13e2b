// The messages on the page: what was asked, the replies, and what can be done with each.
import { copy, make } from "../parts/dom.js";

const WELCOME = "Ask something. The reply streams in, and its bill follows.";

export class Messages {
  constructor(element) {
    this.element = element;
  }

  clear() {
    this.element.replaceChildren(make("p", { class: "empty" }, WELCOME));
  }

  add(role, who, text) {
    this.element.querySelector(".empty")?.remove();
    const said = make("div", { class: "said", dir: "auto" }, text);
    const message = make("div", { class: `message ${role}` }, make("p", { class: "who" }, who), said);
    this.element.append(message);
    this.element.scrollTop = this.element.scrollHeight;
    return message;
  }

  write(message, text) {
    this.#keepingTheEnd(() => (message.querySelector(".said").textContent = text));
  }

  // A line below the text, one of a kind: an empty one goes.
  note(message, kind, words) {
    this.#keepingTheEnd(() => {
      const line = message.querySelector(`.${kind}`);
      if (!words) line?.remove();
      else if (line) line.textContent = words;
      else message.append(make("p", { class: kind }, words));
    });
  }

  append(message, ...parts) {
    this.#keepingTheEnd(() => message.append(...parts.filter(Boolean)));
  }

  // What can be done with a reply, once nothing more comes.
  finish(message, text) {
    if (!text) return;
    const button = make("button", { type: "button", class: "quiet small" }, "Copy");
    button.addEventListener("click", () => copy(text, button));
    this.append(message, make("div", { class: "actions" }, button));
  }

  // A question that is no part of the conversation: nothing that follows holds it.
  markUnsent(message, words, onRetry) {
    message.classList.add("unsent");
    const button = make("button", { type: "button", class: "quiet small" }, "Retry");
    button.addEventListener("click", onRetry);
    this.append(message, make("div", { class: "actions" }, make("span", { class: "mark" }, words), button));
  }

  #keepingTheEnd(change) {
    const isAtEnd = this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight < 60;
    change();
    if (isAtEnd) this.element.scrollTop = this.element.scrollHeight;
  }
}
