"""The verbs of `pith` by task, in the order of its help. Their modules are named here, imported when one is called."""

from dataclasses import dataclass
from importlib import import_module

import typer
from typer.core import TyperGroup


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
        Verb("status", "serve.cli.talk.overview:status", "How a running server does: models, load, spend."),
        Verb("reload", "serve.cli.talk.reload:reload", "Put changed settings or new code in force while it runs."),
        Verb("drain", "serve.cli.talk.drain:drain", "Empty a node of the Ray cluster, so that it may be stopped."),
        Verb("stop", "serve.cli.stop:stop", "Stop pith on a Ray cluster; Ray runs on."),
    ),
    "Requests": (
        Verb("models", "serve.cli.talk.listing:models", "List models with their contexts and prices."),
        Verb("chat", "serve.cli.talk.chatting:chat", "Chat with a model of a running server."),
        Verb("compress", "serve.cli.compress:compress_file", "Compress a text here, without a server."),
        Verb("batch", "serve.cli.batch.commands:batch_commands", "Files of requests, run by a server."),
        Verb("mcp", "serve.cli.mcp:mcp", "Serve the tools of compression to an MCP client."),
    ),
    "Compression quality": (
        Verb("tune", "serve.cli.tune:tune", "Measure compression on your own questions."),
        Verb("receipts", "serve.cli.receipts:receipts", "Print the receipts of compressions as lines of JSON."),
    ),
    "Accounts": (
        Verb("workspace", "serve.cli.workspace:workspace_commands", "Accounts that pay."),
        Verb("project", "serve.cli.project:project_commands", "Sets of keys with their own rate limits."),
        Verb("key", "serve.cli.key:key_commands", "API keys."),
        Verb("webhook", "serve.cli.webhook:webhook_commands", "Who is told of limits and collections."),
        Verb("audit", "serve.cli.audit:audit", "Who changed which account or collection, and when."),
    ),
    "Money": (
        Verb("usage", "serve.cli.usage:usage", "Add up what was used and what it cost."),
        Verb("statement", "serve.cli.statement:statement", "Print what a workspace owed, used and paid in a month."),
        Verb("collections", "serve.cli.collections:collection_commands", "What workspaces are asked to pay."),
        Verb("adjustment", "serve.cli.money.adjustment:adjustment_commands", "Credits, adjustments and refunds."),
        Verb("export", "serve.cli.money.export:export_commands", "Usage events and adjustments for other programs."),
        Verb("reconcile", "serve.cli.reconcile:reconcile", "Prove that the books add up."),
        Verb("spool", "serve.cli.spool:spool_commands", "Usage that the ledger could not take yet, or refused."),
    ),
    "Storage": (
        Verb("backup", "serve.cli.storage.backup:backup", "Copy all that must not be lost, while the server runs."),
        Verb("restore", "serve.cli.storage.backup:restore", "Put a backup in place; nothing is overwritten."),
        Verb("archive", "serve.cli.storage.archive:archive", "Move old usage events to files, and drop them here."),
    ),
}  # fmt: skip
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)
