// A message, the same as a stream, and a count of its tokens.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic();
const model = process.env.PITH_CHAT_MODEL;
const messages = [{ role: "user", content: "Tell me about the river." }];
const request = { model, messages, max_tokens: 30, system: "You know rivers." };
const whole = await client.messages.create(request);

const events = [];
const pieces = [];
const stream = client.messages.stream(request);
for await (const event of stream) {
  events.push(event.type);
  if (event.type === "content_block_delta") pieces.push(event.delta.text);
}
const final = await stream.finalMessage();
const counted = await client.messages.countTokens({ model, messages, system: request.system });
console.log(JSON.stringify({ whole, events, pieces, final, counted }));
