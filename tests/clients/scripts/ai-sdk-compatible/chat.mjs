// The AI SDK's provider for whoever speaks as OpenAI does, by chat completions: a text, a stream, a tool, an object, embeddings.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const pith = createOpenAICompatible({
  name: "pith",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const model = pith(process.env.PITH_CHAT_MODEL);
const prompt = "How is the weather in Berlin?";
const whole = await generateText({ model, prompt, maxOutputTokens: 30 });
const stream = streamText({ model, prompt, maxOutputTokens: 30, onError: ({ error }) => { throw error; } });
const pieces = [];
for await (const piece of stream.textStream) pieces.push(piece);
const ran = [];
const weather = tool({
  description: "The weather in a city.",
  inputSchema: z.object({ city: z.enum(["Berlin", "Paris"]) }),
  execute: async ({ city }) => {
    ran.push(city);
    return "Rain.";
  },
});
const reply = await generateText({
  model, prompt, tools: { weather }, maxOutputTokens: 300, stopWhen: stepCountIs(2),
  prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "auto" }),
});
const river = z.object({ name: z.enum(["Elbe", "Rhine"]), is_long: z.boolean() });
const made = await generateObject({ model, schema: river, prompt: "Which river?" });
const vectors = await embedMany({ model: pith.embeddingModel(process.env.PITH_EMBEDDING_MODEL), values: ["a", "b"] });
console.log(
  JSON.stringify({
    text: whole.text,
    usage: whole.usage,
    pieces,
    streamed_usage: await stream.usage,
    ran,
    steps: reply.steps.map((step) => step.finishReason),
    object: made.object,
    sizes: vectors.embeddings.map((each) => each.length),
  }),
);
