"""`python -m tests.fuzzing`: inputs, courses of accounts and cut connections, as many as one likes.

`inputs` are guided by the code that they reach, by atheris (libFuzzer), which is no dependency of pith's tests:
`pip install atheris` into an environment that has them. With `--keep`, what reached something new is added to the
target's corpus, the shortest first. An input that fails is printed, and is to be added to the
corpus by hand once its cause is mended. `make test` replays the corpora.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

KEPT_BYTES = 22_000
HANGS_AFTER_S = 60
# Whose coverage guides the fuzzer.
WATCHED = ["compression", "serve", "models", "billing", "python_multipart", "tests.fuzzing"]


app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def inputs(
    target: Annotated[str, typer.Argument(help="One of those in tests/fuzzing/targets.py, or all.")],
    minutes: Annotated[float, typer.Option(help="Of each target.")] = 60,
    seed: Annotated[int, typer.Option(help="Of the mutations.")] = 1,
    keep: Annotated[bool, typer.Option(help="Write what is new into the corpus.")] = False,
) -> None:
    """Mutate inputs of a target; exit code 1 where one fails."""
    from tests.fuzzing.targets import TARGETS

    names = list(TARGETS) if target == "all" else [target]
    if unknown := set(names) - set(TARGETS):
        raise typer.BadParameter(f"no target {unknown.pop()!r}; there are {', '.join(TARGETS)}")
    failed = [name for name in names if not _fuzzed(name, minutes, seed, keep=keep)]
    if failed:
        raise typer.Exit(1)


@app.command()
def accounts(
    courses: Annotated[int, typer.Option(help="Each begins with a workspace of its own.")] = 400,
    steps: Annotated[int, typer.Option(help="The most of each.")] = 60,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 1,
) -> None:
    """Make, change, use and end accounts in any order; the failing course is printed, as short as it can be."""
    from tests.fuzzing.accounts import both_apis, run_machine

    with tempfile.TemporaryDirectory(prefix="pith-fuzzing-") as folder, both_apis(Path(folder)) as apis:
        asked = run_machine(apis, courses=courses, steps=steps, seed=seed)
    print(f"{courses} courses, {asked:,} requests: nothing found")


@app.command()
def resets(
    cuts: Annotated[int, typer.Option(help="Connections that end at a random byte.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of where, and of what.")] = 1,
) -> None:
    """Cut connections; exit code 1 where something is left behind."""
    from tests.fuzzing.resets import run

    found = asyncio.run(run(cuts, seed))
    print(
        f"{found.sent.total()} requests and {found.received.total()} replies were cut, {found.served} others served"
    )
    for name in sorted(found.sent | found.received):
        print(f"  {found.sent[name]:>6} {found.received[name]:>6}  {name}")
    print(*found.troubles[:20], sep="\n")
    if found.troubles:
        raise typer.Exit(1)


def _fuzzed(name: str, minutes: float, seed: int, *, keep: bool) -> bool:
    """Runs libFuzzer in processes of its own, since it ends the one that it is in."""
    from tests.fuzzing.targets import LONGEST, TARGETS, read_corpus, write_corpus

    with tempfile.TemporaryDirectory(prefix="pith-fuzzing-") as folder:
        found, words = Path(folder) / "found", Path(folder) / "words"
        found.mkdir()
        for number, data in enumerate(read_corpus(name)):
            (found / f"{number:06}").write_bytes(data)
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in TARGETS[name].words))
        options = [f"-max_len={LONGEST}", f"-timeout={HANGS_AFTER_S}", "-rss_limit_mb=4096"]
        # An empty file of words is refused.
        options += ["-len_control=0", *([f"-dict={words}"] if TARGETS[name].words else [])]
        run = [*options, f"-max_total_time={round(60 * minutes)}", f"-seed={seed}", "-print_final_stats=1"]
        succeeded = _libfuzzer(name, [*run, f"-artifact_prefix={folder}/", str(found)])
        for artifact in (path for path in Path(folder).iterdir() if path.is_file() and path != words):
            print(f"{name}: {artifact.name}: {artifact.read_bytes()!r}")
        if keep and succeeded:
            write_corpus(name, _grown(read_corpus(name), [path.read_bytes() for path in found.iterdir()]))
        return succeeded


def _grown(known: list[bytes], new: list[bytes]) -> list[bytes]:
    """What was known, and of the new inputs the shortest, as far as there is room."""
    kept, size = list(known), sum(len(repr(data)) for data in known)
    for data in sorted(set(new) - set(known), key=len):
        size += len(repr(data))
        if size <= KEPT_BYTES:
            kept.append(data)
    return kept


def _escaped(word: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word.encode())


def _libfuzzer(name: str, options: list[str]) -> bool:
    command = [sys.executable, "-m", "tests.fuzzing", "--inside", name, *options]
    return (
        subprocess.run(command, env={**os.environ, "PYTHONWARNINGS": "ignore"}, check=False).returncode == 0
    )


def _inside(name: str, options: list[str]) -> None:
    """The process that fuzzes: what is watched has to be imported under atheris's eyes."""
    import atheris

    from tests.fuzzing.targets import TARGETS

    with ExitStack() as until:
        with atheris.instrument_imports(include=WATCHED):
            judge = until.enter_context(TARGETS[name].opened())
        atheris.Setup([sys.argv[0], *options], judge)
        atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        _inside(sys.argv[2], sys.argv[3:])
    else:
        app()
