"""Soft landings: where a budget has no room for a chat, it goes on cheaper as the budget's `at_end` says, once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from billing.accounts.keys import ModelNotAllowed
from billing.errors import BudgetExceeded, PricesUnavailable, QuotaExceeded
from billing.ledger.budgets import FLEX, MODEL, REFUSE
from models.engine import EngineRequest
from models.errors import EngineError, EngineRejected, InvalidField, UnknownModel, UnsupportedOption
from serve.chat.request import PreparedChat
from serve.chat.service import ChatService, EngineReply
from serve.http.replies import Client
from serve.money.admission import Admitted
from serve.money.prices import price_of
from serve.tracing.request_record import current_record

logger = logging.getLogger("pith.chat")


class _NotCheaper(Exception):
    """Where the chat was to land, something costs more than where it was asked, or nothing costs less."""


# Why a chat cannot land; then it is refused as without a landing.
_NO_LANDING = (
    QuotaExceeded,
    ModelNotAllowed,
    PricesUnavailable,
    UnknownModel,
    UnsupportedOption,
    InvalidField,
    EngineError,
    _NotCheaper,
)


@asynccontextmanager
async def open_or_land(
    service: ChatService, chat: PreparedChat, admitted: Admitted, client: Client
) -> AsyncIterator[EngineReply]:
    """`ChatService.open`; where a budget refuses that, once more as another chat, which is compressed, counted, held
    and charged as if it had been asked for. Raises the refusal where that cannot be."""
    async with AsyncExitStack() as stack:
        try:
            answer = await stack.enter_async_context(service.open(chat, admitted, client))
        except BudgetExceeded as refused:
            if refused.at_end == REFUSE:
                raise
            try:
                answer = await _land(stack, service, chat, admitted, client, refused.at_end)
            except _NO_LANDING as reason:
                logger.info("budget %s: no landing as %s: %s", refused.budget_id, refused.at_end, reason)
                raise refused from reason
        yield answer


async def _land(
    stack: AsyncExitStack,
    service: ChatService,
    chat: PreparedChat,
    admitted: Admitted,
    client: Client,
    at_end: str,
) -> EngineReply:
    landed = _prepared(service, chat, admitted, at_end)
    caller = service.at_tier(admitted.caller, landed)
    prices = await service.admissions.prices.of(caller.price_terms)
    if not price_of(prices, landed.model.id).is_below(price_of(admitted.prices, chat.model.id)):
        raise _NotCheaper(f"it is not cheaper than {chat.model.id}")
    tokens = service.terms(landed)
    tokens.shrink()
    admitted.land(caller, prices, tokens)
    answer = await stack.enter_async_context(service.open(landed, admitted, client))
    await _check_room(landed, answer)
    answer.landing = {"asked": _offer(chat.request), "given": _offer(landed.request)}
    record = current_record()
    record.model, record.error = landed.model.id, None
    return answer


def _prepared(service: ChatService, chat: PreparedChat, admitted: Admitted, at_end: str) -> PreparedChat:
    """The chat as it is to go on, every option checked against the model. Its reply keeps its id and its form."""
    if at_end == FLEX:
        asked = replace(chat.asked, options={**chat.asked.options, "service_tier": FLEX})
    else:
        asked = replace(chat.asked, model=at_end.removeprefix(MODEL))
    landed = service.prepare(admitted.caller, asked, most_bytes=chat.most_bytes)
    first = chat.request
    request = replace(landed.request, request_id=first.request_id, form_options=first.form_options)
    return replace(landed, request=request)


def _offer(request: EngineRequest) -> dict[str, str]:
    return {"model": request.model_id, "service_tier": request.tier}


async def _check_room(landed: PreparedChat, answer: EngineReply) -> None:
    """Raises `EngineRejected` where the model would, since nobody asked for it: it has no room for the prompt and all
    of the reply. (Of several prompts, for all of them together.)"""
    request, held = landed.request, answer.held
    reply = 1 if request.max_tokens_field is None else request.max_tokens
    if held.most.prompt + reply <= landed.model.context_length:
        return
    counted = await held.terms.tokens.counted()
    if counted.prompt + reply > landed.model.context_length:
        raise EngineRejected("the prompt and its reply do not fit its context", param=None, is_too_long=True)
