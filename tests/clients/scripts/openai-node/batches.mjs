// A batch of two chats and a line that fails: a file, a batch, and what its output and error files say.
import OpenAI, { toFile } from "openai";

const client = new OpenAI();
const line = (custom_id, body) => JSON.stringify({ custom_id, method: "POST", url: "/v1/chat/completions", body });
const chat = { model: process.env.PITH_CHAT_MODEL, messages: [{ role: "user", content: "Hello" }], max_tokens: 5 };
const lines = [line("first", chat), line("second", chat), line("wrong", { ...chat, temperature: 3 })];

const file = await client.files.create({
  file: await toFile(Buffer.from(lines.join("\n") + "\n"), "batch.jsonl"),
  purpose: "batch",
});
let batch = await client.batches.create({
  input_file_id: file.id,
  endpoint: "/v1/chat/completions",
  completion_window: "24h",
});
const ended = ["completed", "failed", "expired", "cancelled"];
const deadline = Date.now() + 60_000;
while (!ended.includes(batch.status) && Date.now() < deadline) {
  await new Promise((resolve) => setTimeout(resolve, 200));
  batch = await client.batches.retrieve(batch.id);
}

async function content(id) {
  if (!id) return [];
  const text = await (await client.files.content(id)).text();
  return text
    .trim()
    .split("\n")
    .map((each) => JSON.parse(each));
}
const listed = [];
for await (const each of client.batches.list()) listed.push(each.id);
console.log(
  JSON.stringify({
    batch,
    file,
    output: await content(batch.output_file_id),
    errors: await content(batch.error_file_id),
    listed: listed.includes(batch.id),
  }),
);
