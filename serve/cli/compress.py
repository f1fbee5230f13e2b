"""`pith compress`: one compression model on one text, without a server, to see what a configuration does."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.completion import compression_models
from serve.config.paths import DEFAULT_CONFIG, ConfigError

if TYPE_CHECKING:
    from compression.pipeline.compression_model import CompressionRequest, CompressionResult
    from serve.compress.service import KeptFields
    from serve.config.compression_models import CompressionModelSettings

_OPTIONS = {
    "query": "--query",
    "compression.target_ratio": "--ratio",
    "compression.keep": "--keep",
    "input": "FILE",
}


def compress_file(
    file: Annotated[str, typer.Argument(help="Text to compress; - reads it from standard input.")],
    query: Annotated[str, typer.Option(help="What the text is to answer.")] = "",
    ratio: Annotated[
        float | None, typer.Option(help="Maximum share of tokens to keep (0 to 1); default: the model's.")
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option(help="Keep the evidence with this probability (such as 0.95), instead of a ratio."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Compression model; default: the first.", autocompletion=compression_models),
    ] = None,
    config: Annotated[Path, typer.Option(help="Configuration file.")] = DEFAULT_CONFIG,
    explain: Annotated[bool, typer.Option(help="Print how each unit scored.")] = False,
    by_relevance: Annotated[bool, typer.Option(help="The best parts first, not the source's order.")] = False,
    mark_gaps: Annotated[bool, typer.Option(help="Put […] where something was left out.")] = False,
    spans: Annotated[bool, typer.Option(help="Print the position of each kept part.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compress a text with one model, here, and show what was kept of it.

    On a terminal the source is shown with what was kept of it. Into a pipe or a file goes the compressed text alone,
    byte for byte; everything else goes to standard error.
    """
    from rich.console import Console

    from compression.pipeline.compression_model import CompressionRequest
    from serve.cli.compression_view import report, show, span_table
    from serve.config.settings import load_anchored

    chosen = model_of(load_anchored(config).compression.models, model, config)
    source = read_text(file)
    wanted = chosen.ratio.default if ratio is None and keep is None else ratio
    request = CompressionRequest(query, source, wanted, not by_relevance, explain, keep, mark_gaps)
    result = run(chosen, request)
    if as_json:
        shown = document(chosen.id, result)
        if spans:
            shown["kept"] = spans_of(source, result)
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        return
    console = Console(stderr=not sys.stdout.isatty(), soft_wrap=True)
    if sys.stdout.isatty():
        show(console, source, result)
    else:
        write_text(result.output)
        if not result.output.endswith("\n"):
            # On standard error, so that the two are apart where both go to one place.
            console.print()
        report(console, source, result)
    if spans:
        console.print(span_table(spans_of(source, result)))


def write_text(output: str) -> None:
    """Byte for byte: no line end is added or changed."""
    sys.stdout.buffer.write(output.encode("utf-8"))
    # Here, so that a reader who has gone is noticed where the command can end quietly.
    sys.stdout.buffer.flush()


def model_of(
    models: list[CompressionModelSettings], model_id: str | None, config: Path
) -> CompressionModelSettings:
    """The model of that id, or the first. Raises `ConfigError`."""
    if not models:
        raise ConfigError(f"{config}: compression.models: must list at least one model")
    if model_id is None:
        return models[0]
    found = next((model for model in models if model.id == model_id), None)
    if found is None:
        raise ConfigError(
            f"--model: {config} has no compression model {model_id!r}; it has "
            f"{', '.join(model.id for model in models)}"
        )
    return found


def read_text(file: str) -> str:
    """UTF-8, with its line ends as they are. Raises `ConfigError`."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        name = "standard input" if file == "-" else file
        raise ConfigError(f"{name}: is not UTF-8 at byte {error.start}") from error


def run(model: CompressionModelSettings, request: CompressionRequest) -> CompressionResult:
    """Build the model, ask it once, and close it. Raises `ConfigError` for what the caller can put right."""
    from compression.build import build_model
    from compression.pipeline.errors import (
        CompressionError,
        CompressorFailed,
        CompressorOverloaded,
        CompressorUnavailable,
    )
    from serve.config.compression_models import spec_of

    async def once() -> CompressionResult:
        built = build_model(spec_of(model))
        try:
            return await built.compress(request)
        finally:
            await built.close()

    try:
        return asyncio.run(once())
    except CompressionError as error:
        said = error.message.replace("target_ratio", "--ratio")
        raise ConfigError(f"{option_of(error.field)}: {said}") from error
    except (CompressorOverloaded, CompressorUnavailable, CompressorFailed) as error:
        raise ConfigError(f"{model.id}: {error}") from error
    except (ValueError, FileNotFoundError, RuntimeError) as error:
        # What went wrong with a checkpoint, a tokenizer or weights, in one sentence.
        raise ConfigError(f"{model.id}: {' '.join(str(error).split())}") from error


def option_of(field: str) -> str:
    """The command line's name of a field of a request."""
    return _OPTIONS.get(field, field)


def document(model_id: str, result: CompressionResult) -> dict[str, Any]:
    """The response's shape, and what was kept and how units scored, by offsets into the source."""
    from serve.compressors.compressor import receipt_fields

    shown: dict[str, Any] = {
        "model": model_id,
        "output": result.output,
        "receipt": receipt_fields(result.receipt),
        "kept": [[start, end] for start, end in result.kept],
    }
    if result.unit_scores:
        shown["unit_scores"] = [asdict(unit) for unit in result.unit_scores]
    return shown


def spans_of(source: str, result: CompressionResult) -> KeptFields:
    """The contract's `kept`: of chat messages by message and part, of any other text by characters and bytes."""
    from serve.compress.service import kept_fields, kept_of_messages

    try:
        return kept_of_messages(source, result.kept)
    except ValueError:
        return kept_fields(source, result.kept)
