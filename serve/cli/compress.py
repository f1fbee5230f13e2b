"""`pith compress`: one compression model on one text, without a server, to see what a configuration does."""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from compression.pipeline.errors import (
    CompressionError,
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
)
from compression.pipeline.receipt import Receipt
from compression.pipeline.request import CompressionRequest, CompressionResult
from serve.compress.kept import KeptFields, kept_fields, kept_of_messages
from serve.compress.receipt_json import receipt_fields
from serve.config.compression_models import CompressionModelSettings, spec_of
from serve.config.settings import DEFAULT_CONFIG, ConfigError, load_anchored

_LONGEST_SHOWN = 60
_OPTIONS = {
    "query": "--query",
    "compression.target_ratio": "--ratio",
    "compression.keep": "--keep",
    "input": "FILE",
}
_SEVERITY = {"info": "cyan", "warning": "yellow", "critical": "red"}


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
    model: Annotated[str | None, typer.Option(help="Compression model; default: the first.")] = None,
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
    """What the command line calls a field of a request."""
    return _OPTIONS.get(field, field)


def document(model_id: str, result: CompressionResult) -> dict[str, Any]:
    """The response's shape, and what was kept and how units scored, by offsets into the source."""
    shown: dict[str, Any] = {
        "model": model_id,
        "output": result.output,
        "receipt": receipt_fields(result.receipt),
        "kept": [[start, end] for start, end in result.kept],
    }
    if result.unit_scores:
        shown["unit_scores"] = [asdict(unit) for unit in result.unit_scores]
    return shown


def show(console: Console, source: str, result: CompressionResult) -> None:
    """The source with the kept text bold and the rest dim, and the report."""
    console.print(highlighted(source, result), end="\n" if source.endswith("\n") else "\n\n")
    report(console, source, result)


def report(console: Console, source: str, result: CompressionResult) -> None:
    """Unit scores where they were asked for, the receipt and its flags."""
    if result.unit_scores:
        console.print(score_table(source, result))
    receipt = result.receipt
    console.print(
        Text(
            f"{receipt.output_tokens} of {receipt.original_tokens} tokens ({receipt.tokenizer}), "
            f"ratio {receipt.compression_ratio:.3f} for {_asked(receipt)}, "
            f"{receipt.tokens_saved} saved, {receipt.latency_ms:.0f} ms"
        )
    )
    if receipt.evidence_kept_probability is not None and receipt.calibration is not None:
        console.print(
            Text(
                f"evidence kept with a probability of {receipt.evidence_kept_probability:.2f} "
                f"(calibration {receipt.calibration.name})"
            )
        )
    for flag in receipt.risk_flags:
        console.print(flag_line(flag.code, flag.severity, flag.count, [one.text for one in flag.examples]))


def _asked(receipt: Receipt) -> str:
    if receipt.target_ratio is not None:
        return f"a target of {receipt.target_ratio:g}"
    estimated = (
        "" if receipt.estimated_ratio is None else f" (estimated to need {receipt.estimated_ratio:.3f})"
    )
    return f"evidence kept with {receipt.keep:g}{estimated}"


def highlighted(source: str, result: CompressionResult) -> Text:
    text = Text(printable(source), style="dim")
    for start, end in result.kept:
        text.stylize("not dim bold", start, end)
    return text


def printable(source: str) -> str:
    """The same length, without the control characters that a terminal would obey."""
    spaced = source.replace("\r", " ")
    return "".join(char if char in "\n\t" or char.isprintable() else "\N{MIDDLE DOT}" for char in spaced)


def spans_of(source: str, result: CompressionResult) -> KeptFields:
    """The contract's `kept`: of chat messages by message and part, of any other text by characters and bytes."""
    try:
        return kept_of_messages(source, result.kept)
    except ValueError:
        return kept_fields(source, result.kept)


def span_table(spans: KeptFields) -> Table:
    """The position of each kept part; characters are code points, of a message's text or of the whole."""
    is_chat = bool(spans) and "message" in spans[0]
    table = Table(*(("message", "part", "characters") if is_chat else ("characters", "bytes")), box=None)
    for span in spans:
        place = f"{span['start']}-{span['end']}"
        if is_chat:
            parts = [str(step) for step in (span["part"], span["inner"]) if step is not None]
            table.add_row(str(span["message"]), ".".join(parts), place)
        else:
            table.add_row(place, f"{span['bytes']['start']}-{span['bytes']['end']}")
    return table


def score_table(source: str, result: CompressionResult) -> Table:
    table = Table("kept", "score", "kind", "unit", box=None)
    for unit in result.unit_scores:
        shown = Text(_cut(source[unit.start : unit.end]))
        style = "bold" if unit.kept else "dim"
        table.add_row("yes" if unit.kept else "", f"{unit.score:.3f}", unit.kind, shown, style=style)
    return table


def _cut(text: str) -> str:
    """One short line of it."""
    shown = " ".join(printable(text[: _LONGEST_SHOWN * 8]).split())
    return shown if len(shown) <= _LONGEST_SHOWN else shown[: _LONGEST_SHOWN - 1] + "…"


def flag_line(code: str, severity: str, count: int, examples: list[str]) -> Text:
    line = Text.assemble((f"{severity} {code}", _SEVERITY[severity]), f" x{count}")
    shown = [" ".join(printable(example).split()) for example in examples]
    return line.append(": " + " | ".join(shown)) if shown else line
