// One text's vector, and those of several.
import { openai } from "@ai-sdk/openai";
import { embed, embedMany } from "ai";

const model = openai.embedding(process.env.PITH_EMBEDDING_MODEL);
const one = await embed({ model, value: "a river" });
const many = await embedMany({ model, values: ["a river", "the sea"] });
console.log(JSON.stringify({ one: one.embedding, many: many.embeddings, usage: many.usage }));
