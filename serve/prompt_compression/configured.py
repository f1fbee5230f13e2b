"""Checks a project's default against a server's configuration."""

from serve.config.compression_models import (
    CompressionModelSettings,
    CompressionSettingsSection,
    spec_of,
)
from serve.http.request_body import InvalidBody, Issue, parse_body
from serve.prompt_compression.default import default_of
from serve.prompt_compression.options import ProjectCompression


class BadDefault(ValueError):
    """The message says which field is wrong, and why."""


def checked_default(text: str, settings: CompressionSettingsSection) -> ProjectCompression:
    """A default that an operator wrote as JSON, checked as a request's options are and against the models here.

    Raises `BadDefault`.
    """
    try:
        options = parse_body(text.encode(errors="surrogateescape"), None, ProjectCompression)
    except InvalidBody as error:
        raise BadDefault("; ".join(map(_described, error.issues))) from None
    misfit = _misfit(options, settings)
    if misfit is not None:
        raise BadDefault(misfit)
    return options


def problem_of(compression: str | None, settings: CompressionSettingsSection) -> str | None:
    """Why a stored default has no effect here; None if it has one, or if there is no default."""
    if compression is None:
        return None
    options = default_of(compression)
    return "cannot be read by this version" if options is None else _misfit(options, settings)


def _misfit(options: ProjectCompression, settings: CompressionSettingsSection) -> str | None:
    models = {model.id: model for model in settings.models}
    if not models:
        return "model: this configuration has no compression models"
    if options.model is not None and options.model not in models:
        return f"model: there is no {options.model!r}, only {', '.join(models)}"
    model = settings.models[0] if options.model is None else models[options.model]
    ratio, bounds = options.target_ratio, model.ratio
    if ratio is not None and not bounds.min <= ratio <= bounds.max:
        return f"target_ratio: {model.id} takes {bounds.min:g} to {bounds.max:g}, not {ratio:g}"
    if options.keep is not None and not _is_calibrated(model):
        return f"keep: {model.id} has no calibration for it; give target_ratio instead"
    longest = settings.retention.max_s
    if options.retain_s is not None and options.retain_s > longest:
        return f"retain_s: this server keeps originals for {longest} seconds at the most"
    return None


def _is_calibrated(model: CompressionModelSettings) -> bool:
    from compression.pipeline.pipeline import calibration_of
    from compression.scorers.kinds import KINDS

    return not KINDS[model.kind].chooses_words and calibration_of(spec_of(model)) is not None


def _described(issue: Issue) -> str:
    path = [str(step) for step in issue.loc[1:] if isinstance(step, str)]
    return ": ".join([*path, issue.msg])
