"""Scores of a reply after another prompt: its tokens' log probabilities, as if the engine had generated them there.

vLLM gives them as `prompt_logprobs` of a prompt that ends with the reply. By itself it would compute all of that prompt
in one step, and log probabilities of all its tokens. Here the prompt is first read in pieces, each one longer than the
one before and found in the prefix cache up to that; and then the reply is appended in pieces, of which few rows are
left to compute (`models.vllm.scored_rows` holds a core to that). Every piece is a request for one token.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import count
from time import perf_counter
from typing import Any

from vllm import SamplingParams
from vllm.inputs.engine import tokens_input

from models.engine import EngineFault, EngineRequest, ScoredReply, Turn
from models.vllm import insides
from models.vllm.lending import PAUSED
from models.vllm.scored_rows import MOST_ROWS, SCORED

# A piece should take no longer: so long may a request wait that comes just then. One block is the least.
PIECE_S = 0.05
MOST_BLOCKS = 64
# A piece that takes longer waits for others; whoever scores tries another chat.
LONGEST_PIECE_S = 20.0


class NotScored(Exception):
    """The message says why."""


class ReplyScorer:
    """Scores one reply after one prompt. The cache has its blocks under a salt of its own: what is found there of the
    reply, which was generated a moment ago, would have no log probabilities."""

    def __init__(self, client: Any, request: EngineRequest, adapter: Any, turn: Turn) -> None:
        self._client = client
        self._id = f"score-{request.request_id}"
        self._salt = f"{request.cache_salt}:{self._id}"
        self._adapter = adapter
        self._turn = turn
        self._block = insides.block_tokens(client)
        self._numbers = count()
        self._blocks = 1
        self._engine_s = 0.0

    async def score(self, prompt: Sequence[int], reply: Sequence[int]) -> ScoredReply:
        """Raises `NotScored`, and what the client raises."""
        if self._block >= MOST_ROWS:
            raise NotScored(f"the blocks of its prefix cache have {self._block} tokens")
        tokens = [*prompt, *reply]
        cached = (len(prompt) - 1) // self._block * self._block
        await self._read(tokens[:cached])
        log_probs: list[float] = []
        likeliest: list[int] = []
        at = len(prompt)
        while at < len(tokens):
            # Ending with the first token of a block, it leaves one token to compute again: the place before it.
            blocks = min(self._blocks, (MOST_ROWS - 1) // self._block)
            end = min(len(tokens), cached + blocks * self._block + 1)
            for token, row in zip(tokens[at:end], await self._rows(tokens[:end], end - at), strict=True):
                log_probs.append(row[token].logprob)
                likeliest.append(next(id_ for id_, one in row.items() if one.rank == 1))
            at, cached = end, end - 1
        return ScoredReply(len(prompt), tuple(log_probs), tuple(likeliest), self._engine_s)

    async def _read(self, prompt: Sequence[int]) -> None:
        end = 0
        while end < len(prompt):
            end = min(len(prompt), end + self._blocks * self._block)
            await self._piece(prompt[:end], SamplingParams(max_tokens=1, temperature=0.0, detokenize=False))

    async def _rows(self, tokens: Sequence[int], wanted: int) -> Sequence[Any]:
        """For each of the last tokens, what was likely in its place, by token id."""
        params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            detokenize=False,
            prompt_logprobs=1,
            # By itself vLLM would compute all of the prompt.
            skip_reading_prefix_cache=False,
            extra_args={SCORED: wanted},
        )
        output = await self._piece(tokens, params)
        rows = output.prompt_logprobs or ()
        # The first token of a prompt has no row.
        if len(rows) <= wanted and None in rows[-wanted:]:
            raise NotScored("its prompt was dropped from the prefix cache")
        return rows[-wanted:]

    async def _piece(self, tokens: Sequence[int], params: SamplingParams) -> Any:
        async with self._turn():
            began = perf_counter()
            try:
                async with (
                    asyncio.timeout(LONGEST_PIECE_S),
                    aclosing(self._outputs(tokens, params)) as outputs,
                ):
                    async for output in outputs:
                        last = output
            except TimeoutError:
                raise NotScored("the engine had other work") from None
            took_s = perf_counter() - began
        self._engine_s += took_s
        self._blocks = (
            min(MOST_BLOCKS, self._blocks * 2) if took_s < PIECE_S / 2 else max(1, self._blocks // 2)
        )
        return last

    def _outputs(self, tokens: Sequence[int], params: SamplingParams) -> AsyncGenerator[Any, None]:
        outputs: AsyncGenerator[Any, None] = self._client.generate(
            tokens_input([*tokens], cache_salt=self._salt),
            params,
            f"{self._id}-{next(self._numbers)}",
            lora_request=self._adapter,
            # Behind all others.
            priority=PAUSED,
        )
        return outputs


def cannot_score(client: Any, request: EngineRequest) -> EngineFault | None:
    """The reason for which this engine scores no reply of such a request."""
    if not insides.cache_tokens(client):
        return EngineFault("rejected", "the engine has no prefix cache")
    if not insides.scores_are_log_probs(client):
        return EngineFault("rejected", "the engine gives logits in place of log probabilities")
    if request.prompts:
        return EngineFault("rejected", "a completion has no messages that could be compressed")
    return None
