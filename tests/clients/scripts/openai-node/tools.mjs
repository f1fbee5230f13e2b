// A tool that must be called, its result fed back, and the SDK's loop that does both.
import OpenAI from "openai";

const client = new OpenAI();
const model = process.env.PITH_CHAT_MODEL;
const parameters = {
  type: "object",
  properties: { city: { type: "string", enum: ["Berlin", "Paris"] } },
  required: ["city"],
  additionalProperties: false,
};
const weather = { name: "weather", description: "The weather in a city.", parameters };
const tools = [{ type: "function", function: weather }];
const messages = [{ role: "user", content: "How is the weather in Berlin?" }];

const asked = await client.chat.completions.create({ model, messages, tools, tool_choice: "required" });
const message = asked.choices[0].message;
const results = message.tool_calls.map((call) => ({
  role: "tool",
  tool_call_id: call.id,
  content: "Rain.",
}));
const answered = await client.chat.completions.create({
  model,
  messages: [...messages, message, ...results],
  tools,
  max_tokens: 30,
});

const ran = [];
const runner = client.chat.completions.runTools({
  model,
  messages,
  tools: [
    {
      type: "function",
      function: {
        ...weather,
        parse: JSON.parse,
        function: ({ city }) => {
          ran.push(city);
          return "Rain.";
        },
      },
    },
  ],
  tool_choice: { type: "function", function: { name: "weather" } },
});
await runner.done();

const streamed = client.chat.completions.stream({ model, messages, tools, tool_choice: "required" });
const streamedCall = (await streamed.finalMessage()).tool_calls[0];

console.log(
  JSON.stringify({
    finish: asked.choices[0].finish_reason,
    calls: message.tool_calls,
    answer: answered.choices[0].message,
    ran,
    roles: runner.messages.map((each) => each.role),
    streamed: streamedCall,
  }),
);
