// What was said, and the request that continues it. A reply that was stopped stays as far as it came.
export class Conversation {
  constructor() {
    this.messages = [];
  }

  ask(text, context) {
    this.messages.push(question(text, context));
  }

  answer(text) {
    if (text) this.messages.push({ role: "assistant", content: text });
    else this.takeBack();
  }

  // The last question had no answer: it is not sent again with the next.
  takeBack() {
    if (this.messages.at(-1)?.role === "user") this.messages.pop();
  }

  body(settings) {
    return bodyOf(this.messages, settings);
  }

  // The request with this question; without one, that which had the last answer.
  next(settings, text, context) {
    if (text || !this.messages.length) return bodyOf([...this.messages, question(text, context)], settings);
    const isAnswered = this.messages.at(-1).role === "assistant";
    return bodyOf(isAnswered ? this.messages.slice(0, -1) : this.messages, settings);
  }
}

function question(text, context) {
  const parts = [
    { type: "text", text: context, compress: true },
    { type: "text", text },
  ];
  return { role: "user", content: context ? parts : text };
}

function bodyOf(messages, { model, maxTokens, temperature, ratio }) {
  const hasContext = messages.some((message) => Array.isArray(message.content));
  return {
    model,
    messages,
    max_tokens: maxTokens,
    temperature,
    stream: true,
    ...(hasContext ? { compression: { target_ratio: ratio, min_tokens: 1 } } : {}),
  };
}
