// The Responses API: a reply, a parsed one, its events in a stream, and a function call with its result.
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI();
const model = process.env.PITH_CHAT_MODEL;
const input = "Tell me about the river.";
const plain = await client.responses.create({ model, input, max_output_tokens: 30 });

const River = z.object({ name: z.enum(["Elbe", "Rhine"]), is_long: z.boolean() });
const parsed = await client.responses.parse({
  model,
  input,
  text: { format: zodTextFormat(River, "river") },
});

const stream = client.responses.stream({ model, input, max_output_tokens: 30 });
const events = [];
const pieces = [];
for await (const event of stream) {
  events.push(event.type);
  if (event.type === "response.output_text.delta") pieces.push(event.delta);
}
const final = await stream.finalResponse();

const tools = [
  {
    type: "function",
    name: "weather",
    description: "The weather in a city.",
    strict: true,
    parameters: {
      type: "object",
      properties: { city: { type: "string", enum: ["Berlin", "Paris"] } },
      required: ["city"],
      additionalProperties: false,
    },
  },
];
const question = { role: "user", content: "How is the weather in Berlin?" };
const asked = await client.responses.create({ model, input: [question], tools, tool_choice: "required" });
const calls = asked.output.filter((item) => item.type === "function_call");
const results = calls.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "Rain." }));
const answered = await client.responses.create({
  model,
  input: [question, ...asked.output, ...results],
  tools,
  max_output_tokens: 30,
});

console.log(
  JSON.stringify({
    text: plain.output_text,
    usage: plain.usage,
    parsed: parsed.output_parsed,
    events,
    pieces,
    streamed_text: final.output_text,
    streamed_usage: final.usage,
    calls,
    answered: answered.status,
  }),
);
