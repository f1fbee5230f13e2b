"""What pith uses of vLLM that vLLM does not promise to keep: the one module that may, with the reason for each name.

`tests/models/vllm/test_insides.py` reads the pinned vLLM's source and says which of them no longer means what is relied
on here. `models/vllm/prompt.py` and `models/vllm/core_imports.py` are part of this rim: the first reads the renderer's
settings, the second loads modules and uses nothing of them.
"""

from collections.abc import Callable, Iterator
from typing import Any

from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.request import get_structured_output_key

__all__ = ["EngineDeadError", "EngineGenerateError", "StructuredOutputOptions"]


def replace_engine_client(client: Any, serving_chat: Any) -> None:
    """Let vLLM's OpenAI layer call `client` where it would call its engine (`OpenAIServingChat.engine_client`).

    Without it no output is counted before it becomes text: a caller who leaves is billed for no completion tokens.
    """
    serving_chat.engine_client = client


def engine_id(request_id: str) -> str:
    """What vLLM's OpenAI layer calls a request when it hands it to the engine. Without it no output finds its meter."""
    return f"chatcmpl-{request_id}"


def states_of(engine_client: Any, external_id: str) -> Iterator[Any]:
    """The running choices of a request in `AsyncLLM.output_processor`.

    Without it a reply that is not streamed has no usage until it ends.
    """
    processor = engine_client.output_processor
    # `get`, since the first is a `defaultdict`, which would grow.
    for internal_id in processor.external_req_ids.get(external_id, ()):
        state = processor.request_states.get(internal_id)
        if state is not None and state.detokenizer is not None:
            yield state


def ended_choices(state: Any) -> Iterator[Any]:
    """Choices that have ended wait with their parent for the last one (`ParentRequest.output_aggregator`), and are
    nowhere else. Without it they would not be billed when a client leaves."""
    aggregated = state.parent_req.output_aggregator if state.parent_req is not None else ()
    return (choice for choice in aggregated if choice is not None)


async def prompt_tokens(serving_chat: Any, request: Any) -> int | ErrorResponse:
    """A prompt's length as a generation would have it (`OpenAIServingChat.online_renderer`, `._extract_prompt_len`).

    Without it nothing can be held for exactly what a prompt costs.
    """
    # `skip_mm_cache`: media that were only counted must not stand in the cache as sent to the engine.
    rendered = await serving_chat.online_renderer.render_chat(request, skip_mm_cache=True)
    if isinstance(rendered, ErrorResponse):
        return rendered
    return sum(serving_chat._extract_prompt_len(prompt) for prompt in rendered[1])


def places(engine_client: Any) -> int:
    """Sequences that the engine works on at once. Without it projects could not be given their shares of them."""
    return int(engine_client.vllm_config.scheduler_config.max_num_seqs)


def any_whitespace(engine_client: Any) -> bool:
    """Whether vLLM compiles JSON grammars with free whitespace: a trial that does otherwise tries another grammar."""
    return not engine_client.vllm_config.structured_outputs_config.disable_any_whitespace


def grammar_key(structured_outputs: Any) -> tuple[StructuredOutputOptions, str]:
    """The kind and the text of the grammar that the engine would compile. Without it none is tried beforehand."""
    kind, spec = get_structured_output_key(structured_outputs)
    return kind, spec


def start_cores_with(context: Callable[[], Any]) -> None:
    """Let `context` give the `multiprocessing` context from which engine cores are started
    (`vllm.v1.engine.utils.get_mp_context`). Without it a core that died is back in half a minute, not in seconds."""
    from vllm.v1.engine import utils

    if not callable(getattr(utils, "get_mp_context", None)):
        raise RuntimeError("vllm.v1.engine.utils.get_mp_context is gone: engine cores cannot be forked")
    utils.get_mp_context = context
