"""Soft landings: where a budget has no room for a chat, it goes on cheaper as the budget's `at_end` says, once."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from billing.accounts.keys import ModelNotAllowed
from billing.errors import BudgetExceeded, PricesUnavailable, QuotaExceeded
from billing.ledger.budgets import FLEX, MODEL, REFUSE
from models.errors import EngineError, EngineRejected, InvalidField, UnknownModel, UnsupportedOption
from serve.chat.request import PreparedChat
from serve.chat.service import ChatService, EngineReply
from serve.http.replies import Client
from serve.money.admission import Admitted
from serve.money.held_request import HeldRequest
from serve.money.prices import price_of
from serve.tracing.request_record import current_record

_NOT_CHARGED = (QuotaExceeded, ModelNotAllowed, PricesUnavailable)
_NO_LANDING = (*_NOT_CHARGED, UnknownModel, UnsupportedOption, InvalidField, EngineError)
logger = logging.getLogger("pith.chat")


@asynccontextmanager
async def open_or_land(
    service: ChatService, chat: PreparedChat, admitted: Admitted, client: Client
) -> AsyncIterator[EngineReply]:
    """`ChatService.open`; where a budget refuses that, once more as another chat, which is compressed, counted, held
    and charged as if it had been asked for. Where that cannot be it goes on as it was asked, if the budget has room;
    else raises the refusal."""
    admitted.may_land = True
    async with AsyncExitStack() as stack:
        try:
            answer = await stack.enter_async_context(service.open(chat, admitted, client))
        except BudgetExceeded as refused:
            admitted.may_land = False
            if refused.at_end == REFUSE:
                raise
            try:
                answer = await stack.enter_async_context(
                    _landed(service, chat, admitted, client, refused.at_end)
                )
            except _NO_LANDING as reason:
                logger.info("budget %s: no landing as %s: %s", refused.budget_id, refused.at_end, reason)
                if not refused.is_early:
                    raise refused from reason
                answer = await stack.enter_async_context(service.open(chat, admitted, client))
            current_record().error = None
        yield answer


@asynccontextmanager
async def _landed(
    service: ChatService, chat: PreparedChat, admitted: Admitted, client: Client, at_end: str
) -> AsyncIterator[EngineReply]:
    """The chat as it is to go on, at its price. The limits a minute have counted it already."""
    landed = _elsewhere(service, chat, admitted, at_end)
    caller = service.at_tier(admitted.caller, landed)
    prices = await service.admissions.prices.of(caller.price_terms)
    if not price_of(prices, landed.model.id).is_below(price_of(admitted.prices, chat.model.id)):
        raise UnsupportedOption("at_end", f"it is not cheaper than {chat.model.id}")
    tokens = service.terms(landed)
    tokens.shrink()
    asked = f"landed:{admitted.asked}"
    there = replace(admitted, caller=caller, prices=prices, parts=[tokens], asked=asked, used_tokens=0)
    try:
        async with service.open(landed, there, client) as answer:
            await _check_room(landed, answer.held)
            offers = ("asked", chat.request), ("given", landed.request)
            answer.landing = {name: {"model": of.model_id, "service_tier": of.tier} for name, of in offers}
            current_record().model = landed.model.id
            yield answer
    finally:
        admitted.used_tokens += there.used_tokens


def _elsewhere(service: ChatService, chat: PreparedChat, admitted: Admitted, at_end: str) -> PreparedChat:
    """With the id and the form of what was asked."""
    options = {"options": {**chat.asked.options, "service_tier": FLEX}}
    asked = replace(chat.asked, **(options if at_end == FLEX else {"model": at_end.removeprefix(MODEL)}))
    landed, first = service.prepare(admitted.caller, asked, most_bytes=chat.most_bytes), chat.request
    if ("tools" in landed.request.options) != ("tools" in first.options):
        raise UnsupportedOption("tools", f"{chat.model.id} treats them otherwise")
    request = replace(landed.request, request_id=first.request_id, form_options=first.form_options)
    return replace(landed, request=request)


async def _check_room(landed: PreparedChat, held: HeldRequest) -> None:
    """Raises `EngineRejected` where it has no room for the prompts, all together, and a reply as long as was asked."""
    room, is_asked = landed.model.context_length, landed.request.max_tokens_field is not None
    reply = landed.request.max_tokens if is_asked else 1
    if held.most.prompt + reply > room and (await held.terms.tokens.counted()).prompt + reply > room:
        raise EngineRejected("the prompt and its reply do not fit its context", param=None, is_too_long=True)
