"""Targets: a customer's proof file and signed notes, changed in any way, before the verifier."""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from billing.transparency import notes, verify
from billing.transparency.notes import BadNote
from tests.billing.transparency import tampering
from tests.fuzzing.choices import Choices, changed, edited

CASES = 3
SEEN = 9
ODD: tuple[Any, ...] = (
    None,
    [],
    {},
    "",
    "2026-11",
    "ws_b",
    0,
    -1,
    0.5,
    True,
    2**64,
    "\ud800",
    "A" * 44,
    [[]],
    [{}],
)
KINDS = tuple(tampering.KINDS)


@cache
def case(number: int) -> tampering.Case:
    return tampering.case(random.Random(number))


@cache
def file(number: int) -> tuple[dict[str, Any], Any]:
    """A faultless file, and what it means."""
    found = case(number).file(from_size=SEEN)
    proof = verify.Proof(found, case(number).key)
    assert proof.findings == []
    return found, meaning(proof)


def meaning(proof: verify.Proof) -> Any:
    """What its reader goes by: whose it is, of which log, and what was charged for what."""
    rows = sorted(
        (leaf.id, leaf.is_event, leaf.month, json.dumps(leaf.row, sort_keys=True)) for leaf in proof.leaves
    )
    figures = proof.charged, proof.adjusted, len(proof.logged), len(proof.pending)
    return proof.scope, proof.key, proof.size, proof.root, rows, figures


@contextmanager
def proof() -> Iterator[Callable[[bytes], None]]:
    """A changed file is refused with a finding, or says exactly what the true one says; the command never fails."""
    with tempfile.TemporaryDirectory(prefix="pith-fuzzing-") as folder:
        path = Path(folder) / "proof.json"
        yield lambda data: judged(Choices(data), path)


def judged(choices: Choices, path: Path) -> None:
    number, how = choices.randrange(CASES), choices.randrange(8)
    if how == 0:
        checks, tamper = tampering.KINDS[choices.choice(KINDS)]
        findings = tamper(replace(case(number), rng=choices)).findings()
        assert findings & checks, findings
    elif how == 1:
        old = edited_often(case(number).log.checkpoint(SEEN), choices)
        found = verify.Proof(file(number)[0], case(number).key)
        found.attempt(found.check_history, old, None)
    elif how < 4:
        text = edited_often(json.dumps(file(number)[0]), choices)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        commanded(path, case(number).key, file(number)[1])
    else:
        given = changed(file(number)[0], choices, ODD)
        found = verify.Proof(given, case(number).key)
        assert found.findings or meaning(found) == file(number)[1], given
        if not found.findings:
            found.summary()


def edited_often(text: str, choices: Choices) -> str:
    for _ in range(8):
        if choices.are_left:
            text = edited(text, choices)
    return text


def commanded(path: Path, key: str, due: Any) -> None:
    """What `verify.py` says and its exit code agree."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = verify.main([str(path), "--key", key])
    assert code == 1 or said.getvalue().startswith("proven: "), said.getvalue()
    if code == 0:
        found = verify.Proof(json.loads(path.read_text(encoding="utf-8")), key)
        assert meaning(found) == due


def note(data: bytes) -> None:
    """A note is refused by name, or has the text that was signed; both readers of notes agree; keys likewise."""
    choices = Choices(data)
    log = case(choices.randrange(CASES)).log
    true = log.checkpoint(SEEN)
    changed_note = (
        edited_often(true, choices) if choices.random() < 0.7 else choices.rest().decode("utf-8", "replace")
    )
    ours = attempted(lambda: notes.opened(changed_note, log.signer.verifier))
    key = verify.key_of(str(log.signer.verifier), verify.ED25519)
    theirs = attempted(lambda: verify.opened(changed_note, key, "checkpoint")[0])
    text = true.rpartition("\n\n")[0] + "\n"
    assert {ours, theirs} <= {None, text}, changed_note
    # The verifier alone reads base64 that has something else in it.
    assert ours is None or theirs == ours
    attempted(lambda: notes.checkpoint(changed_note))
    key_text = edited_often(str(log.signer.verifier), choices)
    found = attempted(lambda: notes.verifier(key_text))
    assert found in (None, log.signer.verifier)
    attempted(lambda: verify.key_of(key_text, verify.ED25519))


def attempted(read: Callable[[], Any]) -> Any:
    """None where it is refused as its readers expect."""
    try:
        return read()
    except (BadNote, verify.Wrong, *verify.MALFORMED):
        return None
