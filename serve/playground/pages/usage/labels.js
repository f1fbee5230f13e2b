// A project's people and tags: what each used, cost and has spent of its budgets, the most expensive first.
import { make, makeSvg } from "../parts/dom.js";
import { count, dollars } from "../parts/format.js";
import { sortableTable } from "../parts/table.js";

export const FEW = 50;
const MANY = 500;
const KINDS = {
  person: { title: "People", name: "Person", words: "Whom the project’s requests named, each as the hash that is kept." },
  tag: { title: "Tags", name: "Tag", words: "A request counts for each of its tags." },
};
const EACH = { hour: "this hour", day: "today", week: "this week", month: "this month", total: "in all" };

// `found`: rows by `kind`, at most `FEW`; `more(kind, most)` reads up to so many.
export function labelSection(kind, found, more) {
  if (!found.data.length) return null;
  const section = make("section", { class: "labels" });
  fill(section, kind, found, more);
  return section;
}

function fill(section, kind, { data, has_more }, more) {
  const { title, name, words } = KINDS[kind];
  const heading = make("h2", { tabindex: "-1" }, title);
  const cut = has_more ? ` These are the ${count(data.length)} most expensive.` : "";
  section.replaceChildren(heading, make("p", {}, words + cut), sortableTable(title, columns(kind, name), data));
  if (!has_more || data.length >= MANY) return;
  const button = make("button", { type: "button" }, `Show ${MANY}`);
  button.addEventListener("click", async () => {
    button.disabled = true;
    const found = await more(kind, MANY);
    button.disabled = false;
    if (!found) return;
    fill(section, kind, found, more);
    section.querySelector("h2").focus();
  });
  section.append(button);
}

function columns(kind, name) {
  const number = (name, value, shown = count) => ({ name, value, shown: (row) => shown(value(row)), number: true });
  return [
    { name, value: (row) => row[kind], shown: (row) => row[kind] },
    number("Requests", (row) => row.requests),
    number("Tokens in", (row) => row.prompt_tokens),
    number("Tokens out", (row) => row.completion_tokens),
    number("Cost", (row) => row.cost_usd, dollars),
    number("Saved", (row) => row.net_saved_usd, dollars),
    { name: "Budgets", unsorted: true, shown: (row) => row.budgets && make("div", {}, ...row.budgets.map(budget)) },
  ];
}

function budget({ used_usd, limit_usd, period }) {
  const part = limit_usd > 0 ? Math.min(1, used_usd / limit_usd) : 1;
  const bar = makeSvg(
    "svg",
    { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    makeSvg("rect", { class: "track", width: 100, height: 6 }),
    makeSvg("rect", { class: part >= 0.8 ? "mark second" : "mark", width: 100 * part, height: 6 }),
  );
  return make("div", { class: "budget" }, `${dollars(used_usd)} of ${dollars(limit_usd)} ${EACH[period]}`, bar);
}
