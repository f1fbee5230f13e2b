"""Families of suites: the measure of each, its ratios, and when an output counts as having kept its evidence."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

from benchmarks.evaluation.case import Case
from benchmarks.evaluation.metrics import holds_answer, pair_kept, parses, place, tokens
from benchmarks.evaluation.suites.pages import text_of
from benchmarks.evaluation.suites.traces import holds_value, is_conversation, spellings
from compression.tuning.row import normalise

Measures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Family:
    """`measure` gives shares from 0 to 1 by name, of `names` those that the case has.

    An output kept its evidence where `decisive` is `enough` or more.
    """

    title: str
    names: tuple[str, ...]
    ratios: tuple[float, ...]
    measure: Callable[[Case, str], Measures]
    decisive: str
    enough: float = 1.0


def answer(case: Case, output: str) -> Measures:
    return {"answer": float(holds_answer(output, case.answers))}


def meeting(case: Case, output: str) -> Measures:
    """The share of the evidence's tokens; and the share of its turns of which at least half was kept."""
    kept = place(case.context, output)
    turns = [
        (kept[case.context.count("\n", 0, start)], len(tokens(case.context[start:end])))
        for start, end in case.evidence
    ]
    total = sum(size for _, size in turns)
    share = sum(own for own, _ in turns) / total if total else 1.0
    return {"evidence": share, "turns": fmean(2 * own >= size for own, size in turns) if turns else 1.0}


def turns(case: Case, output: str) -> Measures:
    """Evidence turns by what was said in them, whole; the answer only of cases that ask for one."""
    ready = normalise(output)
    kept = [normalise(need.text) in ready for need in case.needs]
    return (answer(case, output) if case.answers else {}) | {
        "turns": fmean(kept), "all turns": float(all(kept))
    }  # fmt: skip


def sentence(case: Case, output: str) -> Measures:
    """The answer, and the sentence that gives it; a text in JSON is compared as JSON writes it."""
    ready = normalise(output)
    kept = any(normalise(each) in ready for each in spellings(case.needs[0].text))
    answers = [each for text in case.answers for each in spellings(text)]
    found = {"answer": float(holds_answer(output, answers)), "sentence": float(kept)}
    return found | {"valid": float(is_conversation(output))} if case.suite.endswith("_json") else found


def pair(case: Case, output: str) -> Measures:
    return {"pair": float(pair_kept(output, *case.answers)), "parses": float(parses(output))}


def hops(case: Case, output: str) -> Measures:
    """Every need on normalised text; the answer only of cases that ask for one."""
    ready = normalise(output)
    found = {"all evidence": float(all(normalise(need.text) in ready for need in case.needs))}
    return (answer(case, output) if case.answers else {}) | found


def kinds(case: Case, output: str) -> Measures:
    """A kind of line is kept where any whole line of it is."""
    lines = {line.strip() for line in output.split("\n")}
    kept = [any(case.context[start:end].strip() in lines for start, end in need.spans) for need in case.needs]
    return {"kinds": fmean(kept), "all kinds": float(all(kept))}


def values(case: Case, output: str) -> Measures:
    kept = [holds_value(output, need.text) for need in case.needs]
    return {"values": fmean(kept), "all values": float(all(kept))}


def trace(case: Case, output: str) -> Measures:
    found = values(case, output)
    return found | {"valid": float(is_conversation(output))} if case.suite.endswith("_json") else found


def needs(case: Case, output: str) -> Measures:
    """A need is met where the letters and digits of any of its slices are in the output."""
    ready = _letters(output)
    met = [
        any(_letters(case.context[start:end]) in ready for start, end in need.spans) for need in case.needs
    ]
    return {"evidence": fmean(met), "all evidence": float(all(met))}


def page(case: Case, output: str) -> Measures:
    """The same for a page: its own tags and references are no letters, and neither are those of the output."""
    ready = _letters(text_of(output))
    met = [_letters(need.text) in ready for need in case.needs]
    return {"evidence": fmean(met), "all evidence": float(all(met))}


def _letters(text: str) -> str:
    return "".join(each for each in text if each.isalnum())


SINGLE = (0.5, 0.25, 0.1)
LONG = (0.25, 0.1, 0.05)
MIDDLE = (0.3, 0.1, 0.05)
MANY = (0.5, 0.3, 0.1)
HOPS = ("answer", "all evidence")
SHARES = ("evidence", "all evidence")
FAMILIES: Mapping[str, Family] = {
    "nq": Family("answer kept, 20 hard documents", ("answer",), (*SINGLE, 0.05), answer, "answer"),
    # A meeting's evidence is many turns, and hardly an output has all of them.
    "qmsum": Family("evidence kept, meetings", ("evidence", "turns"), (0.5, 0.33, 0.2, 0.1), meeting, "evidence", 0.5),
    "xquad": Family("answer kept, ten paragraphs", ("answer",), SINGLE, answer, "answer"),
    "kv": Family("pair kept, JSON", ("pair", "parses"), SINGLE, pair, "pair"),
    "hotpot": Family("two hops, ten documents", HOPS, SINGLE, hops, "all evidence"),
    "wiki2": Family("two to four hops, ten documents", HOPS, SINGLE, hops, "all evidence"),
    "musique": Family("two hops, twenty documents", HOPS, SINGLE, hops, "all evidence"),
    "dialogues": Family(
        "turns with the evidence, long dialogues", ("answer", "turns", "all turns"), LONG, turns, "all turns"
    ),
    "papers": Family("answer kept, long papers", ("answer", "sentence"), LONG, sentence, "answer"),
    "tickets": Family("answer kept, tickets", ("answer", "sentence"), LONG, sentence, "answer"),
    "chats": Family("answer kept, chats", ("answer", "sentence", "valid"), SINGLE, sentence, "answer"),
    "logs": Family(
        "kinds of error line asked for, logs", ("kinds", "all kinds"), (0.3, 0.1, 0.05), kinds, "all kinds"
    ),
    "tau": Family(
        "values of the next tool call, agents' traces", ("values", "all values", "valid"), (0.5, 0.3, 0.15),
        trace, "all values",
    ),
    "agents": Family(
        "values of the next call, a shop's agent", ("values", "all values", "valid"), (0.5, 0.3, 0.15),
        trace, "all values",
    ),
    "coding": Family(
        "the function of the next edit and the failed test, coding agents", ("values", "all values", "valid"),
        (0.5, 0.3, 0.15), trace, "all values",
    ),
    "findings": Family("the result asked for, papers of trials", SHARES, LONG, needs, "all evidence"),
    "code": Family("the function of a docstring, ten files", SHARES, LONG, needs, "all evidence"),
    "tracebacks": Family("the function that failed, ten files", SHARES, LONG, needs, "all evidence"),
    "ci": Family("every cause of a failed build", SHARES, LONG, needs, "all evidence"),
    "webhooks": Family("a member of one of seven deliveries", SHARES, LONG, needs, "all evidence"),
    "tables": Family("a row of one table", SHARES, MANY, needs, "all evidence"),
    "filings": Family("a cell or a row, eight filings", SHARES, MANY, needs, "all evidence"),
    "records": Family("a value of one of sixty orders, in fourteen shapes", SHARES, LONG, needs, "all evidence"),
    "support": Family("the agent's answer, twelve tickets", SHARES, MANY, needs, "all evidence"),
    "policies": Family("a sentence of a privacy policy", SHARES, MIDDLE, needs, "all evidence"),
    "pages": Family("an article's blocks, whole web page", SHARES, (*MANY, 0.03), page, "all evidence"),
    "page": Family("a sentence of a web page", SHARES, LONG, page, "all evidence"),
    "markdown": Family("a sentence, a row or a line of a README", SHARES, LONG, needs, "all evidence"),
    "links": Family("the address of a link of a web page", SHARES, LONG, needs, "all evidence"),
    "languages": Family("answer kept, ten paragraphs in ja, ar, zh", SHARES, MIDDLE, needs, "all evidence"),
}  # fmt: skip


def name_of_family(suite: str) -> str:
    return suite.split("_")[0]


def family_of(suite: str) -> Family:
    """Raises `KeyError` for a suite of no family."""
    return FAMILIES[name_of_family(suite)]
