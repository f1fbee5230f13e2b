// LangGraph's agent: a tool that must be called and is run, a conversation that is kept, a stream of messages.
import { HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { END, MemorySaver, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { ToolNode } from "@langchain/langgraph/prebuilt";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

const model = new ChatOpenAI({
  model: process.env.PITH_CHAT_MODEL,
  maxTokens: 300,
  configuration: { baseURL: process.env.OPENAI_BASE_URL },
});
const weather = tool(async () => "Rain.", {
  name: "weather",
  description: "The weather in a city.",
  schema: z.object({ city: z.enum(["Berlin", "Paris"]) }),
});
const forced = model.bindTools([weather], { tool_choice: "required" });
const graph = new StateGraph(MessagesAnnotation)
  .addNode("ask", async ({ messages }) => ({ messages: [await forced.invoke(messages)] }))
  .addNode("tools", new ToolNode([weather]))
  .addNode("answer", async ({ messages }) => ({ messages: [await model.invoke(messages)] }))
  .addEdge(START, "ask")
  .addEdge("ask", "tools")
  .addEdge("tools", "answer")
  .addEdge("answer", END)
  .compile({ checkpointer: new MemorySaver() });
const thread = { configurable: { thread_id: "one" } };
const { messages } = await graph.invoke({ messages: [new HumanMessage("How is the weather?")] }, thread);
const pieces = [];
const again = { messages: [new HumanMessage("And now?")] };
for await (const [piece, where] of await graph.stream(again, { ...thread, streamMode: "messages" })) {
  if (where.langgraph_node === "answer" && piece.content) pieces.push(piece.content);
}
console.log(
  JSON.stringify({
    types: messages.map((message) => message.getType()),
    result: messages[2].content,
    answer: messages.at(-1).content,
    pieces: pieces.length,
    kept: (await graph.getState(thread)).values.messages.length,
  }),
);
