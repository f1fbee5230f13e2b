// Under a reply: tokens, cost, whether that is on record, how fast it came, and what compression saved.
import { make } from "../parts/dom.js";
import { count, dollars, percent, seconds } from "../parts/format.js";

const METERING = {
  persisted: "on record",
  degraded: "kept on the server until the ledger takes it",
  not_applicable: "not metered",
};
// Less is too short to tell a speed by.
const STREAMED_MS = 100;
const REASONS = { failed: "failed, so the context was sent whole", skipped: "nothing to compress" };

// What became of it where it was not compressed; else empty.
export function compressionWords(compression) {
  if (!compression || compression.status === "applied") return "";
  return `compression: ${REASONS[compression.status] ?? compression.status}`;
}

export function bill({ usage, service, firstMs, lastMs }) {
  if (!usage) return null;
  const { billing, metering, compression } = service ?? {};
  const items = [
    item(count(usage.prompt_tokens), "tokens in"),
    item(count(usage.completion_tokens), "tokens out"),
    billing && item(dollars(billing.request_cost_usd), billing.minimum_applied ? "charged, the minimum" : "charged"),
    metering && make("span", {}, METERING[metering.status] ?? metering.status),
    firstMs && item(seconds(firstMs), "to the first token"),
    lastMs - firstMs >= STREAMED_MS && item(count(speed(usage.completion_tokens, lastMs - firstMs)), "tokens a second"),
  ].filter(Boolean);
  return make("div", { class: "bill" }, ...items, ...saved(compression));
}

// Of the tokens after the first.
const speed = (tokens, ms) => Math.round((tokens - 1) / (ms / 1000));

function saved(compression) {
  if (!compression) return [];
  const words = compressionWords(compression);
  if (words) return [make("span", {}, words)];
  const { tokens_saved: tokens, original_tokens: before, net_usd: net } = compression;
  const share = before ? ` (${percent(tokens / before)})` : "";
  return [
    make("span", { class: "saved" }, make("strong", {}, `${count(tokens)} tokens`), ` saved${share}`),
    make("span", { class: "saved" }, make("strong", {}, dollars(net)), " saved, net"),
  ];
}

const item = (value, words) => make("span", {}, make("strong", {}, value), ` ${words}`);
