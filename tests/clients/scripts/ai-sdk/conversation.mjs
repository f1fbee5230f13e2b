// A second turn with the messages of the first, as the SDK gives them: by default it refers to what the assistant said
// by its id; with `store: false` it repeats it.
import { openai } from "@ai-sdk/openai";
import { generateText } from "ai";

const model = openai(process.env.PITH_CHAT_MODEL);
const asked = { role: "user", content: "Tell me about the river." };
const first = await generateText({ model, messages: [asked], maxOutputTokens: 20 });
const messages = [asked, ...first.response.messages, { role: "user", content: "And the sea?" }];
const again = (providerOptions) => generateText({ model, messages, maxOutputTokens: 20, providerOptions });

const referred = await again();
const repeated = await again({ openai: { store: false } });
console.log(
  JSON.stringify({
    first: first.usage.inputTokens,
    referred: referred.usage.inputTokens,
    repeated: repeated.usage.inputTokens,
    text: referred.text,
  }),
);
