// Order of the search's results: Sphinx gives every page with a word the same score, and sorts what is equal by name.
// A page named after a word of the query comes first, then guides; decisions, the log of changes and lists made of the code last.
const asked = (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/[^a-z0-9]+/).filter((word) => word.length > 2);
const LAST = /^(CHANGELOG|docs\/adr\/|docs\/api\/|docs\/configuration$)/;

// `var`: Sphinx declares its own where there is none.
var Scorer = {
  score: ([page, title, , , score]) => {
    const named = `${page.split("/").pop()} ${title}`.toLowerCase();
    const words = asked.filter((word) => named.includes(word.replace(/s$/, ""))).length;
    return score + 10 * words - (LAST.test(page) ? 4 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
