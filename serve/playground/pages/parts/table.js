// A table whose columns sort by a button in their head. On a phone each row is a card, with its columns' names.
import { make } from "./dom.js";

// Columns: {name, value(row) to sort by, shown(row) a text or a node, number, unsorted}.
export function sortableTable(caption, columns, rows) {
  const body = make("tbody", { role: "rowgroup" });
  const heads = columns.map((column, at) => head(column, at === 0));
  const table = make(
    "table",
    { class: "narrow", role: "table" },
    make("caption", { class: "unseen" }, caption),
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...heads)),
    body,
  );
  let sorted = { at: -1, isUp: true };
  const fill = () => body.replaceChildren(...inOrder(rows, columns, sorted).map((row) => line(row, columns)));
  heads.forEach((cell, at) =>
    cell.querySelector("button")?.addEventListener("click", () => {
      sorted = { at, isUp: sorted.at === at ? !sorted.isUp : true };
      heads.forEach((other) => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
      cell.setAttribute("aria-sort", sorted.isUp ? "ascending" : "descending");
      fill();
    }),
  );
  fill();
  return table;
}

export function plainTable(caption, columns, rows) {
  const unsorted = columns.map((column) => ({ ...column, unsorted: true }));
  const table = sortableTable(caption, unsorted, rows);
  table.classList.remove("narrow");
  return table;
}

function head(column) {
  const kind = { scope: "col", role: "columnheader", class: column.number ? "number" : null };
  if (column.unsorted) return make("th", kind, column.name);
  return make("th", { ...kind, "aria-sort": "none" }, make("button", { type: "button" }, column.name));
}

function line(row, columns) {
  return make(
    "tr",
    { role: "row" },
    ...columns.map((column, at) =>
      make(
        at ? "td" : "th",
        at
          ? { role: "cell", "data-label": column.name, class: column.number ? "number" : column.plain ? "plain" : null }
          : { scope: "row", role: "rowheader" },
        // An empty cell is left out of a card.
        column.shown(row) || null,
      ),
    ),
  );
}

function inOrder(rows, columns, { at, isUp }) {
  if (at < 0) return rows;
  const { value } = columns[at];
  const order = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
  const found = [...rows].sort((a, b) => order(value(a), value(b)));
  return isUp ? found : found.reverse();
}
