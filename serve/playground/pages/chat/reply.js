// A streamed reply: its text as it comes, then what it used and cost, or what broke it off.
import { eventsOf } from "../api/events.js";
import { apiError, open } from "../api/request.js";
import { BROKE_OFF, CHARGED } from "../api/words.js";

export async function streamReply(body, { key, signal, onText }) {
  const reply = await open("v1/chat/completions", { body, key, signal });
  let text = "";
  let end = null;
  for await (const data of eventsOf(reply.body)) {
    if (data === "[DONE]") return { text, ...end };
    const event = parsed(data);
    if (event.error) throw brokenOff(event, text, key);
    text += event.choices?.[0]?.delta?.content ?? "";
    if (event.usage) end = { usage: event.usage, service: event.service };
    onText(text);
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
