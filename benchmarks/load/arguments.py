"""Argument types that every benchmark's command line shares; each names what is wrong with a value."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    return tuple(count(part) for part in text.split(","))


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def add_server(parser: argparse.ArgumentParser) -> None:
    """--url, --key and --pid of a server that runs already."""
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the server")
    parser.add_argument(
        "--key", default=default_key(), help="project key; default $PITH_API_KEY or var/demo-key"
    )
    parser.add_argument(
        "--pid", type=count, help="the server's first process, to count CPU, memory and files"
    )


def default_key() -> str:
    demo = Path("var/demo-key")
    if key := os.environ.get("PITH_API_KEY"):
        return key
    return demo.read_text(encoding="utf-8").strip() if demo.is_file() else ""
