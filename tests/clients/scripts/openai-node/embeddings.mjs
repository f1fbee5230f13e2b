// Vectors, which the SDK asks for in base64 unless told otherwise.
import OpenAI from "openai";

const client = new OpenAI();
const model = process.env.PITH_EMBEDDING_MODEL;
const input = ["a river", "the sea"];
const asFloats = await client.embeddings.create({ model, input, encoding_format: "float" });
const byDefault = await client.embeddings.create({ model, input });
console.log(
  JSON.stringify({
    floats: asFloats.data.map((each) => each.embedding),
    by_default: byDefault.data.map((each) => Array.from(each.embedding)),
    usage: byDefault.usage,
  }),
);
