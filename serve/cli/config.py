"""Configuration files: `pith init` writes one to edit, and `pith config check` says whether it is valid and fits."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve.cli.main import version_line
from serve.config.paths import CONFIG_NAME, SHIPPED, ConfigError
from serve.operator.rows import as_table

if TYPE_CHECKING:
    from serve.config.capacity.fit import Verdict
    from serve.config.settings import Settings

config_commands = typer.Typer(help="Work with configuration files.", no_args_is_help=True)

COLUMNS = ("application", "started", "where", "memory", "verdict")


class Profile(StrEnum):
    embedded = "embedded"
    tiny = "tiny"
    cpu = "cpu"
    gpu = "gpu"
    cluster = "cluster"


HEAD = """\
# Written by `pith init --profile {profile}` of {version}. `pith config check` says what is wrong with it.
# Relative paths, such as that of state_dir, are relative to this file's folder.
#
"""


def init(
    folder: Annotated[
        Path, typer.Argument(help="Folder for the configuration and, beside it, what pith keeps.")
    ],
    profile: Annotated[
        Profile, typer.Option(help="Tiny models that come with pith; or for CPUs, GPUs, several machines.")
    ] = Profile.embedded,
) -> None:
    """Write a configuration to edit, FOLDER/pith.yaml. One that is there is left as it is."""
    path = folder.absolute() / CONFIG_NAME
    write_new(path, profile_text(profile))
    named = shlex.quote(str(path))
    typer.echo(f"wrote {path}; what pith keeps will be in {path.parent / 'var'}")
    typer.echo(f"check it:  pith config check {named}")
    typer.echo(f"start it:  pith serve --config {named}")


def profile_text(profile: str) -> str:
    """The text of a profile that comes with pith; commands in it name the new file."""
    shipped = (SHIPPED / f"{profile}.yaml").read_text(encoding="utf-8")
    head = HEAD.format(profile=profile, version=version_line())
    return head + shipped.replace(f"configs/{profile}.yaml", CONFIG_NAME)


def write_new(path: Path, text: str) -> None:
    """Raises `ConfigError` where there is one already, or none can be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{error.filename}: is there already, and left as it is") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error


@config_commands.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="Configuration file.")],
    node: Annotated[
        list[str] | None,
        typer.Option(
            help="A machine, such as 8xH100-80GB or cpu:16-64GB, that everything must fit on; repeat it for a "
            "cluster. Default: the file's `nodes`."
        ),
    ] = None,
) -> None:
    """Validate a configuration without starting anything. Exit code 1 if it does not fit its machines."""
    from serve.config.chat_models import check_folders
    from serve.config.settings import load_anchored, unpinned_revisions

    settings = load_anchored(file)
    check_folders(settings.models)
    unchecked = check_engine_args(settings)
    nodes = node or settings.nodes
    fits, said = fit_of(settings, nodes) if nodes else (True, "")
    others = [model.id for model in settings.retrieval_models]
    models = ", ".join([*(model.id for model in settings.models), *others])
    typer.echo(f"{file}: valid; serves {models}")
    for line in [*unchecked, *unpinned_revisions(settings)]:
        typer.echo(f"warning: {line}", err=True)
    if said:
        typer.echo(said)
    if not fits:
        raise SystemExit(1)


def check_engine_args(settings: Settings) -> list[str]:
    """Asks vLLM's class of arguments, which takes seconds to import: only where a model has `engine.args`. Returns a
    line for each model where vLLM is not installed. Raises `ConfigError`."""
    given = {model.id: model.engine.args for model in settings.engine_models if model.engine.args}
    if not given:
        return []
    if find_spec("vllm") is None:
        return [
            f"models.{model}.engine.args: names and types not checked, since vLLM is not installed here"
            for model in given
        ]
    # What it tells of this machine while it is imported is for those who start it.
    logging.disable(logging.WARNING)
    try:
        from models.vllm.arguments import problems_of

        problems = [f"models.{model}.{each}" for model, args in given.items() for each in problems_of(args)]
    finally:
        logging.disable(logging.NOTSET)
    if problems:
        raise ConfigError("; ".join(problems))
    return []


def fit_of(settings: Settings, nodes: Sequence[str]) -> tuple[bool, str]:
    """True where everything fits, and a table. Raises `ConfigError` for a machine that cannot be parsed."""
    from serve.config.capacity.fit import check_fit
    from serve.config.values import parse_node

    try:
        verdicts = check_fit(settings, [parse_node(node) for node in nodes])
    except ValueError as error:
        raise ConfigError(f"--node: {error}") from error
    rows = [
        {
            "application": verdict.application,
            "started": verdict.started,
            "where": verdict.where,
            "memory": verdict.memory,
            "verdict": _verdict_text(verdict),
        }
        for verdict in verdicts
    ]
    missing = sum(not verdict.fits for verdict in verdicts)
    machines = " + ".join(nodes)
    said = (
        f"{missing} of {len(verdicts)} replicas do not fit {machines}"
        if missing
        else f"everything fits {machines} (memory is an estimate)"
    )
    return not missing, f"{as_table(COLUMNS, rows)}\n{said}"


def _verdict_text(verdict: Verdict) -> str:
    if verdict.waits:
        return "fits when others are idle"
    return verdict.trouble or "fits"
