// A tool that must be called and its result fed back; and what the SDK makes of errors.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ maxRetries: 0 });
const model = process.env.PITH_CHAT_MODEL;
const tools = [
  {
    name: "weather",
    description: "The weather in a city.",
    input_schema: {
      type: "object",
      properties: { city: { type: "string", enum: ["Berlin", "Paris"] } },
      required: ["city"],
      additionalProperties: false,
    },
  },
];
const question = { role: "user", content: "How is the weather in Berlin?" };
const asked = await client.messages.create({
  model,
  messages: [question],
  tools,
  tool_choice: { type: "any" },
  max_tokens: 60,
});
const calls = asked.content.filter((block) => block.type === "tool_use");
const results = calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: "Rain." }));
const answered = await client.messages.create({
  model,
  messages: [question, { role: "assistant", content: asked.content }, { role: "user", content: results }],
  tools,
  max_tokens: 30,
});

async function caught(promise) {
  try {
    await promise;
  } catch (error) {
    const { status, message, requestID } = error;
    return { name: error.constructor.name, status, type: error.error?.error?.type, message, requestID };
  }
  throw new Error("the server refused nothing");
}
const send = (options, by = client) =>
  by.messages.create({ model, messages: [question], max_tokens: 5, ...options });
console.log(
  JSON.stringify({
    stop: asked.stop_reason,
    calls,
    answered: answered.stop_reason,
    unknown_model: await caught(send({ model: "claude-opus-4-1" })),
    wrong_key: await caught(send({}, client.withOptions({ apiKey: "wrong" }))),
    bad_option: await caught(send({ temperature: 3 })),
  }),
);
