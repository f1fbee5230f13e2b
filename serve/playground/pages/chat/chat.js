// Chat: a conversation with a model, streamed, with what each reply cost.
import { numberFault } from "../api/refusals.js";
import { byId, copy, make, say } from "../parts/dom.js";
import { count, percent, pricesOf } from "../parts/format.js";
import { askForKey, checkedKey, currentKey, noteRefusal, onKey } from "../parts/key.js";
import { curl, shortened } from "../parts/snippets.js";
import { bill } from "./bill.js";
import { Conversation } from "./conversation.js";
import { Messages } from "./messages.js";
import { followReply, PATH } from "./reply.js";

const NO_KEY = "Chat needs a key.";
const NUMBERS = ["max-tokens", "temperature"];

export function startChat(about, running) {
  new Chat(about, running).start();
}

class Chat {
  constructor(about, running) {
    this.models = about.chat;
    this.running = running;
    this.compresses = about.compression.length > 0;
    this.messages = new Messages(byId("messages"));
    this.forget();
  }

  start() {
    byId("chat-model").append(...this.models.map((model) => make("option", { value: model.id }, model.name)));
    for (const event of ["change", "running"]) byId("chat-model").addEventListener(event, () => this.describeModel());
    byId("chat-form").addEventListener("submit", (event) => (event.preventDefault(), this.send()));
    byId("message").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    byId("stop").addEventListener("click", () => this.asking?.abort());
    byId("clear-chat").addEventListener("click", () => this.forget());
    byId("chat-options").addEventListener("submit", (event) => event.preventDefault());
    for (const id of NUMBERS) byId(id).addEventListener("input", () => this.complain(""));
    onKey(() => currentKey() && byId("chat-fault").textContent === NO_KEY && this.complain(""));
    this.startContext();
    this.startCode();
    this.describeModel();
  }

  startContext() {
    const box = byId("with-context");
    box.disabled = !this.compresses;
    box.addEventListener("change", () => (byId("context-box").hidden = !box.checked));
    byId("take-context").addEventListener("click", () => {
      byId("chat-context").value = byId("context").value;
      if (!byId("message").value) byId("message").value = byId("query").value;
    });
    byId("chat-ratio").addEventListener("input", () => {
      byId("chat-ratio-value").textContent = percent(Number(byId("chat-ratio").value) / 100);
    });
  }

  startCode() {
    byId("chat-code").addEventListener("toggle", () => this.showCode());
    for (const id of ["chat-form", "chat-options"]) byId(id).addEventListener("input", () => this.showCode());
    byId("copy-chat-code").addEventListener("click", (event) => copy(this.code(), event.target));
  }

  forget() {
    this.asking?.abort();
    this.conversation = new Conversation();
    this.unsent = null;
    this.messages.clear();
    this.complain("");
  }

  complain(words) {
    say(byId("chat-fault"), words);
  }

  get model() {
    return this.models.find((one) => one.id === byId("chat-model").value);
  }

  describeModel() {
    const { model } = this;
    const start = this.running.isDown(model.id) ? " It is not running: the first request waits for its start, which may take a minute." : "";
    const words = `${pricesOf(model)}; ${count(model.context_length)} tokens of context.${start}`;
    if (byId("chat-price").textContent !== words) say(byId("chat-price"), words);
    this.showCode();
  }

  settings() {
    return {
      model: byId("chat-model").value,
      maxTokens: Number(byId("max-tokens").value),
      temperature: Number(byId("temperature").value),
      ratio: Number(byId("chat-ratio").value) / 100,
    };
  }

  // What the composer holds.
  question() {
    const context = byId("with-context").checked ? byId("chat-context").value : "";
    return { text: byId("message").value.trim(), context };
  }

  async send() {
    if (!this.question().text || !(await this.mayAsk())) return;
    const question = this.question();
    if (!question.text) return;
    // The one that was put back into the composer is the one that is sent.
    if (this.unsent?.isInComposer) this.unsent.message.remove();
    byId("message").value = "";
    await this.ask(question);
  }

  async retry(question, message) {
    if (!(await this.mayAsk())) return;
    message.remove();
    if (byId("message").value.trim() === question.text) byId("message").value = "";
    await this.ask(question);
  }

  // Before anything is sent; what is in the way is said.
  async mayAsk() {
    if (this.asking || this.isWaitingForKey) return false;
    this.isWaitingForKey = true;
    const key = await checkedKey();
    this.isWaitingForKey = false;
    if (!key) {
      this.complain(NO_KEY);
      askForKey();
      return false;
    }
    const wrong = NUMBERS.map(byId).find(numberFault);
    this.complain(wrong ? numberFault(wrong) : "");
    wrong?.focus();
    return !wrong;
  }

  async ask(question) {
    const { text, context } = question;
    this.unsent = null;
    const words = context ? `${text}\n\n(with ${count(context.length)} characters of context)` : text;
    const asked = this.messages.add("user", "You", words);
    this.conversation.ask(text, context);
    await this.receive({ question, asked, conversation: this.conversation, model: this.model });
  }

  async receive(turn) {
    const asking = (this.asking = new AbortController());
    const reply = this.messages.add("assistant", turn.model.name, "");
    this.setRunning(true);
    let text = "";
    const write = (now) => this.messages.write(reply, (text = now));
    const wait = () => this.running.wait(turn.model, (words) => this.messages.note(reply, "waiting", words));
    const key = currentKey();
    try {
      const body = turn.conversation.body(this.settings());
      this.finish(turn, reply, await followReply(body, { key, signal: asking.signal, wait, write }));
    } catch (error) {
      this.breakOff(turn, reply, error, text);
      noteRefusal(key, error);
    } finally {
      this.asking = null;
      this.setRunning(false);
      this.showCode();
    }
  }

  finish(turn, reply, done) {
    turn.conversation.answer(done.text);
    if (done.finishReason === "length") {
      const words = `Cut off at ${count(done.usage?.completion_tokens)} tokens. “Most tokens” allows no more.`;
      this.messages.note(reply, "cut-off", words);
    }
    if (!done.text) this.messages.note(reply, "cut-off", "The reply is empty, so the question is not part of what follows.");
    this.messages.append(reply, bill(done));
    this.messages.finish(reply, done.text);
    say(byId("chat-said"), done.text || "The reply is empty.");
  }

  breakOff(turn, reply, error, text) {
    const isStopped = error.name === "AbortError";
    const stopped = text ? "Stopped. What was generated until then is charged." : "Stopped before the reply began. What the model had read by then may be charged.";
    turn.conversation.answer(text);
    // A conversation that was left behind is not on the page any more.
    if (turn.conversation !== this.conversation) return;
    if (isStopped) say(byId("chat-said"), stopped);
    else this.complain(error.message);
    const end = isStopped && text ? make("div", { class: "bill" }, stopped) : bill(error);
    this.messages.append(reply, end);
    this.messages.finish(reply, text);
    if (text) return;
    if (!end) reply.remove();
    this.takeBack(turn, isStopped ? stopped : error.status >= 400 && error.status < 500 ? "Not sent" : "Not answered");
  }

  // The question goes back to where it was written, unless something else is there by now.
  takeBack({ question, asked }, words) {
    const isInComposer = !byId("message").value.trim();
    if (isInComposer) byId("message").value = question.text;
    this.unsent = { message: asked, isInComposer };
    this.messages.markUnsent(asked, words, () => this.retry(question, asked));
  }

  // The request that Send would send; with an empty composer, the last one that was answered.
  code() {
    const { text, context } = this.question();
    const body = this.conversation.next(this.settings(), text, context);
    return curl(PATH, body, { hasKey: true, options: "-N" });
  }

  showCode() {
    if (byId("chat-code").open) byId("chat-code-text").textContent = shortened(this.code());
  }

  setRunning(isRunning) {
    byId("send").hidden = isRunning;
    byId("stop").hidden = !isRunning;
    if (isRunning) byId("stop").focus();
    else if (document.activeElement === document.body || document.activeElement === byId("stop")) byId("message").focus();
  }
}
