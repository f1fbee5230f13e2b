"""A payment system that fails in every way, and writes down what it was asked to collect."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HOOK_S = 2.0
_SCRIPT = """#!/bin/sh
read -r request
echo "$request" >> "$1"
case $(( $$ % 6 )) in
    0) echo 'the payment system is down' >&2; exit 3;;
    1) echo '{"state": "succeeded"}';;
    2) echo '{"state": "open", "reference": "r"}';;
    3) echo '{"state": "failed"}';;
    *) echo '{"state": "paid"}';;
esac
"""


def write_hook(folder: Path) -> list[str]:
    """The command of a configuration's `collection_hook`."""
    script = folder / "hook"
    script.write_text(_SCRIPT)
    return ["/bin/sh", str(script), str(_log(folder))]


def hook_troubles(
    folder: Path, collections: Sequence[Mapping[str, Any]], workspaces: Sequence[str]
) -> list[str]:
    """What the payment system was asked for and the ledger has not: another sum, or a collection that is none.

    On a ledger that outlives the run, it was asked for what earlier runs left as well.
    """
    if not _log(folder).exists():
        return []
    asked: dict[str, set[int]] = defaultdict(set)
    for line in _log(folder).read_text().splitlines():
        request = json.loads(line)
        if request["workspace_id"] not in workspaces:
            continue
        asked[request["idempotency_key"]].add(request["cents"])
    known = {row["idempotency_key"]: {row["cents"]} for row in collections}
    return [
        f"the hook was asked to collect {cents} cents as {key}, and the ledger has {known.get(key)}"
        for key, cents in sorted(asked.items())
        if known.get(key) != cents
    ]


def _log(folder: Path) -> Path:
    return folder / "hook.log"
