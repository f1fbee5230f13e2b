"""`python -m tests.fuzzing TARGET`: inputs without end, guided by the code that they reach, by atheris (libFuzzer).

It is no dependency of pith's tests: `pip install atheris` into an environment that has them. What reached something new
is added to the target's corpus, as far as no shorter input reaches the same; an input that fails is printed, and is to
be added to the corpus by hand once its cause is mended. `make test` replays the corpora.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

KEPT_BYTES = 24_000
HANGS_AFTER_S = 60
# Whose coverage guides the fuzzer.
WATCHED = ["compression", "serve", "models", "billing", "python_multipart", "tests.fuzzing"]


def main(
    target: Annotated[str, typer.Argument(help="One of those in tests/fuzzing/targets.py, or all.")],
    minutes: Annotated[float, typer.Option(help="Of each target.")] = 60,
    seed: Annotated[int, typer.Option(help="Of the mutations.")] = 1,
    keep: Annotated[bool, typer.Option(help="Write what is new into the corpus.")] = False,
) -> None:
    """Fuzz, and end with exit code 1 where an input fails."""
    from tests.fuzzing.targets import TARGETS

    names = list(TARGETS) if target == "all" else [target]
    if unknown := set(names) - set(TARGETS):
        raise typer.BadParameter(f"no target {unknown.pop()!r}; there are {', '.join(TARGETS)}")
    failed = [name for name in names if not _fuzzed(name, minutes, seed, keep=keep)]
    if failed:
        raise typer.Exit(1)


def _fuzzed(name: str, minutes: float, seed: int, *, keep: bool) -> bool:
    """Runs libFuzzer in processes of its own, since it ends the one that it is in."""
    from tests.fuzzing.targets import LONGEST, TARGETS, read_corpus, write_corpus

    with tempfile.TemporaryDirectory(prefix="pith-fuzzing-") as folder:
        found, least, words = (Path(folder) / part for part in ("found", "least", "words"))
        found.mkdir()
        least.mkdir()
        for number, data in enumerate(read_corpus(name)):
            (found / f"{number:06}").write_bytes(data)
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in TARGETS[name].words))
        options = [f"-dict={words}", f"-max_len={LONGEST}", f"-timeout={HANGS_AFTER_S}", "-rss_limit_mb=4096"]
        run = [*options, f"-max_total_time={round(60 * minutes)}", f"-seed={seed}", "-print_final_stats=1"]
        succeeded = _libfuzzer(name, [*run, f"-artifact_prefix={folder}/", str(found)])
        for artifact in (path for path in Path(folder).iterdir() if path.is_file() and path != words):
            print(f"{name}: {artifact.name}: {artifact.read_bytes()!r}")
        if keep and succeeded:
            _libfuzzer(name, ["-set_cover_merge=1", str(least), str(found)])
            write_corpus(name, _smallest(path.read_bytes() for path in least.iterdir()))
        return succeeded


def _smallest(inputs: object) -> list[bytes]:
    kept, size = [], 0
    for data in sorted(inputs, key=len):  # type: ignore[call-overload]
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
        typer.run(main)
