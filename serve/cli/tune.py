"""`pith tune`: how a compression model does on your own data, and what to write into the configuration."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.completion import compression_models
from serve.cli.compress import model_of
from serve.cli.options import Json
from serve.config.paths import DEFAULT_CONFIG, ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from compression.tuning.advice import Advice
    from compression.tuning.row import Row
    from serve.config.compression_models import CompressionModelSettings

_SHOWN_BAD_ROWS = 50
_FIRST: tuple[None] = (None,)


def tune(
    data: Annotated[Path, typer.Argument(help="JSON lines: query, input or messages, evidence or answers.")],
    config: Annotated[Path, typer.Option(help="Configuration file.")] = DEFAULT_CONFIG,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Compression model; default: the first. Repeatable.", autocompletion=compression_models
        ),
    ] = None,
    keep: Annotated[float, typer.Option(help="Share of the questions whose evidence is to survive.")] = 0.95,
    out: Annotated[Path, typer.Option(help="Folder for the plot, the calibrations and the report.")] = Path(
        "var/tune"
    ),
    rows: Annotated[int | None, typer.Option(help="Use the first rows only.")] = None,
    skip_bad: Annotated[bool, typer.Option(help="Go on without the rows that are wrong.")] = False,
    workers: Annotated[int | None, typer.Option(help="Processes; default: one per core, at most 4.")] = None,
    as_json: Json = False,
) -> None:
    """Measure models on your own questions, recommend a ratio or a promise, and fit its calibration."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from serve.config.settings import load_anchored

    if not 0 < keep < 1:
        raise ConfigError(f"--keep: must be greater than 0 and less than 1, not {keep:g}")
    settings = load_anchored(config).compression.models
    models = [model_of(settings, name, config) for name in model or _FIRST]
    known = good_rows(data, skip_bad=skip_bad)[:rows]
    console = Console(stderr=True)
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*bar, console=console) as progress:
        processes = workers or min(4, os.cpu_count() or 1)
        advices = [advice_of(chosen, known, keep, processes, progress) for chosen in models]
    publish(advices, keep, out, as_json)


def good_rows(data: Path, *, skip_bad: bool) -> list[Row]:
    """Raises `ConfigError` with a line for each row that is wrong, unless they are to be skipped."""
    from compression.tuning.row import read_rows

    try:
        text = data.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"{data}: cannot be read: {reason}") from error
    rows, bad = read_rows(text.split("\n"))
    said = [f"{data}: line {one.line}: {one.reason}" for one in bad[:_SHOWN_BAD_ROWS]]
    if len(bad) > _SHOWN_BAD_ROWS:
        said.append(f"{data}: and {len(bad) - _SHOWN_BAD_ROWS} more")
    if bad and not skip_bad:
        said.append(f"{len(bad)} of {len(rows) + len(bad)} rows are wrong; --skip-bad goes on without them")
        raise ConfigError("\n".join(said))
    for line in said:
        typer.echo(f"skipped {line}", err=True)
    if not rows:
        raise ConfigError(f"{data}: has no rows")
    return rows


def advice_of(
    model: CompressionModelSettings, rows: Sequence[Row], keep: float, workers: int, progress: Progress
) -> Advice:
    """Raises `ConfigError` for a model that cannot be built, and a row that it does not take."""
    from compression.tuning.advice import advise
    from compression.tuning.observing import CannotObserve, observe_all
    from compression.tuning.row import question_of
    from serve.config.compression_models import spec_of

    task = progress.add_task(f"{model.id}: compressing", total=len(rows))
    found = []
    try:
        for one in observe_all(spec_of(model), rows, question_of, min(workers, len(rows))):
            found.append(one)
            progress.advance(task)
    except CannotObserve as error:
        raise ConfigError(f"{model.id}: {' '.join(str(error).split())}") from error
    return advise(model.id, model.kind, found, keep, progress)


def publish(advices: Sequence[Advice], keep: float, out: Path, as_json: bool) -> None:
    """Write plot, calibrations and report, and print the report: as JSON, or tables and what to paste."""
    from compression.tuning.advice import chart, takeaway
    from compression.tuning.artefact import write

    out.mkdir(parents=True, exist_ok=True)
    curves = {one.model: one.points for one in advices}
    (out / "curves.svg").write_text(chart(curves, takeaway(curves, keep)))
    written: dict[str, Path] = {}
    for advice in advices:
        if advice.entry is not None:
            written[advice.model] = (out / f"calibration-{_safe(advice.model)}.json").absolute()
            write(written[advice.model], {advice.kind: advice.entry})
    found = json.dumps(document(advices, keep, written), ensure_ascii=False, indent=2)
    (out / "report.json").write_text(found + "\n", encoding="utf-8")
    text = report(advices, keep, written) + f"plot: {out / 'curves.svg'}\n"
    (out / "report.txt").write_text(text, encoding="utf-8")
    typer.echo(found if as_json else f"{text}report: {out / 'report.txt'}, {out / 'report.json'}")


def document(advices: Sequence[Advice], keep: float, written: Mapping[str, Path]) -> dict[str, Any]:
    """All that was found, with the paths of the calibrations that were written."""
    models = []
    for advice in advices:
        found = asdict(advice) | {"calibration": str(written.get(advice.model, "")) or None}
        del found["entry"]
        models.append(found)
    return {"keep": keep, "models": models}


def report(advices: Sequence[Advice], keep: float, written: Mapping[str, Path]) -> str:
    """Curves, advice and what to paste for each model; of several, how they compare first."""
    from rich.console import Console

    text = StringIO()
    console = Console(file=text, soft_wrap=True, highlight=False, markup=False)
    if len(advices) > 1:
        console.print(comparison(advices, keep))
        console.print()
    for advice in advices:
        console.print(curve_table(advice))
        for line in summary(advice, keep):
            console.print(line)
        lines = pasted(advice, written.get(advice.model))
        console.print(f"\n# {advice.model}: paste under its entry of compression.models\n{lines}")
    return text.getvalue()


def comparison(advices: Sequence[Advice], keep: float) -> Table:
    """Each model at the smallest ratio that keeps enough."""
    from rich.table import Table

    table = Table("model", "smallest ratio", "kept", "median ms", box=None, title=f"{100 * keep:g}% kept")
    for advice in advices:
        best = advice.ratio
        found = (f"{best.target_ratio:g}", f"{100 * best.kept:.1f}%") if best else ("none", "")
        table.add_row(advice.model, *found, f"{advice.ms:.1f}")
    return table


def curve_table(advice: Advice) -> Table:
    from rich.table import Table

    title = f"{advice.model}, {advice.questions} questions"
    table = Table("target ratio", "ratio", "kept", "95% interval", box=None, title=title)
    for point in advice.points:
        table.add_row(
            f"{point.target_ratio:g}", f"{point.ratio:.3f}", f"{100 * point.kept:.1f}%",
            f"{100 * point.low:.1f} to {100 * point.high:.1f}",
        )  # fmt: skip
    return table


def summary(advice: Advice, keep: float) -> list[str]:
    ratio, promise, thresholds = advice.ratio, advice.promise, advice.thresholds
    said = [
        f"ratio: {ratio.target_ratio:g} keeps {100 * ratio.kept:.1f}% ({100 * ratio.low:.1f} to {100 * ratio.high:.1f})"
        if ratio
        else f"ratio: none up to {advice.points[-1].target_ratio:g} keeps {100 * keep:g}%"
    ]
    if promise is None or thresholds is None:
        return [*said, f"keep: {advice.why_not}", _time(advice)]
    said.append(
        f"keep: {promise.keep:g} keeps {100 * promise.covered:.1f}% "
        f"({100 * promise.low:.1f} to {100 * promise.high:.1f}) at a mean ratio of {promise.ratio:.3f}, "
        "on rows that it was not fitted on"
    )
    said.append(
        f"flags: a warning below {thresholds.warning:g} is raised by {100 * thresholds.losses_warned:.0f}% "
        f"of the losses and {100 * thresholds.kept_warned:.0f}% of the others"
    )
    said += [f"caution: {caution}" for caution in advice.cautions]
    said.append(_time(advice))
    better = ratio is None or promise.ratio < ratio.ratio
    return [*said, f"recommended: {'keep' if better else 'ratio'}"]


def _time(advice: Advice) -> str:
    return f"time: {advice.ms:.1f} ms for a compression, the median of the questions"


def pasted(advice: Advice, calibration: Path | None) -> str:
    """Lines of YAML for the model's entry; thresholds that call for caution are commented out."""
    lines = []
    if advice.ratio is not None:
        lines.append(f"ratio: {{default: {advice.ratio.target_ratio:g}}}")
    if calibration is not None:
        lines.append(f"calibration: {calibration}")
    if advice.thresholds is not None:
        found = advice.thresholds
        flags = ["flags:"]
        flags += [f"  at_risk_{name}: {getattr(found, name):g}" for name in ("critical", "warning", "info")]
        if advice.cautions:
            flags = ["# see the caution before adopting these:", *(f"# {line}" for line in flags)]
        lines += flags
    return "\n".join(lines)


def _safe(model: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", model)
