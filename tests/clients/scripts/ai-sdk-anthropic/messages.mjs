// The AI SDK's provider for Anthropic, by its environment variables: a text, a stream, a tool that the SDK runs.
import { anthropic } from "@ai-sdk/anthropic";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const model = anthropic(process.env.PITH_CHAT_MODEL);
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
console.log(
  JSON.stringify({
    text: whole.text,
    usage: whole.usage,
    finish: whole.finishReason,
    pieces,
    streamed_usage: await stream.usage,
    ran,
    steps: reply.steps.map((step) => step.finishReason),
  }),
);
