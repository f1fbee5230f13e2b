// A tool that the SDK runs itself, and whose result it sends back.
import { openai } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

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
  model: openai(process.env.PITH_CHAT_MODEL),
  prompt: "How is the weather in Berlin?",
  tools: { weather },
  maxOutputTokens: 60,
  stopWhen: stepCountIs(2),
  // The model may decide by itself in the second step.
  prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "auto" }),
});
console.log(
  JSON.stringify({
    ran,
    steps: reply.steps.map((step) => ({
      finish: step.finishReason,
      calls: step.toolCalls.map((call) => call.input),
      results: step.toolResults.map((result) => result.output),
    })),
  }),
);
