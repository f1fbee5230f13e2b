// Talks to a server through the openai npm client, and prints what came as one line of JSON.
// Usage: PITH_URL=http://127.0.0.1:8000 PITH_KEY=... node contract.mjs plain|stream|headers
// PITH_MESSAGES, as JSON, takes the place of the usual messages.
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.PITH_URL}/v1`,
  apiKey: process.env.PITH_KEY,
  maxRetries: 0,
  timeout: 60_000,
});
const request = {
  model: "pith-mini",
  messages: JSON.parse(process.env.PITH_MESSAGES ?? '[{"role": "user", "content": "Tell me about the river."}]'),
  max_tokens: 30,
};

async function plain() {
  const reply = await client.chat.completions.create(request);
  return { text: reply.choices[0].message.content, usage: reply.usage, service: reply.service };
}

async function stream() {
  let text = "";
  let chunks = 0;
  let last;
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    text += chunk.choices[0]?.delta?.content ?? "";
    chunks += 1;
    last = chunk;
  }
  return { text, chunks, choices: last.choices, usage: last.usage, service: last.service };
}

async function headers() {
  const { response, request_id } = await client.chat.completions.create(request).withResponse();
  const { headers } = response;
  return {
    metering: headers.get("x-service-metering-status"),
    compression: headers.get("x-service-compression"),
    request_id,
  };
}

const actions = { plain, stream, headers };
console.log(JSON.stringify(await actions[process.argv[2]]()));
