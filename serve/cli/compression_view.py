"""The view of `pith compress` on a terminal: the source with the kept text bold, scores, the receipt and its flags."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from compression.pipeline.compression_model import CompressionResult, Receipt
from serve.cli.output import printable
from serve.compress.service import KeptFields

_LONGEST_SHOWN = 60
_SEVERITY = {"info": "cyan", "warning": "yellow", "critical": "red"}


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
