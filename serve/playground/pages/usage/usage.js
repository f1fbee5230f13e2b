// Usage: what a key used and cost, by day, model and route, and a project's by person and tag.
import { ask } from "../api/request.js";
import { byId, make, say } from "../parts/dom.js";
import { count, dollars } from "../parts/format.js";
import { askForKey, currentKey, onKey } from "../parts/key.js";
import { plainTable } from "../parts/table.js";
import { FEW, labelSection } from "./labels.js";
import { dayPlot, namePlot } from "./plots.js";

const DAY_MS = 86_400_000;
const MOST_NAMES = 8;
const isoDay = (time) => new Date(time).toISOString().slice(0, 10);

// What is to be done when the view opens.
export function startUsage() {
  const usage = new Usage();
  byId("usage-form").addEventListener("submit", (event) => (event.preventDefault(), usage.load()));
  for (const id of ["usage-days", "usage-scope"]) byId(id).addEventListener("change", () => usage.load());
  onKey(() => {
    usage.clear();
    if (location.hash === "#usage") usage.load();
  });
  return () => usage.open();
}

class Usage {
  #running = null;
  #isLoaded = false;

  open() {
    if (!this.#isLoaded) this.load();
  }

  clear() {
    this.#isLoaded = false;
    byId("usage").replaceChildren();
  }

  async load() {
    this.#running?.abort();
    const running = (this.#running = new AbortController());
    say(byId("usage-fault"), "");
    if (!currentKey()) {
      this.#showNoKey();
      return;
    }
    try {
      const found = await this.#read(Number(byId("usage-days").value), byId("usage-scope").value, running.signal);
      if (this.#running === running) this.#show(found);
    } catch (error) {
      if (error.name !== "AbortError") say(byId("usage-fault"), error.message);
    }
  }

  async #read(days, scope, signal) {
    const today = Date.parse(isoDay(Date.now()));
    const [start, end] = [isoDay(today - (days - 1) * DAY_MS), isoDay(today + DAY_MS)];
    const by = async (group, most = null) => {
      const asked = new URLSearchParams({ start, end, scope, group_by: group, ...(most && { limit: most }) });
      return (await ask(`v1/usage?${asked}`, { key: currentKey(), signal })).body;
    };
    const kinds = scope === "project" ? ["person", "tag"] : [];
    const labels = kinds.map(async (kind) => [kind, await by(kind, FEW), (...asked) => this.#more(by, asked)]);
    const [byDay, byModel, byRoute, ...labelled] = await Promise.all([...["day", "model", "route"].map((group) => by(group)), ...labels]);
    return { total: byDay.total, days: everyDay(byDay.data, start, end), models: byModel.data, routes: byRoute.data, labelled, kept: byModel.preservation ?? [] };
  }

  // Nothing where it could not be read, which is said.
  async #more(by, asked) {
    say(byId("usage-fault"), "");
    try {
      return await by(...asked);
    } catch (error) {
      if (error.name !== "AbortError") say(byId("usage-fault"), error.message);
      return null;
    }
  }

  #showNoKey() {
    const button = make("button", { type: "button", class: "primary" }, "Add a key");
    button.addEventListener("click", askForKey);
    byId("usage").replaceChildren(make("div", { class: "empty" }, make("p", {}, "Usage is a key’s own: it needs one."), button));
  }

  #show({ total, days, models, routes, labelled, kept }) {
    this.#isLoaded = true;
    const spent = [{ name: "Spend", value: (row) => row.cost_usd }];
    const tokens = [
      { name: "Tokens in", value: (row) => row.prompt_tokens },
      { name: "Tokens out", value: (row) => row.completion_tokens },
    ];
    const saved = [{ name: "Saved", value: (row) => row.net_saved_usd }];
    const plots = [
      dayPlot("Spend by day", days, spent, dollars),
      dayPlot("Tokens by day", days, tokens, compact),
      dayPlot("Saved by compression, by day", days, saved, dollars),
      ...named("Spend by model", (row) => row.model, models, spent),
      ...named("Spend by route", (row) => row.route ?? "earlier", routes, spent),
    ];
    const tables = [...labelled.map((one) => labelSection(...one)), kept.length ? preserved(kept) : null].filter(Boolean);
    byId("usage").replaceChildren(totals(total), make("div", { class: "plots" }, ...plots), ...tables);
    say(byId("usage-said"), `${count(total.requests)} requests, ${dollars(total.cost_usd)}.`);
  }
}

const compact = (value) => Intl.NumberFormat("en-US", { notation: "compact" }).format(value);

function named(title, name, rows, series) {
  const sorted = [...rows].sort((a, b) => b.cost_usd - a.cost_usd).slice(0, MOST_NAMES);
  return sorted.length ? [namePlot(title, name, sorted, series, dollars)] : [];
}

function totals(total) {
  const rows = [
    ["Spend", dollars(total.cost_usd)],
    ["Requests", count(total.requests)],
    ["Tokens in", count(total.prompt_tokens)],
    ["Tokens out", count(total.completion_tokens)],
    ["Saved", dollars(total.net_saved_usd)],
  ];
  return make("dl", { class: "totals" }, ...rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// What compression changed in replies that were scored again under the whole prompt.
function preserved(rows) {
  const share = (value) => `${(100 * value).toFixed(1)}%`;
  const ranged = (write, mean, low, high) => `${write(mean)} (${write(low)} to ${write(high)})`;
  const columns = [
    { name: "Model", shown: (row) => row.model },
    { name: "Compressed", shown: (row) => row.kind.replaceAll("_", " ").replaceAll("+", ", ") },
    { name: "Chats checked", shown: (row) => count(row.checked_chats), number: true },
    { name: "Nats a token", shown: (row) => ranged((value) => value.toFixed(3), row.nats_per_token, row.nats_low, row.nats_high) },
    { name: "Same likeliest token", shown: (row) => ranged(share, row.agreement, row.agreement_low, row.agreement_high) },
  ];
  const title = "What compression changed";
  const words =
    "Replies of the project that were scored again under the whole prompt, with intervals that hold at every look (95%). Up to 512 tokens of each; harm in later turns is not seen, and an answer that is right in other words counts as changed.";
  return make("section", {}, make("h2", {}, title), make("p", {}, words), plainTable(title, columns, rows));
}

// A day without usage has no row.
function everyDay(rows, start, end) {
  const found = new Map(rows.map((row) => [row.day, row]));
  const days = [];
  for (let time = Date.parse(start); time < Date.parse(end); time += DAY_MS) {
    const day = isoDay(time);
    days.push(found.get(day) ?? { day, cost_usd: 0, prompt_tokens: 0, completion_tokens: 0, net_saved_usd: 0 });
  }
  return days;
}
