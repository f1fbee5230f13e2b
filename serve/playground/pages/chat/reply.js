// A streamed reply: its text as it comes, then what it used and cost, or what broke it off.
import { eventsOf } from "../api/events.js";
import { apiError, open } from "../api/request.js";
import { BROKE_OFF, CHARGED } from "../api/words.js";
import { onceAFrame } from "../parts/dom.js";

export const PATH = "v1/chat/completions";

// The reply as it is shown: `wait` tells of the wait for its first word, until the function that it returns is called,
// and `write` has the text, once a frame and at the end.
export async function followReply(body, { key, signal, wait, write }) {
  let text = "";
  const endWait = wait();
  const draw = onceAFrame(() => write(text));
  const onText = (now) => {
    if (!text && now) endWait();
    text = now;
    draw();
  };
  try {
    return await streamReply(body, { key, signal, onText });
  } finally {
    endWait();
    write(text);
  }
}

// `firstMs` and `lastMs` are from the question to the first and to the last text.
async function streamReply(body, { key, signal, onText }) {
  const began = performance.now();
  const reply = await open(PATH, { body, key, signal });
  const found = { text: "", finishReason: null, firstMs: null, lastMs: null };
  for await (const data of eventsOf(reply.body)) {
    if (data === "[DONE]") return found;
    const event = parsed(data);
    if (event.error) throw brokenOff(event, found.text, key);
    const [choice] = event.choices ?? [];
    if (choice?.delta?.content) {
      found.text += choice.delta.content;
      found.lastMs = performance.now() - began;
      found.firstMs ??= found.lastMs;
    }
    found.finishReason = choice?.finish_reason ?? found.finishReason;
    if (event.usage) Object.assign(found, { usage: event.usage, service: event.service });
    onText(found.text);
  }
  const lost = "The reply broke off: the connection was lost. What was generated until then is charged.";
  throw apiError(0, { message: lost }, null, key);
}

// An error event says what was charged, where something was.
function brokenOff({ error, usage, service }, text, key) {
  const status = usage ? CHARGED : text ? BROKE_OFF : 502;
  return Object.assign(apiError(status, error, null, key), { usage, service });
}

function parsed(data) {
  try {
    return JSON.parse(data);
  } catch {
    return {};
  }
}
