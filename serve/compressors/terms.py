"""The most that compressing texts can use, before and after they are counted."""

import asyncio
from collections.abc import Sequence

from compression.pipeline.errors import CompressionTimedOut
from compression.pipeline.served import JobTerms
from serve.compressors.served import ServedCompressor
from serve.money.terms import MostTokens, TokenTerms

# How many texts of one request are counted or compressed at a time: other requests need the workers too.
AT_ONCE = 4


def token_terms(
    model_id: str,
    served: ServedCompressor,
    texts: Sequence[str],
    *,
    payer: str,
    counts_against_limits: bool = True,
    deadline_s: float | None = None,
) -> TokenTerms:
    """The tokens of these texts, together. If nothing is proven of the tokenizer, a byte counts as a token until they
    are counted, which is done before anything is held; `deadline_s` bounds that, besides the model's own."""
    most = sum(len(text.encode()) for text in texts) * (served.tokens_per_byte or 1)

    async def count() -> MostTokens:
        places = asyncio.Semaphore(AT_ONCE)

        async def of(text: str) -> int:
            async with places:
                return await served.model.count_tokens(text, JobTerms(payer=payer, deadline_s=deadline_s))

        try:
            async with asyncio.timeout(deadline_s):
                counted = sum(await asyncio.gather(*map(of, texts)))
        except TimeoutError:
            raise CompressionTimedOut(f"{model_id}: not counted within {deadline_s:g} s") from None
        return MostTokens(counted, max(counted, most))

    return TokenTerms(
        model_id,
        MostTokens(most, most),
        MostTokens(1, most),
        count,
        bound_is_proven=served.tokens_per_byte is not None,
        limits_completion=False,
        counts_against_limits=counts_against_limits,
    )
