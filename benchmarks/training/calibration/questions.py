"""Questions that the calibrations of pith are fitted on: ones that no scorer was trained on, of every kind of input."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import Case, Span, seeded
from benchmarks.evaluation.datasets import Passage
from benchmarks.evaluation.metrics import holds_answer
from benchmarks.evaluation.retrieval import HardPassages
from benchmarks.evaluation.suites import catalogue, traces
from benchmarks.evaluation.suites.families import FAMILIES, family_of
from benchmarks.evaluation.suites.logs import cases as logs
from benchmarks.training.calibration.logs import log_cases
from compression.pipeline.compression_model import CompressionResult
from compression.source.units import Slice
from compression.tuning.observing import Question

# Questions of a suite, at most; those of long texts take long.
MOST = {"nq": 240, "xquad": 80, "kv": 40, "hotpot": 100, "wiki2": 110, "musique": 100}
MOST_OF_OTHERS = 80
# Made here in other ways.
OWN_WAY = frozenset({"tau", "logs"})
LOGS, HELD_OUT_LOGS, SHORT = 70, 70, 120
LONG_TRACES, TRACE_MOMENTS = 2_500, 6  # characters before a tool call; calls a trace
# A turn or a line counts as kept where most of its characters are.
MOST_OF_IT = 0.8
Holds = Callable[[CompressionResult], bool]


def cases(folder: Path) -> Iterator[Case]:
    """All questions, suite by suite. Deterministic."""
    makers = catalogue.makers(folder)
    for name, make in makers.items():
        family = name.split("_")[0]
        if name == "qmsum_train" or family in OWN_WAY:
            continue
        # The rankers train on the rest: what they learned from, they score too well.
        own = [case for case in make() if case.is_held_out]
        yield from seeded(f"calibration {name}").sample(own, min(len(own), MOST.get(family, MOST_OF_OTHERS)))
    yield from _traces(folder)
    yield from logs.log_cases("calibration", HELD_OUT_LOGS, held_out=True)
    yield from log_cases(LOGS)
    yield from _short(datasets.read(folder / "nq_open_oracle.jsonl.gz", datasets.passage))


def _traces(folder: Path) -> Iterator[Case]:
    """The last moments of each trace that no ranker was trained on, as JSON and as text."""
    for path in sorted(folder.glob("tau*.jsonl.gz")):
        stem = path.name.removesuffix(".jsonl.gz")
        for number, trace in enumerate(datasets.read(path, traces.trace)):
            if not datasets.is_held_out(f"trace {trace.task}"):
                continue
            for at, moment in enumerate(
                list(traces.moments(trace, longer_than=LONG_TRACES))[-TRACE_MOMENTS:]
            ):
                for suite, is_json in ((f"{stem}_json", True), (f"{stem}_text", False)):
                    name = f"{suite}-{trace.task}-{number}-{at}"
                    yield traces.case_of(moment, trace.task, suite, name, is_json=is_json)


def _short(rows: Sequence[Passage]) -> Iterator[Case]:
    """The passage that answers by itself or beside one or two hard ones: the first thing people try is short."""
    hard = HardPassages(rows)
    held_out = [row for row in rows if datasets.is_held_out(row.question)]
    for number, row in enumerate(seeded("calibration short").sample(held_out, min(SHORT, len(held_out)))):
        passages = [row, *(hard.beside(row, 2)[: number % 3])]
        seeded(f"short {row.question}").shuffle(passages)
        text = "\n\n".join(f"{one.title}\n{one.text}" if number % 2 else one.text for one in passages)
        yield Case("short_nq", f"short_nq-{number}", row.question, text, (), None, row.answers)


def question_of(case: Case | Question) -> Question:
    """A question as it is."""
    if isinstance(case, Question):
        return case
    family = case.suite.split("_")[0]
    # All trials of a task, and all formats of a question, are one group.
    group = f"trace {case.name.split('-')[1]}" if family == "tau" else case.query
    return Question(case.suite, group, case.query, case.context, _holds(case))


def _holds(case: Case) -> Holds:
    """As the quality benchmark judges it; for the suites that only exist here, by what was kept of the needed spans."""
    if case.suite.split("_")[0] in FAMILIES:
        family = family_of(case.suite)
        return lambda result: family.measure(case, result.output)[family.decisive] >= family.enough
    if case.needs:
        return lambda result: all(
            any(share_kept(result.kept, span) >= MOST_OF_IT for span in need.spans) for need in case.needs
        )
    return lambda result: holds_answer(result.output, case.answers)


def share_kept(slices: Sequence[Slice], span: Span) -> float:
    start, end = span
    return sum(max(0, min(end, last) - max(start, first)) for first, last in slices) / max(1, end - start)
