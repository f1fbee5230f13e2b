"""A reply that goes on in vLLM from the tokens that another engine has delivered of it.

vLLM is given prompt and delivered tokens as one prompt. What turns tokens into text is given the prompt alone and then
the delivered tokens as generated ones, so that it is where the other was: within a character, and within a stop string.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.detokenizer import IncrementalDetokenizer
from vllm.v1.engine.output_processor import RequestState

# In a request's extra arguments: how many of its prompt's last tokens are the reply's, and its own least tokens.
SAID, LEAST = "pith_said", "pith_min_tokens"


def going_on_from(prompt: Mapping[str, Any], params: Any, said: Sequence[int]) -> tuple[dict[str, Any], Any]:
    """The prompt and the parameters with which the engine goes on after the tokens that were said."""
    going = params.clone()
    going.extra_args = {**(params.extra_args or {}), SAID: len(said), LEAST: params.min_tokens}
    going.max_tokens = max(1, params.max_tokens - len(said))
    going.min_tokens = max(0, params.min_tokens - len(said))
    return {**prompt, "prompt_token_ids": [*prompt["prompt_token_ids"], *said]}, going


def go_on_from_what_was_said() -> None:
    """Let the engines of this process know what of a prompt is the reply's (`RequestState.from_new_request`)."""
    if not hasattr(RequestState, "began_alone"):
        RequestState.began_alone = RequestState.from_new_request
        RequestState.from_new_request = classmethod(_from_new_request)


def _from_new_request(cls: Any, tokenizer: Any, request: Any, *given: Any, **options: Any) -> Any:
    state = cls.began_alone(tokenizer, request, *given, **options)
    extra = (request.sampling_params.extra_args or {}) if request.sampling_params is not None else {}
    if SAID in extra:
        _prime(state, tokenizer, request, said=extra[SAID], least=extra[LEAST])
    return state


def _prime(state: Any, tokenizer: Any, request: Any, *, said: int, least: int) -> None:
    ids = request.prompt_token_ids
    begun, reply = copy.copy(request), ids[-said:]
    begun.prompt_token_ids = state.prompt_token_ids = ids[:-said]
    state.prompt_len, state.sent_tokens_offset = len(ids) - said, said
    state.detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, begun)
    state.detokenizer.min_tokens = least
    state.detokenizer.update(list(reply), False)
    if state.output_kind is RequestOutputKind.DELTA:
        # All but what a stop string may begin with was delivered.
        state.detokenizer.get_next_output_text(finished=False, delta=True)
