"""The group of all verbs: its help and its completion show them without importing one of them."""

from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from serve.cli.verbs.verb import GROUPS, VERBS, Verb


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
