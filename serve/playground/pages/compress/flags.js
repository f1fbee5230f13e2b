// Risk flags in words, worst first; their places are buttons that lead there.
import { make } from "../parts/dom.js";

const WORDS = {
  target_unreachable: "The size asked for could not be reached",
  ratio_aggressive: "Very little is kept",
  input_too_short: "The input is too short to be worth compressing",
  negation_dropped: "A negation was left out",
  number_dropped: "Numbers were left out",
  entity_dropped: "Names were left out",
  url_dropped: "Addresses were left out",
  quote_broken: "A quotation was broken",
  query_missing: "There is no question",
  query_terms_absent: "Words of the question are not in the output",
  low_relevance: "Nothing in the source seems to answer the question",
  evidence_at_risk: "The evidence may have been left out",
  evidence_borderline: "Something left out was nearly as relevant",
  outside_calibration: "Unlike the texts that the estimate was made on",
  answer_type_absent: "No answer of the kind asked for was kept",
  main_text_cut: "Part of the page's own text was left out",
  code_altered: "Code was altered",
  json_invalid: "The output is no longer valid JSON",
  table_damaged: "A table was damaged",
  unsupported_language: "A language that the model was not made for",
  instruction_like_text: "The text speaks to a model like an instruction",
};
const ORDER = ["critical", "warning", "info"];
const LONGEST = 48;

export function drawFlags(list, flags, onPlace) {
  const sorted = [...flags].sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
  const items = sorted.map((flag) => item(flag, onPlace));
  list.replaceChildren(...(items.length ? items : [make("li", { class: "none" }, "No risk was found at this size.")]));
}

function item(flag, onPlace) {
  const words = WORDS[flag.code] ?? flag.code;
  const severity = ORDER.includes(flag.severity) ? flag.severity : "info";
  const head = make(
    "p",
    { class: "flag-head" },
    make("span", { class: `severity ${severity}` }, severity),
    make("span", {}, words),
    make("span", { class: "note" }, flag.count > 1 ? `${flag.count} times` : ""),
  );
  const places = flag.examples.map((place) => button(place, words, onPlace));
  return make("li", {}, head, places.length ? make("div", { class: "places" }, ...places) : null);
}

function button(place, words, onPlace) {
  const text = place.text.length > LONGEST ? `${place.text.slice(0, LONGEST)}…` : place.text;
  const found = make("button", { type: "button", dir: "auto", "aria-label": `Go to “${text}”: ${words}` }, text);
  found.addEventListener("click", () => onPlace(place));
  return found;
}
