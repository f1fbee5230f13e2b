// A chat reply, and the same as a stream of pieces with its usage at the end.
import OpenAI from "openai";

const client = new OpenAI();
const request = {
  model: process.env.PITH_CHAT_MODEL,
  messages: [{ role: "user", content: "Tell me about the river." }],
  max_tokens: 30,
  temperature: 0,
};
const whole = await client.chat.completions.create(request);

const pieces = [];
let usage;
for await (const chunk of await client.chat.completions.create({
  ...request,
  stream: true,
  stream_options: { include_usage: true },
})) {
  if (chunk.choices.length) pieces.push(chunk.choices[0].delta.content ?? "");
  usage = chunk.usage ?? usage;
}

// Nothing asks for usage here, so every chunk has a choice: `choices[0]` is never undefined.
let unasked = "";
for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
  unasked += chunk.choices[0].delta.content ?? "";
}

const helper = client.chat.completions.stream(request);
const told = [];
helper.on("content", (delta) => told.push(delta));
const final = await helper.finalContent();

console.log(
  JSON.stringify({
    text: whole.choices[0].message.content,
    usage: whole.usage,
    object: whole.object,
    pieces,
    streamed_usage: usage,
    unasked,
    told,
    final,
  }),
);
