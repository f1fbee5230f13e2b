"""The `pith` command and how it fails. Its verbs are in `serve/cli/verbs.py`."""

import sys
from typing import Annotated

import typer
from typer.completion import install_callback, show_callback

from billing.errors import BillingError
from serve.cli.completion import offer_completions
from serve.cli.verbs import NAME, VerbGroup, print_version
from serve.client.errors import PithError
from serve.config.paths import ConfigError

USAGE_ERROR = 2
# Typer's own two are neither true nor false, which takes it pydantic to check, whatever the command.
InstallCompletion = Annotated[
    bool,
    typer.Option(
        "--install-completion", callback=install_callback, help="Install completion for the current shell."
    ),
]
ShowCompletion = Annotated[
    bool,
    typer.Option(
        "--show-completion", callback=show_callback, help="Print the completion of the current shell."
    ),
]

app = typer.Typer(
    cls=VerbGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: the other kind takes longer to import than everything else that it needs.
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def pith(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=print_version, help="Print the version and end."),
    ] = False,
    install_completion: InstallCompletion = False,
    show_completion: ShowCompletion = False,
) -> None:
    """Inference, compression and billing on your own machines."""


def main() -> None:
    """Run a command. A failure ends with one line and no trace.

    The exit code is 2 if the arguments or the configuration are wrong, and 1 if the ledger or a
    running server refuses or is away.
    """
    offer_completions(NAME)
    try:
        app(prog_name=NAME)
    except ConfigError as error:
        raise SystemExit(_print_error(str(error), USAGE_ERROR)) from error
    except (BillingError, PithError) as error:
        raise SystemExit(_print_error(str(error), 1)) from error


def _print_error(message: str, code: int) -> int:
    print(f"pith: {message}", file=sys.stderr, flush=True)
    return code
