"""A recount of what an engine counted for a chat: the prompt rendered again, the reply's tokens read back to its text.

It needs the request, a reply with its token ids, and the tokenizer's folder; neither engine nor model.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from models.counted_tokens import TokenIds, token_ids_of

# Bytes of a character before its last, which may be tokens of their own.
MOST_SILENT = 3
TEMPLATE_FILE = "chat_template.jinja"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at; `fits` is None where it cannot be told."""

    what: str
    fits: bool | None
    said: str


class Vocabulary:
    """A model's tokenizer, by its file or the folder that it is in, and its chat template, where that is there too.
    Raises `OSError` or `ValueError` for what cannot be read."""

    def __init__(self, path: Path) -> None:
        file = path / "tokenizer.json" if path.is_dir() else path
        raw = file.read_bytes()
        self.sha256 = hashlib.sha256(raw).hexdigest()
        self.tokenizer = Tokenizer.from_str(raw.decode())
        self._config = _json_of(file.with_name("tokenizer_config.json"))
        found = file.with_name(TEMPLATE_FILE)
        self.template = found.read_text("utf-8") if found.is_file() else self._config.get("chat_template")
        added = self.tokenizer.get_added_tokens_decoder()
        self.special = frozenset(number for number, token in added.items() if token.special)

    def prompts(self, request: Mapping[str, Any]) -> Iterator[list[int]]:
        """The prompt of a chat, in each way in which contents may be given to a template. Raises `TemplateError`."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = lambda value, **options: json.dumps(
            value, ensure_ascii=False, **options
        )
        environment.globals |= {"raise_exception": _raise, "strftime_now": datetime.now().strftime}
        template = environment.from_string(str(self.template))
        named = {name: _text_of(value) for name, value in self._config.items() if name.endswith("_token")}
        for as_parts in (False, True):
            messages = [_message(one, as_parts=as_parts) for one in request["messages"]]
            text = template.render(**named, **_variables(request), messages=messages)
            yield self.tokenizer.encode(text, add_special_tokens=False).ids

    def texts(self, prompt: Sequence[int], reply: Sequence[int]) -> list[str]:
        """The text that each token of a reply adds after this prompt."""
        stream = DecodeStream(ids=list(prompt), skip_special_tokens=False)
        return [stream.step(self.tokenizer, token) or "" for token in reply]


def _json_of(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text("utf-8"))) if file.is_file() else {}


def _text_of(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _raise(message: str) -> None:
    raise TemplateError(message)


def _variables(request: Mapping[str, Any]) -> dict[str, Any]:
    effort, given = request.get("reasoning_effort"), request.get("chat_template_kwargs") or {}
    thinks = {} if effort is None else {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    continues = bool(request.get("continue_final_message"))
    tools = request.get("tools") or None
    return {"tools": tools, "documents": None, "add_generation_prompt": not continues, **thinks, **given}


def _message(message: Mapping[str, Any], *, as_parts: bool) -> dict[str, Any]:
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [part["text"] for part in content or ()]
    parts = [{"type": "text", "text": text} for text in texts]
    found = {**message, "content": parts if as_parts else "\n".join(texts)}
    if calls := message.get("tool_calls"):
        found["tool_calls"] = [_call(call) for call in calls]
    return found


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    function["arguments"] = json.loads(function.get("arguments") or "{}")
    return {**call, "function": function}


def recounted(request: Mapping[str, Any], reply: Mapping[str, Any], known: Vocabulary) -> list[Finding]:
    """Raises `ValueError` or `KeyError` for a reply without its token ids."""
    service = reply["service"]
    told = token_ids_of(service["tokens"])
    prompt, completion = (sum(map(len, parts)) for parts in (told.prompts, told.replies))
    usage = reply["usage"]
    found = [
        _same("tokens of the prompt", usage["prompt_tokens"], prompt),
        _same("tokens of the reply", usage["completion_tokens"], completion),
        _same("tokenizer", told.source.tokenizer_sha256, known.sha256),
        *_committed(service, told, prompt, completion),
        _prompt(request, service, told, known),
    ]
    choices = sorted(reply["choices"], key=lambda choice: choice["index"])
    found.append(_same("choices", len(choices), len(told.replies)))
    for choice, ids in zip(choices, told.replies, strict=False):
        what, pieces = f"text of choice {choice['index']}", known.texts(told.prompts[0], ids)
        found.append(Finding(what, *_reply(choice, request, ids, pieces, known)))
    return found


def _same(what: str, said: Any, found: Any) -> Finding:
    if said == found:
        return Finding(what, True, str(found))
    return Finding(what, False if said is not None else None, f"{said} was said, and it is {found}")


def _committed(service: Mapping[str, Any], told: TokenIds, prompt: int, completion: int) -> Iterator[Finding]:
    """Whether the record that was promised is of these tokens."""
    proof = service["metering"].get("proof")
    if proof is None:
        yield Finding("promised record", None, "the reply has none: the project does not ask for proofs")
        return
    record = json.loads(proof["record"])
    yield _same("promised tokens of the prompt", record.get("prompt_tokens"), prompt)
    yield _same("promised tokens of the reply", record.get("completion_tokens"), completion)
    yield _same("promised hash of the tokens", record.get("tokens_sha256"), told.sha256())


def _prompt(
    request: Mapping[str, Any], service: Mapping[str, Any], told: TokenIds, known: Vocabulary
) -> Finding:
    what = "prompt"
    if known.template is None:
        return Finding(what, None, "no chat template is beside the tokenizer: it was not rendered")
    if told.source.template_sha256 != hashlib.sha256(str(known.template).encode()).hexdigest():
        return Finding(what, None, "its chat template is another one: it was not rendered")
    try:
        prompts = list(known.prompts(request))
    except (TemplateError, KeyError, TypeError, ValueError) as error:
        return Finding(what, None, f"it cannot be rendered here: {error}")
    compression = service.get("compression") or {}
    if any(block["compressed"] for block in compression.get("blocks", ())):
        original = compression["original_tokens"]
        counts = [len(ids) for ids in prompts]
        return Finding(
            f"{what} before its compression", original in counts, f"{original} said, {counts[0]} found"
        )
    fits = list(told.prompts[0]) in prompts
    return Finding(what, fits, f"{len(prompts[0])} tokens" if fits else "its tokens are others than rendered")


def _reply(
    choice: Mapping[str, Any],
    request: Mapping[str, Any],
    ids: Sequence[int],
    pieces: Sequence[str],
    known: Vocabulary,
) -> tuple[bool | None, str]:
    """Whether these tokens are the reply's text and nothing else."""
    message, is_cut = choice["message"], choice.get("finish_reason") == "length"
    marked = [place for place, token in enumerate(ids) if token in known.special]
    texts = [piece for token, piece in zip(ids, pieces, strict=True) if token not in known.special]
    plain, content = "".join(texts), message.get("content") or ""
    thoughts = message.get("reasoning") or message.get("reasoning_content") or ""
    if message.get("tool_calls") or thoughts:
        return _taken_apart(message, (thoughts, content), plain, len(ids), known)
    if marked and (is_cut or marked != [len(ids) - 1]) and not request.get("ignore_eos"):
        return False, f"special tokens that the reply does not show, at {marked[:4]}"
    if _silent_at_end(texts) > (MOST_SILENT if is_cut else 0):
        return False, "it ends with tokens without text"
    if plain != content and not _is_stopped(content, texts, _stops(request)):
        return False, "its tokens are another text"
    fewest = len(known.tokenizer.encode(plain, add_special_tokens=False).ids)
    return True, f"{len(ids)} tokens; the tokenizer makes {fewest} of its text"


def _taken_apart(
    message: Mapping[str, Any], texts: Sequence[str], plain: str, tokens: int, known: Vocabulary
) -> tuple[bool | None, str]:
    """Of a reply with thoughts or calls: the engine's parsers take it apart, and leave out the marks around them."""
    rest = plain
    for text in filter(None, map(str.strip, texts)):
        before, found, after = rest.partition(text)
        if not found:
            return False, "its tokens are another text"
        rest = before + after
    done = ""
    for call in message.get("tool_calls") or ():
        for part in filter(None, map(call["function"].get, ("name", "arguments"))):
            before, found, after = rest.partition(part)
            done, rest = (done + before, after) if found else (done, rest)
    rest = done + rest
    left = len(known.tokenizer.encode(rest, add_special_tokens=False).ids)
    return None, (
        f"{tokens} tokens, which have its text, and some {left} tokens more that it does not show: {rest[:80]!r}. "
        "The model's template and its parsers say what marks thoughts and calls: compare it with these"
    )


def _silent_at_end(texts: Sequence[str]) -> int:
    """How many tokens after the last text have none."""
    return next((at for at, text in enumerate(reversed(texts)) if text), len(texts))


def _stops(request: Mapping[str, Any]) -> Sequence[str]:
    stop = request.get("stop") or ()
    return [stop] if isinstance(stop, str) else stop


def _is_stopped(content: str, pieces: Sequence[str], stops: Sequence[str]) -> bool:
    """True where the text goes on with a stop string that its last token completed."""
    text, before = "".join(pieces), "".join(pieces[:-1])
    is_at: Callable[[str], bool] = lambda stop: text.startswith(content + stop)  # noqa: E731
    return any(is_at(stop) and len(before) < len(content) + len(stop) for stop in stops)


def read_reply(text: str) -> dict[str, Any]:
    """A reply as it was saved: one JSON object, or the events of a stream. Raises `ValueError`."""
    if text.lstrip().startswith("{"):
        return dict(json.loads(text))
    lines = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {"))
    reply: dict[str, Any] = {}
    messages: dict[int, dict[str, Any]] = {}
    ends: dict[int, str | None] = {}
    for event in map(json.loads, lines):
        reply |= {name: event[name] for name in ("usage", "service") if event.get(name)}
        for choice in event.get("choices", ()):
            _join(messages.setdefault(choice["index"], {}), choice["delta"])
            ends[choice["index"]] = choice.get("finish_reason") or ends.get(choice["index"])
    reply["choices"] = [
        {"index": index, "message": message, "finish_reason": ends[index]}
        for index, message in messages.items()
    ]
    return reply


def _join(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        if isinstance(value, str | list) and name != "role":
            # A call in pieces is told as several.
            message[name] = message.get(name, type(value)()) + value
        elif value:
            message[name] = value
