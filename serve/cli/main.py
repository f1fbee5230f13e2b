"""The `pith` command: its verbs by task, each imported only when it is called, its version, and how it fails."""

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from typing import Annotated, Any

import typer
from typer.completion import install_callback, show_callback
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from billing.errors import BillingError
from serve.cli.completion import offer_completions
from serve.client import PithError
from serve.config.paths import ConfigError
from serve.metrics.installed import checkout_commit, recorded_commit

NAME = "pith"


def print_version(wanted: bool) -> None:
    """Print the line and end the command, where the option was given."""
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


def installed_version() -> str:
    """Such as `0.1.0`; `not installed` where pith runs from files alone."""
    try:
        return distribution(NAME).version
    except PackageNotFoundError:
        return "not installed"


def version_line() -> str:
    """Such as `pith 0.1.0 (commit 0123456789ab)`."""
    try:
        found = distribution(NAME)
    except PackageNotFoundError:
        return f"{NAME} (not installed{_in_brackets(checkout_commit())})"
    commit = checkout_commit() or recorded_commit(found.read_text("direct_url.json"))
    return f"{NAME} {found.version}" + (f" (commit {commit})" if commit else "")


def _in_brackets(commit: str | None) -> str:
    return f", commit {commit}" if commit else ""


@dataclass(frozen=True, slots=True)
class Verb:
    """`place` is `module:name` of a function or of a `Typer`; `help` is its line in the help of `pith`."""

    name: str
    place: str
    help: str

    def load(self, group: type[TyperGroup]) -> typer.Typer:
        """An app with this verb alone, of that group where it is one of several commands; imports its module."""
        module, _, name = self.place.partition(":")
        found = getattr(import_module(module), name)
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=self.name, cls=group)
        else:
            app.command(self.name)(found)
        return app


GROUPS = {
    "Server": (
        Verb("init", "serve.cli.config:init", "Write a configuration to edit."),
        Verb("config", "serve.cli.config:config_commands", "Work with configuration files."),
        Verb("serve", "serve.cli.serve:serve", "Start the server and serve until Ctrl-C."),
        Verb("status", "serve.cli.status:status", "How a running server does: models, load, spend."),
        Verb("reload", "serve.cli.control:reload", "Put changed settings or new code in force while it runs."),
        Verb("adapter", "serve.cli.adapters:adapter_commands", "Adapters of a server that runs."),
        Verb("drain", "serve.cli.control:drain", "Empty a node of the Ray cluster, so that it may be stopped."),
        Verb("stop", "serve.cli.control:stop", "Stop pith on a Ray cluster; Ray runs on."),
    ),
    "Requests": (
        Verb("models", "serve.cli.models:models", "List models with their contexts and prices."),
        Verb("chat", "serve.cli.chatting:chat", "Chat with a model of a running server."),
        Verb("compress", "serve.cli.compress:compress_file", "Compress a text here, without a server."),
        Verb("recount", "serve.cli.recount:recount", "Count a reply's tokens again, without the server."),
        Verb("batch", "serve.cli.batch:batch_commands", "Files of requests, run by a server."),
        Verb("mcp", "serve.cli.mcp:mcp", "Serve the tools of compression to an MCP client."),
    ),
    "Compression quality": (
        Verb("tune", "serve.cli.tune:tune", "Measure compression on your own questions."),
        Verb("receipts", "serve.cli.ledger.books:receipts", "Print the receipts of compressions as lines of JSON."),
    ),
    "Accounts": (
        Verb("workspace", "serve.cli.ledger.accounts:workspace_commands", "Accounts that pay."),
        Verb("project", "serve.cli.ledger.accounts:project_commands", "Sets of keys with their own rate limits."),
        Verb("key", "serve.cli.ledger.keys:key_commands", "API keys."),
        Verb("budget", "serve.cli.ledger.budget:budget_commands", "What may be spent in an hour, a day, …"),
        Verb("webhook", "serve.cli.ledger.webhook:webhook_commands", "Who is told of limits and collections."),
        Verb("audit", "serve.cli.ledger.books:audit", "Who changed which account or collection, and when."),
    ),
    "Money": (
        Verb("usage", "serve.cli.ledger.usage:usage", "Add up what was used and what it cost."),
        Verb("statement", "serve.cli.ledger.books:statement", "Print what a workspace owed, used and paid in a month."),
        Verb("verify", "serve.cli.verify:verify", "Check a statement's proof, as anybody can."),
        Verb("collections", "serve.cli.ledger.payments:collection_commands", "What workspaces are asked to pay."),
        Verb("adjustment", "serve.cli.ledger.payments:adjustment_commands", "Credits, adjustments and refunds."),
        Verb("export", "serve.cli.ledger.export:export_commands", "Usage events and adjustments for other programs."),
        Verb("reconcile", "serve.cli.ledger.books:reconcile", "Prove that the books add up."),
        Verb("spool", "serve.cli.ledger.spool:spool_commands", "Usage that the ledger could not take yet, or refused."),
    ),
    "Storage": (
        Verb("backup", "serve.cli.storage:backup", "Copy all that must not be lost, while the server runs."),
        Verb("restore", "serve.cli.storage:restore", "Put a backup in place; nothing is overwritten."),
        Verb("archive", "serve.cli.storage:archive", "Move old usage events to files, and drop them here."),
    ),
}  # fmt: skip
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)


class LightGroup(TyperGroup):
    """A group whose own `--help` is false where it is not given. Typer's is neither true nor false, and it imports
    pydantic to check that, for every command of the group."""

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.default, option.show_default = False, False
        return option


class VerbGroup(LightGroup):
    """Holds a stand-in for each verb; the one that is called is loaded."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for verb in VERBS:
            self.add_command(StandIn(verb))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The verbs under the headings of their tasks, all lines beginning at one column."""
        longest = max(len(verb.name) for verb in VERBS)
        for task, verbs in GROUPS.items():
            with formatter.section(task):
                formatter.write_dl([(verb.name.ljust(longest), verb.help) for verb in verbs])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name, the command itself and its arguments, for a call and for the completion of one."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.loaded() if isinstance(command, StandIn) else command, rest


class StandIn(TyperCommand):
    """A verb's name and the line about it."""

    def __init__(self, verb: Verb) -> None:
        super().__init__(verb.name, help=verb.help, rich_markup_mode=None)
        self._verb = verb

    def loaded(self) -> Any:
        command = get_command(self._verb.load(LightGroup))
        return command.commands[self._verb.name] if isinstance(command, TyperGroup) else command


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
