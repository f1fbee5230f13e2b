"""The dialects by their paths, and errors as each writes them."""

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson
from starlette.responses import Response

from serve.http.errors import Problem

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


# OpenAI's and Anthropic's SDKs go by it; without it they send a request again after 409 and 5xx.
SHOULD_RETRY = "x-should-retry"
# Sending it again changes nothing: there is no money, the file is in use or the batch has ended, the disk is full.
_FINAL = frozenset({402, 409, 507})

_REFUSED = "invalid_request_error"
# OpenAI writes `messages[3].content` where the contract has `messages.3.content`.
_INDEX = re.compile(r"\.(\d+)(?=\.|$|\[)")
# Of the contract's codes, those that OpenAI's clients know under another name or status.
_OPENAI: dict[str, tuple[int, str, str]] = {
    "missing_api_key": (401, _REFUSED, "invalid_api_key"),
    "invalid_api_key": (401, _REFUSED, "invalid_api_key"),
    "model_not_found": (404, _REFUSED, "model_not_found"),
    "model_not_allowed": (404, _REFUSED, "model_not_found"),
    "quota_exceeded": (402, "insufficient_quota", "insufficient_quota"),
    "billing_disabled": (402, "insufficient_quota", "billing_not_active"),
}
# What OpenAI says of a wrong key: litellm reads it, and takes a 401 that says otherwise for a bad request.
_WRONG_KEY = "Incorrect API key provided: it is unknown or was revoked"
_ANTHROPIC = {
    400: _REFUSED,
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
TOO_LARGE = "request_too_large"
TOO_LONG = "prompt is too long"


def response_of(problem: Problem, path: str, request_id: str | None) -> Response:
    """The answer to a request that had this path."""
    if path.startswith(OPENAI):
        problem = openai_problem(problem)
        body = openai_body(problem)
    elif path.startswith(ANTHROPIC):
        problem = anthropic_problem(problem)
        body = anthropic_body(problem, request_id)
    else:
        return problem.response()
    headers = dict(problem.headers)
    if problem.status in _FINAL:
        headers[SHOULD_RETRY] = "false"
    return Response(orjson.dumps(body), problem.status, headers=headers, media_type="application/json")


def misplaced_response(problem: Problem, base: Base, path: str, request_id: str | None) -> Response:
    """The answer to a request that belongs under another base URL, in the words of the client that sent it. Under no
    dialect's path it has what the contract's errors have as well."""
    body = {} if path.startswith((OPENAI, ANTHROPIC)) else problem.body()
    if base.dialect == "anthropic":
        body |= anthropic_body(anthropic_problem(problem), request_id)
    elif base.dialect == "ollama":
        body |= {"error": problem.message}
    else:
        body |= openai_body(openai_problem(problem))
    return Response(orjson.dumps(body), problem.status, media_type="application/json")


def openai_problem(problem: Problem) -> Problem:
    """With OpenAI's status, type and code. What is wrong with a body is a 400; where it does not fit the context,
    `context_length_exceeded`."""
    if problem.param is not None:
        problem = replace(problem, param=_INDEX.sub(r"[\1]", problem.param))
    if problem.code == "invalid_api_key":
        problem = replace(problem, detail=_WRONG_KEY)
    if problem.code in _OPENAI:
        status, kind, code = _OPENAI[problem.code]
        return replace(problem, status=status, type=kind, code=code)
    if problem.is_too_long:
        return replace(problem, status=400, code="context_length_exceeded")
    if problem.status == 422:
        return replace(problem, status=413 if _is_too_large(problem) else 400)
    return problem


def openai_body(problem: Problem) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}` of a problem that `openai_problem` gave."""
    return {"error": problem.body()["error"]}


def anthropic_problem(problem: Problem) -> Problem:
    """With Anthropic's status and type."""
    if problem.is_too_long:
        # By these words Claude Code knows that it has to make its conversation shorter.
        problem = replace(problem, detail=f"{TOO_LONG}: {problem.message}")
    problem = openai_problem(problem)
    status = 529 if problem.status == 503 else problem.status
    kind = _ANTHROPIC.get(status, "api_error" if status >= 500 else _REFUSED)
    return replace(problem, status=status, type=kind)


def anthropic_body(problem: Problem, request_id: str | None) -> dict[str, Any]:
    """`{"type": "error", "error": {type, message}, "request_id"}` of a problem that `anthropic_problem` gave."""
    error = {"type": problem.type, "message": problem.message}
    return {"type": "error", "error": error, "request_id": request_id}


def _is_too_large(problem: Problem) -> bool:
    return not isinstance(problem.detail, str) and problem.detail[0]["type"] == TOO_LARGE
