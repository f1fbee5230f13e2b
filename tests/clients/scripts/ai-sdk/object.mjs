// `generateObject`: a reply of a zod schema.
import { openai } from "@ai-sdk/openai";
import { generateObject } from "ai";
import { z } from "zod";

const reply = await generateObject({
  model: openai(process.env.PITH_CHAT_MODEL),
  prompt: "Tell me about the river.",
  schema: z.object({ name: z.enum(["Elbe", "Rhine"]), is_long: z.boolean() }),
});
console.log(JSON.stringify({ object: reply.object, finish: reply.finishReason, usage: reply.usage }));
