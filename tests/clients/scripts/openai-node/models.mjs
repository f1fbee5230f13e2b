// The list of models as the SDK pages through it, one of them, and what it makes of errors.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const listed = [];
for await (const model of client.models.list()) listed.push(model);
const one = await client.models.retrieve(process.env.PITH_CHAT_MODEL);

async function caught(promise) {
  try {
    await promise;
  } catch (error) {
    const { status, code, type, param, message, requestID } = error;
    return { name: error.constructor.name, status, code, type, param, message, requestID };
  }
  throw new Error("the server refused nothing");
}

const chat = (options, by = client) =>
  by.chat.completions.create({
    model: process.env.PITH_CHAT_MODEL,
    messages: [{ role: "user", content: "Hello" }],
    max_tokens: 5,
    ...options,
  });
console.log(
  JSON.stringify({
    listed,
    one,
    unknown_model: await caught(chat({ model: "gpt-4o" })),
    wrong_key: await caught(chat({}, client.withOptions({ apiKey: "wrong" }))),
    bad_option: await caught(chat({ temperature: 3 })),
    too_long: await caught(chat({ messages: [{ role: "user", content: "river ".repeat(9000) }] })),
  }),
);
