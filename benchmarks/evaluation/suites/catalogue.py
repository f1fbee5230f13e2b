"""Every suite that a data folder has files for, built the same way on every machine."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import Case
from benchmarks.evaluation.datasets import Passage
from benchmarks.evaluation.suites import (
    coding,
    dialogues,
    findings,
    hops,
    made,
    pages,
    plain,
    readmes,
    records,
    third,
    traces,
)
from benchmarks.evaluation.suites.ci_logs import ci_cases
from benchmarks.evaluation.suites.logs import log_cases

LOGS = 64
Maker = Callable[[], Iterator[Case]]


def makers(folder: Path) -> dict[str, Maker]:
    """Every suite that the folder has files for, and what makes its cases."""
    found: dict[str, Maker] = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        found |= _makers_of(path, path.name.removesuffix(".jsonl.gz"))
    found |= third.makers(folder)
    if not found:
        return found
    # Of documentation that the machine has, and made up.
    own: dict[str, Maker] = {
        "pages": pages.page_cases,
        "page_facts": pages.fact_cases,
        "links_pages": pages.link_cases,
        "markdown_readmes": readmes.cases,
        "findings": lambda: findings.cases("findings"),
    }
    return found | _logs() | _coding() | own | records.suites()


def _coding() -> dict[str, Maker]:
    """Histories made of installed packages' files; none where none of them is installed."""
    return {"coding_json": lambda: coding.cases("coding_json")} if coding.is_there() else {}


def _logs() -> dict[str, Maker]:
    """Logs need no file, they are generated: in the formats to train on, and in the held-out ones."""
    return {
        "logs": lambda: log_cases("suite", LOGS, held_out=False),
        "ci_logs": ci_cases,
        "logs_held_out": lambda: log_cases("suite", LOGS, held_out=True),
    }


def _makers_of(path: Path, stem: str) -> dict[str, Maker]:
    def trace_cases(suite: str, *, is_json: bool) -> Iterator[Case]:
        return traces.cases(datasets.read(path, traces.trace), suite, is_json=is_json)

    family = stem.split("_")[0]
    if family == "nq":
        return _from_passages(path)
    if family == "qmsum":
        is_aside = stem != "qmsum_train"
        return {
            stem: lambda: plain.meeting_cases(
                datasets.read(path, datasets.meeting), stem, is_held_out=is_aside
            )
        }
    if family == "xquad":
        return {stem: lambda: plain.paragraph_cases(datasets.read(path, datasets.paragraph), stem)}
    if family == "kv":
        return {stem: lambda: plain.record_cases(datasets.read(path, datasets.records), stem)}
    if family in ("hotpot", "wiki2", "musique"):
        parse = hops.answer_row if family == "musique" else hops.sentence_row
        return {
            stem: lambda: hops.cases(datasets.read(path, parse), stem, has_titles=True),
            f"{stem}_bare": lambda: hops.cases(datasets.read(path, parse), f"{stem}_bare", has_titles=False),
            **_dialogues_of(path, stem),
        }
    if family == "tau":
        return {
            f"{stem}_json": lambda: trace_cases(f"{stem}_json", is_json=True),
            f"{stem}_text": lambda: trace_cases(f"{stem}_text", is_json=False),
        }
    return {}


def _from_passages(path: Path) -> dict[str, Maker]:
    def rows() -> list[Passage]:
        return datasets.read(path, datasets.passage)

    return {
        "nq": lambda: plain.passage_cases(rows()),
        "dialogues_nq": lambda: dialogues.passage_cases(rows(), "dialogues_nq"),
        "papers_nq": lambda: made.paper_cases(rows(), "papers_nq"),
        "tickets_nq": lambda: made.ticket_cases(rows(), "tickets_nq"),
        "chats_nq_json": lambda: made.chat_cases(rows(), "chats_nq_json"),
    }


def _dialogues_of(path: Path, stem: str) -> dict[str, Maker]:
    """None for MuSiQue, whose needs are answers and not sentences, so no turn can be made of them."""
    if stem.startswith("musique"):
        return {}
    name = f"dialogues_{stem}"
    return {name: lambda: dialogues.hop_cases(datasets.read(path, hops.sentence_row), name)}


def load(folder: Path, suites: Sequence[str] | None = None) -> dict[str, list[Case]]:
    """The suites named, or every one that the folder has files for. Raises `FileNotFoundError` where it has
    none, and `KeyError` for a suite that it does not have."""
    found = makers(folder)
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no nq*, qmsum*, xquad*, kv*, hotpot*, wiki2*, musique* or tau* file ending in .jsonl.gz"
        )
    return {name: list(found[name]()) for name in suites or found}
