"""The `pith` command: its verbs, and how it fails. Each verb is in the module of its name."""

import sys

import typer

from billing.errors import BillingError
from serve.cli.audit import audit
from serve.cli.collections import collection_commands
from serve.cli.compress import compress_file
from serve.cli.config import config_commands
from serve.cli.key import key_commands
from serve.cli.project import project_commands
from serve.cli.receipts import receipts
from serve.cli.reconcile import reconcile
from serve.cli.serve import serve
from serve.cli.spool import spool_commands
from serve.cli.statement import statement
from serve.cli.tune import tune
from serve.cli.usage import usage
from serve.cli.workspace import workspace_commands
from serve.config.settings import ConfigError

USAGE_ERROR = 2

app = typer.Typer(
    help="Inference, compression and billing on your own machines.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve)
app.add_typer(config_commands, name="config")
app.add_typer(workspace_commands, name="workspace")
app.add_typer(project_commands, name="project")
app.add_typer(key_commands, name="key")
app.add_typer(collection_commands, name="collections")
for command in (usage, receipts, statement, reconcile, audit):
    app.command(command.__name__)(command)
app.add_typer(spool_commands, name="spool")
app.command("compress")(compress_file)
app.command("tune")(tune)


def main() -> None:
    """Run a command. A failure ends with one line and no trace.

    The exit code is 2 if the arguments or the configuration are wrong, and 1 if the ledger refuses.
    """
    try:
        app()
    except ConfigError as error:
        raise SystemExit(_print_error(str(error), USAGE_ERROR)) from error
    except BillingError as error:
        raise SystemExit(_print_error(str(error), 1)) from error


def _print_error(message: str, code: int) -> int:
    print(f"pith: {message}", file=sys.stderr, flush=True)
    return code
