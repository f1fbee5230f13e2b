"""Where pip is configured to find packages, in uv's options: uv reads none of pip's own configuration."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping

LIST_S = 60
# pip's setting, and the option of uv for each of its values.
OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}
# pip's setting, and uv's variable.
VARIABLES = {"cert": "SSL_CERT_FILE", "proxy": "ALL_PROXY", "default-timeout": "UV_HTTP_TIMEOUT"}


def pip_settings() -> dict[str, str]:
    """pip's settings by their names, as files and the environment have them; the environment decides."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=LIST_S, check=False).stdout
    return read(listed)


def read(listed: str) -> dict[str, str]:
    """What `pip config list` printed: lines such as `global.index-url='…'` and `:env:.cert='…'`."""
    found: dict[str, str] = {}
    of_environment: dict[str, str] = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, setting = name.rpartition(".")
        if section in ("global", "install", ":env:"):
            (of_environment if section == ":env:" else found)[setting] = str(ast.literal_eval(value))
    return found | of_environment


def uv_options(settings: Mapping[str, str]) -> list[str]:
    """The options of `uv pip install` that say the same."""
    options = ["--no-index"] if settings.get("no-index", "").lower() in ("1", "true", "yes", "on") else []
    for setting, option in OPTIONS.items():
        options += [part for value in settings.get(setting, "").split() for part in (option, value)]
    # As pip does: the file may lie in any of them, whichever has the package's name.
    return [*options, "--index-strategy", "unsafe-best-match"]


def uv_variables(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: settings[setting] for setting, name in VARIABLES.items() if setting in settings}
