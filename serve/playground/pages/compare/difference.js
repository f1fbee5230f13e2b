// What compression made of a question, in words and figures: two replies beside one another.
import { count, dollars, percent } from "../parts/format.js";

// Of a prompt: enough to make the first word come sooner.
const MUCH_CACHED = 0.25;

// A reply and its compression, in dollars; null where it is not known.
export const costOf = (service) => (service?.billing ? service.billing.request_cost_usd + (service.compression?.cost_usd ?? 0) : null);

// Empty where there is nothing to compare.
export function differenceWords(model, whole, compressed) {
  if (!whole?.usage || !compressed?.usage || compressed.service?.compression?.status !== "applied") return "";
  const [before, after] = [whole.usage.prompt_tokens, compressed.usage.prompt_tokens];
  const read = `${model} read ${count(after)} tokens in place of ${count(before)} (${percent(after / before)})`;
  return `${[read, costWords(whole, compressed), timeWords(whole, compressed)].filter(Boolean).join("; ")}.`;
}

function costWords(whole, compressed) {
  const [before, after] = [costOf(whole.service), costOf(compressed.service)];
  if (before === null || after === null || before === after) return "";
  return `${dollars(Math.abs(before - after))} ${before > after ? "saved" : "more"}`;
}

function timeWords({ firstMs: before }, { firstMs: after }) {
  if (!before || !after) return "";
  const times = (Math.max(before, after) / Math.min(before, after)).toFixed(1);
  if (times === "1.0") return "the first word as soon";
  return `the first word ${times} times ${before > after ? "sooner" : "later"}`;
}

// An engine that has read a prompt's beginning before does not read it again. Empty where that made no difference.
export function cacheWords(replies) {
  const warm = Object.entries(replies).filter(([, reply]) => reply?.usage && cachedShare(reply.usage) >= MUCH_CACHED);
  if (!warm.length) return "";
  const names = warm.map(([name]) => `the ${name} text`).join(" and ");
  return `The engine still had much of ${names} in its cache, from a question before: asked anew, the first word comes later.`;
}

const cachedShare = (usage) => (usage.prompt_tokens_details?.cached_tokens ?? 0) / usage.prompt_tokens;
