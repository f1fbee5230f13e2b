"""`pith recount`: whether the tokens that a reply was charged for are those of its request and of its text."""

import json
from pathlib import Path
from typing import Annotated

import typer

MARKS = {True: "ok", False: "WRONG", None: "unknown"}
AFile = Annotated[Path, typer.Argument(exists=True, dir_okay=False)]


def recount(
    request: AFile,
    reply: AFile,
    tokenizer: Annotated[
        Path,
        typer.Option(exists=True, help="tokenizer.json, or the folder with it and the chat template."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count a chat's tokens again, without the server: REQUEST is the body that was sent, with `include:
    ["token_ids"]`, and REPLY what came, in one piece or as a stream. Ends with 1 where something is wrong."""
    from models.recounting import Vocabulary, read_reply, recounted

    try:
        asked = json.loads(request.read_text("utf-8"))
        findings = recounted(asked, read_reply(reply.read_text("utf-8")), Vocabulary(tokenizer))
    except KeyError as error:
        raise SystemExit(f'pith: the reply has no {error}: ask for include: ["token_ids"]') from error
    except (OSError, ValueError, TypeError) as error:
        raise SystemExit(f"pith: cannot be recounted: {error}") from error
    if as_json:
        typer.echo(json.dumps([{"what": one.what, "fits": one.fits, "said": one.said} for one in findings]))
    else:
        for one in findings:
            typer.echo(f"{MARKS[one.fits]:8}{one.what}: {one.said}")
    raise typer.Exit(any(one.fits is False for one in findings))
