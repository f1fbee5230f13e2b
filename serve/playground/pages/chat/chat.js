// Chat: a conversation with a model, streamed, with what each reply cost.
import { byId, make, onceAFrame, say } from "../parts/dom.js";
import { count, percent, price } from "../parts/format.js";
import { askForKey, currentKey } from "../parts/key.js";
import { bill } from "./bill.js";
import { Conversation } from "./conversation.js";
import { streamReply } from "./reply.js";

export function startChat(about) {
  new Chat(about).start();
}

class Chat {
  constructor(about) {
    this.models = about.chat;
    this.compresses = about.compression.length > 0;
    this.log = byId("messages");
    this.forget();
  }

  start() {
    byId("chat-model").append(...this.models.map((model) => make("option", { value: model.id }, model.name)));
    byId("chat-model").addEventListener("change", () => this.describeModel());
    byId("chat-form").addEventListener("submit", (event) => (event.preventDefault(), this.send()));
    byId("message").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    byId("stop").addEventListener("click", () => this.running?.abort());
    byId("clear-chat").addEventListener("click", () => this.forget());
    byId("chat-options").addEventListener("submit", (event) => event.preventDefault());
    this.startContext();
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

  forget() {
    this.running?.abort();
    this.conversation = new Conversation();
    const words = "Ask something. The reply streams in, and its bill follows.";
    this.log.replaceChildren(make("p", { class: "empty" }, words));
    say(byId("chat-fault"), "");
  }

  describeModel() {
    const model = this.models.find((one) => one.id === byId("chat-model").value);
    const prices = `${price(model.input_price_per_mtok)} in, ${price(model.output_price_per_mtok)} out a million tokens`;
    say(byId("chat-price"), `${prices}; ${count(model.context_length)} tokens of context.`);
  }

  settings() {
    return {
      model: byId("chat-model").value,
      maxTokens: Number(byId("max-tokens").value) || 200,
      temperature: Number(byId("temperature").value),
      ratio: Number(byId("chat-ratio").value) / 100,
    };
  }

  async send() {
    const text = byId("message").value.trim();
    if (!text || this.running) return;
    if (!currentKey()) {
      say(byId("chat-fault"), "Chat needs a key.");
      askForKey();
      return;
    }
    say(byId("chat-fault"), "");
    this.log.querySelector(".empty")?.remove();
    const context = byId("with-context").checked ? byId("chat-context").value : "";
    this.conversation.ask(text, context);
    byId("message").value = "";
    this.add("user", "You", context ? `${text}\n\n(with ${count(context.length)} characters of context)` : text);
    await this.receive(this.add("assistant", byId("chat-model").value, ""), this.conversation);
  }

  async receive(message, conversation) {
    const running = (this.running = new AbortController());
    this.setRunning(true);
    let text = "";
    const draw = onceAFrame(() => this.write(message, text));
    const onText = (now) => ((text = now), draw());
    try {
      const body = conversation.body(this.settings());
      const done = await streamReply(body, { key: currentKey(), signal: running.signal, onText });
      const end = bill(done);
      if (end) message.append(end);
      say(byId("chat-said"), done.text || "The reply is empty.");
    } catch (error) {
      this.brokeOff(message, error, text);
    } finally {
      conversation.answer(text);
      this.write(message, text);
      this.running = null;
      this.setRunning(false);
    }
  }

  brokeOff(message, error, text) {
    if (error.name === "AbortError") {
      const words = "Stopped. What was generated until then is charged.";
      message.append(make("div", { class: "bill" }, words));
      say(byId("chat-said"), words);
      return;
    }
    say(byId("chat-fault"), error.message);
    const end = bill(error);
    if (end) message.append(end);
    else if (!text) message.remove();
  }

  setRunning(isRunning) {
    byId("send").hidden = isRunning;
    byId("stop").hidden = !isRunning;
    if (isRunning) byId("stop").focus();
    else if (document.activeElement === document.body || document.activeElement === byId("stop")) byId("message").focus();
  }

  add(role, who, text) {
    const said = make("div", { class: "said", dir: "auto" }, text);
    const message = make("div", { class: `message ${role}` }, make("p", { class: "who" }, who), said);
    this.log.append(message);
    this.log.scrollTop = this.log.scrollHeight;
    return message;
  }

  write(message, text) {
    const isAtEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
    message.querySelector(".said").textContent = text;
    if (isAtEnd) this.log.scrollTop = this.log.scrollHeight;
  }
}
