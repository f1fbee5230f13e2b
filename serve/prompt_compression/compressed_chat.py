"""One chat with a compressed prompt: what it saves in tokens and money, and what its reply says of that."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from logging import getLogger
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, WithJsonSchema

from billing.errors import BillingError
from billing.preservation.sizes import SizedFor
from billing.price import Cost, ModelPrice, cost, dearer_nano_usd, usd
from billing.usage import MeteringStatus, PromptCompression, Saving
from models.engine import TokenUsage
from serve.compressors.compressor import CompressReceipt, receipt_fields, receipts_sha256
from serve.metrics.charged_requests import ObservedPrompt, Reason
from serve.money.held_request import ChargedPrompt, HeldRequest, MoreThanHeld, MostTokens, Receipt
from serve.money.prices import proof_fields, proof_schema
from serve.originals.originals import Kept, Original
from serve.prompt_compression.blocks import Block
from serve.prompt_compression.options import PromptCompressionSettings
from serve.prompt_compression.outcome import BlockOutcome, Claims, CompressedPrompt, receipts_of, tokens_of

# Counted from the end of the reply, when the work beside it has usually ended.
ASIDE_S = 5.0
logger = getLogger("pith.prompt_compression")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """A prompt for which compression was asked. Messages before `newest` were sent in an earlier turn already.

    `conversation` is None unless this conversation takes part in a comparison; `holdout`: on the side left whole.
    `sized`: for whom samples of what compression changes have decided its size, which may be the whole prompt.
    """

    settings: PromptCompressionSettings
    blocks: tuple[Block, ...]
    newest: int
    conversation: str | None
    holdout: bool
    sized: SizedFor | None = None

    @property
    def left_whole(self) -> Reason | None:
        """Why nothing of it is compressed, if so."""
        if self.holdout:
            return "holdout"
        return "within" if self.settings.is_whole else None


@dataclass(slots=True)
class CompressedChat(ChargedPrompt):
    """`part` holds what the compression costs, where it costs anything; the prices are the chat's model's and the
    compression's."""

    prompt: PreparedPrompt
    result: CompressedPrompt
    chat_price: ModelPrice
    price: ModelPrice
    observed: ObservedPrompt
    part: HeldRequest | None = None
    # Counts the prompt as it was.
    count: Callable[[], Coroutine[Any, Any, int]] | None = None
    # Keeps originals.
    keep: Callable[[Sequence[Original]], Coroutine[Any, Any, Kept]] | None = None
    # As settled. `original_tokens` are those of the uncompressed prompt, as the engine counts them; None while unknown.
    original_tokens: int | None = field(default=None, init=False)
    saved_nano_usd: int = field(default=0, init=False)
    # What this chat pays for, once its settlement has begun.
    _claims: Claims | None = field(default=None, init=False)
    _holds_its_cost: bool = field(default=False, init=False)
    _counting: asyncio.Task[int] | None = field(default=None, init=False)
    _keeping: asyncio.Task[Kept] | None = field(default=None, init=False)

    @property
    def cost_nano_usd(self) -> int:
        """The cost of the compression itself."""
        usage = tokens_of(self.result.charged if self._claims is None else self._claims.outcomes)
        return cost(
            self.price,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            minimum=bool(usage.prompt_tokens),
        ).nano_usd

    def charge(self, part: HeldRequest) -> None:
        """Charge this request for its compression. If it exceeds the hold, the prompt is sent whole and nothing is
        charged."""
        try:
            part.use(tokens_of(self.result.charged))
        except MoreThanHeld:
            self.result = self.result.without_charged("failed")
        else:
            self.part = part

    async def give_way(self) -> bool:
        """Need less money, since the quota has no room for this chat: hold of the compression what it costs, send
        whole what is not paid for yet, and in the end all. False if there is nothing left to give."""
        part, refuses = self.part, self.prompt.settings.refuses_on_failure
        if part is not None and not self._holds_its_cost:
            self._holds_its_cost = True
            try:
                await part.hold_less(MostTokens(part.usage.prompt_tokens, part.usage.completion_tokens))
                return True
            except BillingError as error:
                logger.info("%s: the cost of a compression cannot be held: %s", self.price.model_id, error)
        if refuses or not self.result.compressed:
            return False
        if part is None:
            self.result = self.result.whole("quota_exceeded")
            return True
        self.part = None
        await part.release()
        self.result = self.result.without_charged("quota_exceeded")
        return True

    async def wait_for_payers(self, *, within_s: float = ASIDE_S) -> None:
        """Wait, briefly, while other requests that pay for the same blocks are settled."""
        charged = self.result.charged if self.part is not None else []
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while claimed := [each.shared for each in charged if each.shared.is_claimed]:
                    await claimed[0].when_unclaimed()

    def begin_settlement(self) -> HeldRequest | None:
        """Claim what nobody else has paid for, or is about to. Nothing is charged unless the engine's count of both
        prompts shows that it has paid: else the next request may pay."""
        if self.part is None:
            return None
        charged = self.result.charged
        is_dearer = self.saved_nano_usd < self.cost_nano_usd
        self._claims = Claims("sent")
        self._claims.take(() if is_dearer else charged)
        claimed = self._claims.outcomes
        others = {each.id for each in charged if each.shared.is_paid or each.shared.is_claimed}
        self.result = self.result.paid_by_others(others - {each.id for each in claimed})
        self.part.use(tokens_of(claimed), receipts_sha256(receipts_of(claimed)))
        return self.part if claimed else None

    def end_settlement(self, *, is_paid: bool) -> None:
        if self._claims is not None:
            self._claims.end_settlement(is_paid=is_paid)

    def observe(self, saving: Saving, usage: TokenUsage, status: MeteringStatus) -> None:
        self.observed.settle(saving, usage, status)

    def begin_aside(self) -> None:
        """Count the uncompressed prompt and keep the originals while the engine generates: the reply needs both, the
        engine neither. Unchanged prompts need neither."""
        if self._counting is None and self.result.compressed:
            if self.count is not None:
                self._counting = asyncio.create_task(self.count())
            if self.keep is not None and self.prompt.settings.retain_s > 0:
                self._keeping = asyncio.create_task(self.keep(self.result.originals))

    async def finish_aside(self, *, within_s: float = ASIDE_S) -> None:
        """Wait for that work, briefly. If the count fails, no saving is claimed."""
        begun = [task for task in (self._counting, self._keeping) if task is not None]
        if not begun:
            return
        await asyncio.wait(begun, timeout=within_s)
        for task in begun:
            if not task.done():
                logger.warning("%s: not done within %g s after the reply", task.get_coro(), within_s)
                # Done a moment later, the reply would tell of it, and the books would not.
                task.cancel()
            elif not task.cancelled() and (error := task.exception()) is not None:
                logger.warning("the count of a prompt as it was, or its originals, failed: %r", error)

    def close(self) -> None:
        """Cancel the work that is still under way."""
        for task in (self._counting, self._keeping):
            if task is not None:
                task.cancel()

    def retained_until(self, id_: str) -> int | None:
        """The Unix time until which a block's original can be fetched; None where it is not kept."""
        kept = _result_of(self._keeping)
        return None if kept is None else kept.until.get(id_)

    def _original_tokens(self, usage: TokenUsage) -> int | None:
        if not self.result.compressed:
            return usage.prompt_tokens
        return _result_of(self._counting)

    def saving_of(self, usage: TokenUsage, charged: Cost, minimum: bool) -> Saving:
        """The saving: what the uncompressed prompt would have cost more, as the ledger and the reply have it."""
        self.original_tokens = self._original_tokens(usage)
        original = self.original_tokens or usage.prompt_tokens
        cached = self._cached_of(original, usage)
        whole = cost(
            self.chat_price,
            prompt_tokens=original,
            completion_tokens=usage.completion_tokens,
            cached_tokens=cached,
            minimum=minimum,
        )
        self.saved_nano_usd = whole.nano_usd - charged.nano_usd
        return Saving(
            status=self.recorded_status,
            original_tokens=original,
            original_cached_tokens=cached,
            saved_nano_usd=self.saved_nano_usd,
            conversation=self.prompt.conversation,
        )

    def _cached_of(self, original: int, usage: TokenUsage) -> int:
        """The tokens of the uncompressed prompt that would have been cached, at most: those of earlier turns if the
        engine found any, and of the rest as many as it found of what was sent."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        if not cached:
            return 0
        uncached = usage.prompt_tokens - cached
        new = [each for each in self.result.compressed if each.block.message >= self.prompt.newest]
        saved = sum(each.tokens_saved for each in self.result.compressed)
        of_new = sum(each.tokens_saved for each in new) / saved if saved else 0.0
        sent_of_new = sum(each.tokens_sent for each in new)
        # If the same request was sent before, the engine also found its new part.
        unseen = min(1.0, uncached / sent_of_new) if sent_of_new else 0.0
        return max(cached, original - uncached - round((original - usage.prompt_tokens) * of_new * unseen))

    @property
    def recorded_status(self) -> PromptCompression:
        return "holdout" if self.result.holdout else self.result.status


def _result_of(task: asyncio.Task[Value] | None) -> Value | None:
    """None where it failed, or has not ended."""
    if task is None or not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()


COMPRESSION_HEADER = "X-Service-Compression"


class CompressedBlock(BaseModel):
    """A part of the messages that could be compressed."""

    message: int = Field(description="The message's place in the request, from 0.")
    part: int | None = Field(description="The part's place in its content; null if the content is a string.")
    parts: list[int] | None = Field(description="The places of all parts that were compressed together.")
    id: str | None = Field(
        description="Id of its compression: `cmp_…`, the same whenever the part comes again."
    )
    compressed: bool = Field(description="False if it was left whole.")
    cached: bool = Field(description="True if it had been compressed before, which is free.")
    reason: str | None = Field(description="Why it was left whole.")
    receipt: CompressReceipt | None = Field(description="Of its compression.")
    retained_until: int | None = Field(
        description="Unix time until which its original can be fetched, at `/v1/compress/{id}/original`; null if it "
        "is not kept."
    )


def block_fields(outcome: BlockOutcome, retained_until: int | None) -> dict[str, Any]:
    """A `CompressedBlock`; by hand, since a prompt may have thousands."""
    found, parts = outcome.compression if outcome.is_compressed else None, outcome.block.parts
    return {
        "message": outcome.block.message,
        "part": parts[0] if parts else None,
        "parts": list(parts) or None,
        "id": outcome.id if found else None,
        "compressed": found is not None,
        "cached": outcome.is_cached,
        "reason": outcome.reason,
        "receipt": receipt_fields(found.receipt) if found else None,
        "retained_until": retained_until,
    }


# A list of types, where pydantic would write `anyOf`.
MaybeCount = Annotated[int | None, WithJsonSchema({"type": ["integer", "null"]})]
_OBJECTS = WithJsonSchema({"type": "array", "items": {"type": "object"}})


class CompressionReport(BaseModel):
    """What became of a prompt: tokens as the engine counts them, and dollars."""

    status: str = Field(
        description="`applied`, `skipped` (nothing was compressed) or `failed` (a part could not be)."
    )
    holdout: bool = Field(description="True where all of it was sent whole, to measure savings against.")
    model: str = Field(description="The compression model.")
    original_tokens: MaybeCount = Field(description="Tokens of the uncompressed prompt; null if not counted.")
    sent_tokens: int = Field(description="The prompt's tokens as the model read them: `usage.prompt_tokens`.")
    tokens_saved: MaybeCount = Field(description="Their difference.")
    saved_usd: float = Field(description="What the prompt would have cost more, in USD.")
    cost_usd: float = Field(description="What its compression costs, in USD: a charge of its own.")
    net_usd: float = Field(description="`saved_usd` less `cost_usd`.")
    credited_usd: float = Field(
        description="What is credited at once, in USD, where the chat was dearer than without compression."
    )
    blocks: Annotated[list[CompressedBlock], _OBJECTS] = Field(
        description="Each part that could be compressed: `message` and `part` (positions, from 0), all `parts` that "
        "were compressed together, `compressed`, `cached`, the `reason` it was sent whole, its `id`, and its `receipt` "
        "as `POST /v1/compress` has it; `retained_until`, as Unix time, where its original is kept."
    )


def compression_fields(compressed: CompressedChat, receipt: Receipt) -> dict[str, Any]:
    """The `compression` of a reply's `service`."""
    sent, original = receipt.usage.prompt_tokens, compressed.original_tokens
    saved, spent = compressed.saved_nano_usd, compressed.cost_nano_usd
    report = CompressionReport(
        status=compressed.result.status,
        holdout=compressed.result.holdout,
        model=compressed.prompt.settings.model_id,
        original_tokens=original,
        sent_tokens=sent,
        tokens_saved=None if original is None else original - sent,
        saved_usd=usd(saved),
        cost_usd=usd(spent),
        net_usd=usd(saved - spent),
        credited_usd=usd(_credited(compressed, receipt)),
        blocks=[],
    )
    outcomes = compressed.result.outcomes
    blocks = [block_fields(each, compressed.retained_until(each.id)) for each in outcomes]
    part = compressed.part.receipt if compressed.part is not None else None
    return {**report.model_dump(), "blocks": blocks, **proof_fields(part.promise if part else None)}


def _credited(compressed: CompressedChat, receipt: Receipt) -> int:
    if receipt.settlement.status == "not_applicable":
        return 0
    own = receipt.settlement.written_off_nano_usd
    part = compressed.part.receipt if compressed.part is not None else None
    of_part = part.settlement.written_off_nano_usd if part is not None else 0
    return dearer_nano_usd(
        saved_nano_usd=compressed.saved_nano_usd,
        compression_nano_usd=compressed.cost_nano_usd,
        written_off_nano_usd=own + of_part,
        charged_nano_usd=receipt.cost.nano_usd - own,
    )


def document_compression(schema: dict[str, Any]) -> None:
    """Add `compression` to a reply's `service` if it was asked for."""
    members: dict[str, dict[str, Any]] = CompressionReport.model_json_schema()["properties"]
    schema["properties"]["compression"] = {
        "type": "object",
        "description": "What became of the prompt. Absent unless compression was asked for.",
        "properties": {
            name: {key: value for key, value in member.items() if key != "title"}
            for name, member in members.items()
        }
        | {"proof": proof_schema("its compression's charge, an event of its own,")},
    }


def document_header() -> dict[str, Any]:
    """For the 200 response."""
    schema = {"type": "string", "enum": ["applied", "skipped", "off", "failed"]}
    words = "What became of the prompt's long parts; `off` where compression was not asked for."
    return {COMPRESSION_HEADER: {"description": words, "schema": schema}}
