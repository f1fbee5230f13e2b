// The AI SDK's default provider and default API (Responses): a text, and a stream of pieces.
import { openai } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";

const model = openai(process.env.PITH_CHAT_MODEL);
const prompt = "Tell me about the river.";
const whole = await generateText({ model, prompt, maxOutputTokens: 30 });

const stream = streamText({ model, prompt, maxOutputTokens: 30, onError: ({ error }) => { throw error; } });
const pieces = [];
for await (const piece of stream.textStream) pieces.push(piece);
console.log(
  JSON.stringify({
    text: whole.text,
    usage: whole.usage,
    finish: whole.finishReason,
    pieces,
    streamed_usage: await stream.usage,
    streamed_finish: await stream.finishReason,
  }),
);
