"""What vLLM tells of a response becomes what OpenAI's types and the order of its events demand."""

import json
from collections.abc import Sequence
from typing import Any

from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from models.engine import EngineRequest
from models.vllm.response_form import ResponseEvents, ResponseObject

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
REPEATED = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
BEGUN = {"id": "resp_1", "object": "response", "created_at": 1, "temperature": 1.0, "top_p": 1.0}
CUT_OFF = {**BEGUN, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
DONE = {**BEGUN, "status": "completed", "usage": {"output_tokens_details": {"reasoning_tokens": 3}}}


def response(*, parallel_calls: bool = True, **namespaces: list[str]) -> ResponseObject:
    options = {"parallel_tool_calls": parallel_calls}
    form_options = {"response": REPEATED, "namespaces": namespaces}
    return ResponseObject(EngineRequest("1", "m", (), 1, True, "", options, form_options=form_options))


def told(
    said: Sequence[dict[str, Any]], ended: dict[str, Any], of: ResponseObject | None = None
) -> list[dict[str, Any]]:
    """The events that are made of vLLM's, each checked by OpenAI's types."""
    events = ResponseEvents(of or response())
    opening = ("response.created", "response.in_progress")
    first = [{"type": kind, "response": BEGUN} for kind in opening]
    last = {"type": "response.completed", "response": ended}
    data = b"".join(events.of(event) for event in (*first, *said, last)) + events.closing
    found = [json.loads(text.split("\ndata: ")[1]) for text in data.decode().split("\n\n")[:-1]]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    for event in found:
        # The service tells the usage once it has settled.
        unsettled = {"response": {**event["response"], "usage": None}} if "response" in event else {}
        EVENT.validate_python(event | unsettled)
    return found


def item(kind: str, index: int, **fields: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """An item's beginning, and what its end adds; and where its parts are."""
    fields = {"id": f"id{index}", "type": kind, "status": "in_progress", **fields}
    added = {"type": "response.output_item.added", "output_index": index, "item": fields}
    return (
        added,
        {**added, "type": "response.output_item.done"},
        {"output_index": index, "item_id": f"id{index}"},
    )


def call(index: int, name: str = "f", arguments: str = "{}") -> list[dict[str, Any]]:
    added, done, place = item("function_call", index, call_id=f"call{index}", name=name, arguments="")
    end = {
        **done["item"],
        "call_id": "call of another reading",
        "arguments": arguments,
        "status": "completed",
    }
    kind = "response.function_call_arguments."
    if not arguments:
        return [added, {**done, "item": end}]
    return [
        added,
        {**place, "type": f"{kind}delta", "delta": arguments},
        {**place, "type": f"{kind}done", "arguments": arguments, "name": name},
        {**done, "item": end},
    ]


def text(index: int, said: str, logprobs: Sequence[Any] = ()) -> list[dict[str, Any]]:
    added, done, place = item("message", index, role="assistant", content=[])
    place |= {"content_index": 0}
    part = {"type": "output_text", "text": said, "annotations": [], "logprobs": None}
    kind = "response.output_text."
    return [
        added,
        {**place, "type": "response.content_part.added", "part": {**part, "text": "", "logprobs": []}},
        {**place, "type": f"{kind}delta", "delta": said, "logprobs": list(logprobs)},
        {**place, "type": f"{kind}done", "text": said, "logprobs": []},
        {**place, "type": "response.content_part.done", "part": part},
        {**done, "item": {**done["item"], "content": [part], "status": "completed", "summary": []}},
    ]


def reasoning(index: int, said: str) -> list[dict[str, Any]]:
    added, done, place = item("reasoning", index, summary=[])
    place |= {"content_index": 0}
    part = {"type": "reasoning_text", "text": said}
    return [
        added,
        {**place, "type": "response.reasoning_part.added", "part": {**part, "text": ""}},
        {**place, "type": "response.reasoning_text.delta", "delta": said},
        {**place, "type": "response.reasoning_text.done", "text": said},
        {**place, "type": "response.reasoning_part.done", "part": part},
        {**done, "item": {**done["item"], "content": [part], "status": "completed"}},
    ]


def test_the_closing_event_has_the_items_that_were_streamed() -> None:
    events = told([*reasoning(0, "Hm."), *text(1, "Hello."), *call(2)], DONE)
    streamed = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    closing = events[-1]["response"]
    assert closing["output"] == streamed
    assert [each["id"] for each in streamed] == ["rs_1_0", "msg_1_1", "fc_1_2"]
    assert streamed[2]["call_id"] == "call2"
    assert closing["usage"] == {"output_tokens_details": {"reasoning_tokens": 3}}
    assert {event["item_id"] for event in events if "item_id" in event} == {"rs_1_0", "msg_1_1", "fc_1_2"}


def test_an_answer_that_was_cut_off_says_so() -> None:
    *_, done, closing = told([*text(0, "One."), *text(1, "Tw")], CUT_OFF)
    assert (done["type"], done["item"]["status"]) == ("response.output_item.done", "incomplete")
    assert closing["type"] == "response.incomplete"
    assert [each["status"] for each in closing["response"]["output"]] == ["completed", "incomplete"]


def test_a_call_without_arguments_has_them_done() -> None:
    kinds = [event["type"] for event in told(call(0, arguments=""), DONE)]
    assert kinds[-3:-1] == ["response.function_call_arguments.done", "response.output_item.done"]


def test_a_function_of_a_namespace_is_named_as_it_was_offered() -> None:
    (*_, closing) = told(call(0, name="ns__go"), DONE, response(ns__go=["ns", "go"]))
    (made,) = closing["response"]["output"]
    assert (made["namespace"], made["name"]) == ("ns", "go")


def test_what_no_item_has_is_left_out_and_an_item_of_another_type_is_told() -> None:
    said = call(0)
    said[-1]["item"] |= {"output_index": 0, "sequence_number": -1}
    added, done, _ = item("mcp_call", 1, name="python", arguments="", server_label="x")
    (*_, closing) = told([*said, added, {**done, "item": {**done["item"], "status": "completed"}}], DONE)
    made, other = closing["response"]["output"]
    assert not {"output_index", "sequence_number"} & set(made)
    assert (other["type"], other["id"]) == ("mcp_call", "item_1_1")


def test_a_reply_in_one_piece_is_what_the_closing_event_has() -> None:
    events = ResponseEvents(response())
    for event in (*text(0, "Hello."), {"type": "response.completed", "response": DONE}):
        events.of(event)
    assert events.ended == json.loads(events.closing.split(b"data: ")[1])["response"]


def test_who_wants_one_call_gets_one() -> None:
    said = [*call(0), *call(1), *text(2, "Done.")]
    events = told(said, DONE, response(parallel_calls=False))
    assert [each["type"] for each in events[-1]["response"]["output"]] == ["function_call", "message"]
    assert {event["output_index"] for event in events if "output_index" in event} == {0, 1}


def test_a_text_is_done_with_its_log_probabilities() -> None:
    likely = {"token": "é", "logprob": -0.5, "top_logprobs": [{"token": "é", "logprob": -0.5}]}
    events = told(text(0, "é", [likely]), DONE)
    (done,) = [event for event in events if event["type"] == "response.output_text.done"]
    assert done["logprobs"] == [likely]
    (part,) = events[-1]["response"]["output"][0]["content"]
    assert part["logprobs"][0]["bytes"] == [0xC3, 0xA9]
