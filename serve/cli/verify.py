"""`pith verify`: `billing/transparency/verify.py`, which also runs alone, as a command of pith's."""

from pathlib import Path
from typing import Annotated

import typer


def verify(
    file: Annotated[
        Path, typer.Argument(help="Proof file, of pith statement --proof or GET /v1/usage/proof.")
    ],
    key: Annotated[str | None, typer.Option(help="The log's key, from elsewhere than the file.")] = None,
    receipts: Annotated[
        Path | None, typer.Option(help="Folder of replies that were kept: each promise must be a leaf.")
    ] = None,
    all_receipts: Annotated[
        bool, typer.Option("--all-receipts", help="All replies are there: an event without one is wrong.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A checkpoint or a proof file of before, which the log must go on from."),
    ] = None,
    witness: Annotated[str | None, typer.Option(help="Key of who must have cosigned the checkpoint.")] = None,
) -> None:
    """Check a statement's proof with nothing of the server's: exit code 1 where something is wrong."""
    from billing.transparency.verify import main

    named = {"--key": key, "--receipts": receipts, "--checkpoint": checkpoint, "--witness": witness}
    options = [part for name, value in named.items() if value is not None for part in (name, str(value))]
    raise typer.Exit(main([*options, *(["--all-receipts"] if all_receipts else []), "--", str(file)]))
