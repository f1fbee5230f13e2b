"""vLLM's answer in the Responses API as OpenAI's types and the order of its events have it.

What vLLM 0.29 gets wrong, and is put right here: an answer that was cut off ends in `response.completed`, its last item
`completed`; the items of the closing event have other ids than those that were streamed, and a function call another
`call_id`; reasoning comes in events that OpenAI has no type for; a call without arguments never has them done; log
probabilities are missing where a text is done; `parallel_tool_calls: false` has no effect.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
# Of a gpt-oss model's call vLLM says more than its type has.
CALL_FIELDS = frozenset({"id", "type", "status", "call_id", "name", "namespace", "arguments"})
# vLLM's own names for events that OpenAI has another for.
RENAMED = {
    "response.reasoning_part.added": "response.content_part.added",
    "response.reasoning_part.done": "response.content_part.done",
}
ITEM_ADDED, ITEM_DONE = "response.output_item.added", "response.output_item.done"
ARGUMENTS_DONE = "response.function_call_arguments.done"
TEXT_DELTA, TEXT_DONE = "response.output_text.delta", "response.output_text.done"
PART_DONE = "response.content_part.done"
CLOSING = "response.completed"


class ResponseEvents:
    """One stream. `of` takes each of vLLM's events; afterwards `closing` has the event that ends the stream."""

    def __init__(self, response: ResponseObject) -> None:
        self._response = response
        self._sequence = 0
        self._items: list[dict[str, Any]] = []
        # The item that is being written, with whatever of its parts are done.
        self._open: dict[str, Any] | None = None
        self._passed_over = False
        self._has_arguments = False
        self._logprobs: list[dict[str, Any]] = []
        # The end of an item waits for the next event, which may say that it was cut off.
        self._done: dict[str, Any] | None = None
        self.closing = b""
        # The response as the closing event has it, which is the reply in one piece.
        self.ended: dict[str, Any] = {}

    def of(self, event: dict[str, Any]) -> bytes:
        """Server-sent events, none or several; their numbers are those of what is sent."""
        return b"".join(map(self._written, self._events(event)))

    def _events(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        kind = event["type"] = RENAMED.get(event["type"], event["type"])
        if kind == CLOSING:
            yield from self._close(event["response"])
            return
        yield from self._held_back()
        if kind in ("response.created", "response.in_progress"):
            yield {"type": kind, "response": self._response.begun(event["response"])}
        elif kind == ITEM_ADDED:
            yield from self._begin_item(event)
        elif not self._passed_over:
            event |= {"output_index": len(self._items)}
            if "item_id" in event:
                event["item_id"] = self._open_item["id"]
            yield from self._within_item(event)
        elif kind == ITEM_DONE:
            self._passed_over = False

    def _begin_item(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        item = self._response.item(event["item"], len(self._items))
        self._passed_over = self._response.passes_over(item, self._items)
        if self._passed_over:
            return
        self._open, self._has_arguments, self._logprobs = item, False, []
        yield {**event, "item": item, "output_index": len(self._items)}

    def _within_item(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        kind = event["type"]
        if kind == ITEM_DONE:
            yield from self._end_item(event)
            return
        if kind == TEXT_DELTA:
            self._logprobs += event["logprobs"]
        elif kind == TEXT_DONE:
            event["logprobs"] = self._logprobs
        elif kind == PART_DONE:
            event["part"] = self._part(event["part"])
        self._has_arguments = self._has_arguments or kind == ARGUMENTS_DONE
        yield event

    def _end_item(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        item = self._response.item(event["item"], len(self._items))
        if item["type"] == "function_call":
            item["call_id"] = self._open_item["call_id"]
            if not self._has_arguments:
                yield {
                    "type": ARGUMENTS_DONE,
                    "item_id": item["id"],
                    "output_index": len(self._items),
                    "name": item["name"],
                    "arguments": item["arguments"],
                }
        elif item["type"] == "message":
            item["content"] = [self._part(part) for part in item["content"]]
        self._items.append(item)
        self._done = {**event, "item": item, "output_index": len(self._items) - 1}

    def _part(self, part: dict[str, Any]) -> dict[str, Any]:
        if part["type"] != "output_text":
            return part
        return {**part, "logprobs": [with_bytes(each) for each in self._logprobs]}

    def _held_back(self) -> Iterator[dict[str, Any]]:
        if self._done is not None:
            yield self._done
            self._done = None

    def _close(self, response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        self.ended = self._response.ended(response, self._items)
        yield from self._held_back()
        kind = CLOSING if self.ended["status"] == "completed" else "response.incomplete"
        self.closing = self._written({"type": kind, "response": self.ended})

    @property
    def _open_item(self) -> dict[str, Any]:
        assert self._open is not None
        return self._open

    def _written(self, event: dict[str, Any]) -> bytes:
        event["sequence_number"] = self._sequence
        self._sequence += 1
        return written(event)


class ResponseObject:
    """The `response` of one request, around vLLM's output. `repeated` is what it repeats of the request."""

    def __init__(
        self,
        request_id: str,
        model_id: str,
        repeated: Mapping[str, Any],
        *,
        namespaces: Mapping[str, Any],
        parallel_calls: bool,
    ) -> None:
        self._request_id = request_id
        self._model_id = model_id
        self._repeated = repeated
        # What a function is called in the prompt, to its namespace and its name there.
        self._namespaces = namespaces
        self._parallel_calls = parallel_calls

    def begun(self, response: Mapping[str, Any]) -> dict[str, Any]:
        return self._object(response, status="in_progress", output=[])

    def ended(self, response: Mapping[str, Any], output: list[dict[str, Any]]) -> dict[str, Any]:
        """The last item of an answer that was cut off is marked as incomplete. `usage` waits for the settlement, but
        for the tokens that vLLM alone can tell from others."""
        status = response["status"]
        if status == "incomplete" and output:
            output[-1]["status"] = "incomplete"
        ended = self._object(response, status=status, output=output)
        if status == "completed":
            ended["completed_at"] = int(time.time())
        details = (response.get("usage") or {}).get("output_tokens_details") or {}
        ended["usage"] = {"output_tokens_details": {"reasoning_tokens": details.get("reasoning_tokens", 0)}}
        return ended

    def item(self, item: Mapping[str, Any], number: int) -> dict[str, Any]:
        """One of vLLM's output items, without what its type does not have; its id tells the response and its number."""
        found = {name: value for name, value in item.items() if value is not None}
        found["id"] = f"{PREFIXES.get(found['type'], 'item_')}{self._request_id}_{number}"
        if found["type"] == "message":
            found.pop("summary", None)
            found["content"] = [_with_logprobs(part) for part in found["content"]]
        elif found["type"] == "function_call":
            found = {name: value for name, value in found.items() if name in CALL_FIELDS}
            if found["name"] in self._namespaces:
                found["namespace"], found["name"] = self._namespaces[found["name"]]
        elif found["type"] == "reasoning":
            found.setdefault("status", "completed")
        return found

    def passes_over(self, item: Mapping[str, Any], output: list[dict[str, Any]]) -> bool:
        """Whether it is a second call of an answer that may have one."""
        is_call = item["type"] == "function_call"
        return is_call and not self._parallel_calls and any(each["type"] == item["type"] for each in output)

    def _object(self, response: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
        named = ("id", "object", "created_at", "temperature", "top_p")
        return {
            **{name: response[name] for name in named},
            "model": self._model_id,
            "background": False,
            "error": None,
            "incomplete_details": response.get("incomplete_details"),
            "usage": None,
            **self._repeated,
            **fields,
        }


def written(event: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), orjson.dumps(event))


def with_bytes(logprob: Mapping[str, Any]) -> dict[str, Any]:
    """A token of a stream as a whole text has it."""
    top = [{**each, "bytes": list(each["token"].encode())} for each in logprob.get("top_logprobs") or ()]
    return {**logprob, "bytes": list(logprob["token"].encode()), "top_logprobs": top}


def _with_logprobs(part: Mapping[str, Any]) -> dict[str, Any]:
    return {**part, "logprobs": part.get("logprobs") or []}
