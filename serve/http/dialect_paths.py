"""Base URLs of this server, for the error that a client gets who was given another one."""

import re
from dataclasses import dataclass
from typing import Literal

OPENAI = "/openai/"
ANTHROPIC = "/anthropic/"
Dialect = Literal["openai", "anthropic", "ollama"]


@dataclass(frozen=True, slots=True)
class Base:
    """The base URL of one protocol's clients. `ends` matches what they add to their base URL."""

    path: str
    whose: str
    ends: re.Pattern[str]
    dialect: Dialect = "openai"
    # Whether these ends are served there; else the client has to be another one.
    is_spoken: bool = True

    @property
    def hint(self) -> str:
        return f"{self.whose} the base URL is this server's address followed by {self.path}"


def _ending(*ends: str) -> re.Pattern[str]:
    # A caller chooses the path: where a dot stopped at a line's end, many beginnings would each be tried to there.
    return re.compile(rf"(?<=/)(?:{'|'.join(ends)})\Z", re.DOTALL)


# The first that matches counts.
BASES = (
    Base("/anthropic", "for Anthropic's clients", _ending("(?:v1/)?messages(?:/count_tokens)?"), "anthropic"),
    Base(
        "/openai/v1",
        "Azure's paths are not served: use an ordinary OpenAI client, for which",
        _ending(r"deployments/[^/]+/.+"),
        is_spoken=False,
    ),
    Base(
        "/openai/v1",
        "Ollama's protocol is not spoken: use an OpenAI client, for which",
        _ending("api/(?:chat|generate|tags|embed|embeddings|show|ps|version|pull)"),
        "ollama",
        is_spoken=False,
    ),
    Base("/openai", "for Cohere's clients", _ending("v2/rerank")),
    Base("/openai/v1", "for OpenAI's clients (Cohere's: /openai)", _ending("rerank")),
    Base(
        "/openai/v1",
        "for OpenAI's clients",
        _ending(
            "chat/completions",
            "completions",
            "embeddings",
            "score",
            *(rf"{several}(?:/.+)?" for several in ("responses", "models", "files", "batches")),
        ),
    ),
)


def right_base(path: str) -> Base | None:
    """The base under which a path without a route would have one. None where there is no such base, or where
    it is under that."""
    for base in BASES:
        if (found := base.ends.search(path)) is not None:
            return None if base.is_spoken and path == f"{base.path}/{found[0]}" else base
    return None
