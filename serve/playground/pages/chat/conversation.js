// What was said, and the request that continues it. A reply that was stopped stays as far as it came.
export class Conversation {
  constructor() {
    this.messages = [];
  }

  ask(text, context) {
    const parts = [
      { type: "text", text: context, compress: true },
      { type: "text", text },
    ];
    this.messages.push({ role: "user", content: context ? parts : text });
  }

  answer(text) {
    if (text) this.messages.push({ role: "assistant", content: text });
    else this.takeBack();
  }

  // The last question had no answer: it is not sent again with the next.
  takeBack() {
    if (this.messages.at(-1)?.role === "user") this.messages.pop();
  }

  body({ model, maxTokens, temperature, ratio }) {
    const hasContext = this.messages.some((message) => Array.isArray(message.content));
    return {
      model,
      messages: this.messages,
      max_tokens: maxTokens,
      temperature,
      stream: true,
      ...(hasContext ? { compression: { target_ratio: ratio, min_tokens: 1 } } : {}),
    };
  }
}
