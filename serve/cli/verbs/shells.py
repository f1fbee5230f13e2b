"""Shell completion as typer does it, with one plain line about each item.

Typer renders what is said about an item for a terminal, which imports rich on every press of the key and breaks long
sentences into several lines, each of which fish then offers as an item of its own.
"""

import os
from typing import Any

from typer._click.shell_completion import add_completion_class
from typer._completion_classes import FishComplete, ZshComplete, completion_init
from typer._completion_shared import COMPLETION_SCRIPT_ZSH, _completion_scripts

LONGEST = 70
_DEFINED = "compdef %(complete_func)s %(prog_name)s"
# zsh loads typer's file at the first press of the key, and completes nothing then.
_AT_ONCE = f"""{_DEFINED}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  %(complete_func)s "$@"
fi"""
ZSH = COMPLETION_SCRIPT_ZSH.replace(_DEFINED, _AT_ONCE).strip()


def offer_completions(prog_name: str) -> None:
    """Let the command answer a shell, where it is a shell that asks, and set up zsh so that it asks at once."""
    _completion_scripts["zsh"] = ZSH
    if f"_{prog_name.upper()}_COMPLETE" in os.environ:
        completion_init()
        add_completion_class(PlainZsh, "zsh")
        add_completion_class(PlainFish, "fish")


class PlainFish(FishComplete):
    def format_completion(self, item: Any) -> str:
        return f"{item.value}\t{one_line(item.help)}" if item.help else str(item.value)


class PlainZsh(ZshComplete):
    source_template = ZSH

    def format_completion(self, item: Any) -> str:
        quoted = [
            part.replace('"', '""')
            .replace("'", "''")
            .replace("$", r"\$")
            .replace("`", r"\`")
            .replace(":", r"\\:")
            for part in (str(item.value), one_line(item.help or ""))
            if part
        ]
        return ":".join(f'"{part}"' for part in quoted)


def one_line(text: str) -> str:
    """At most `LONGEST` characters of it."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
