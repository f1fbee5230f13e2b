// `parse`: the reply as an object of a zod schema.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI();
const River = z.object({ name: z.enum(["Elbe", "Rhine"]), is_long: z.boolean() });
const reply = await client.chat.completions.parse({
  model: process.env.PITH_CHAT_MODEL,
  messages: [{ role: "user", content: "Tell me about the river." }],
  response_format: zodResponseFormat(River, "river"),
});
console.log(JSON.stringify(reply.choices[0].message.parsed));
