"""Events whose money is not what their tokens cost by the price list that they name: charges, savings, compressions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    and_,
    case,
    cast,
    func,
    literal,
    not_,
    select,
)
from sqlalchemy.engine import Row

from billing.price import PICO_PER_NANO, WHOLE_PPM, Cost, ModelPrice, cost, saved_nano_usd
from billing.rollups.archived import archived_until
from billing.rollups.checkpoint_sql import within
from billing.store.schema import prices, usage_events

# With prices of at most 10**12 pico-dollars a token, two products of these and a sum stay within 64 bits.
MOST_TOKENS = 10**6
_e, _p = usage_events.c, prices.c


def surely_priced() -> ColumnElement[bool]:
    """True for an event, joined with its price, that is surely right; never NULL. False says nothing."""
    pico = _pico()
    subtotal = _rounded(pico)
    is_minimum = and_(_e.outcome != "failed", pico < _p.minimum_nano_usd * PICO_PER_NANO)
    due = case((is_minimum, _p.minimum_nano_usd), else_=subtotal)
    is_right = and_(
        _is_plain(),
        _e.subtotal_nano_usd == subtotal,
        _e.cost_nano_usd == due,
        cast(case((_e.minimum_applied, 1), else_=0), Integer) == case((is_minimum, 1), else_=0),
    )
    return func.coalesce(case((is_right, literal(1)), else_=literal(0)), 0) == 1


def _is_plain() -> ColumnElement[bool]:
    """Of the whole price, without a compression or another event, and of no more tokens than can be multiplied."""
    counts = (_e.prompt_tokens, _e.completion_tokens, _e.cached_tokens)
    return and_(
        *(count.between(0, MOST_TOKENS) for count in counts),
        _e.cached_tokens <= _e.prompt_tokens,
        _e.price_ppm == WHOLE_PPM,
        _e.original_tokens.is_(None),
        _e.paired_with.is_(None),
        _e.saved_nano_usd == 0,
        _e.compression_nano_usd == 0,
    )


def _pico() -> ColumnElement[int]:
    cheapest = func.coalesce(_p.cached_input_micro_usd_per_mtok, _p.input_micro_usd_per_mtok)
    return cast(
        case(
            (
                _is_plain(),
                (_e.prompt_tokens - _e.cached_tokens) * _p.input_micro_usd_per_mtok
                + _e.cached_tokens * cheapest
                + _e.completion_tokens * _p.output_micro_usd_per_mtok,
            ),
            else_=0,
        ),
        BigInteger,
    )


def _rounded(pico: ColumnElement[int]) -> ColumnElement[int]:
    """To the nearest nano-dollar, ties to the even one."""
    whole, rest, half = pico // PICO_PER_NANO, pico % PICO_PER_NANO, PICO_PER_NANO // 2
    up = case((rest > half, 1), (and_(rest == half, whole % 2 == 1), 1), else_=0)
    return whole + up


Figure = Literal["cost", "saved", "compression"]
_other = usage_events.alias("other")
_PRICED_EVENTS = (
    select(
        _e.event_id,
        _e.workspace_id,
        _e.model_id,
        _e.prompt_tokens,
        _e.completion_tokens,
        _e.cached_tokens,
        _e.subtotal_nano_usd,
        _e.cost_nano_usd,
        _e.minimum_applied,
        _e.outcome,
        _e.original_tokens,
        _e.original_cached_tokens,
        _e.saved_nano_usd,
        _e.compression_nano_usd,
        _e.paired_with,
        _e.price_ppm,
        prices.c.input_micro_usd_per_mtok,
        prices.c.output_micro_usd_per_mtok,
        prices.c.minimum_nano_usd,
        prices.c.cached_input_micro_usd_per_mtok,
        _other.c.cost_nano_usd.label("paired_cost_nano_usd"),
    )
    .join(prices, and_(prices.c.version == _e.pricing_version, prices.c.model_id == _e.model_id))
    .outerjoin(
        _other,
        # Each names the other, and nothing else tells them: a caller may give many requests one id.
        and_(
            _other.c.event_id == _e.paired_with,
            _other.c.paired_with == _e.event_id,
            _other.c.request_id == _e.request_id,
            _other.c.project_id == _e.project_id,
            _other.c.workspace_id == _e.workspace_id,
        ),
    )
    .where(not_(surely_priced()))
    .order_by(_e.event_id)
)


@dataclass(frozen=True, slots=True)
class WrongFigure:
    """`cost`: of its tokens. `saved`: what its prompt would have cost more uncompressed. `compression`: what the event
    of that compression costs, None where the event names one that is not there or does not name it."""

    figure: Figure
    stored_nano_usd: int
    due_nano_usd: int | None


@dataclass(frozen=True, slots=True)
class MispricedEvent:
    """An event with at least one wrong figure; `charged` and `due` are of its own tokens."""

    event_id: str
    workspace_id: str
    charged: Cost
    due: Cost
    wrong: tuple[WrongFigure, ...]


def mispriced_events(connection: Connection, *, from_id: str, until_id: str | None) -> list[MispricedEvent]:
    """Recomputes the money of the events from one id to before another, or of all from one on.

    In Python's integers, unless the database is sure of it: the product of a token count and a price may pass 64 bits.
    """
    archive = archived_until(connection)
    rows = connection.execute(_PRICED_EVENTS.where(within(from_id, until_id)))
    found = []
    for row in rows:
        charged, due = Cost(row.subtotal_nano_usd, row.cost_nano_usd, row.minimum_applied), _due(row)
        if wrong := tuple(_wrong(row, charged, due, archive)):
            found.append(MispricedEvent(row.event_id, row.workspace_id, charged, due, wrong))
    return found


def _wrong(row: Row[*tuple[Any, ...]], charged: Cost, due: Cost, archive: str) -> Iterator[WrongFigure]:
    if charged != due:
        yield WrongFigure("cost", charged.nano_usd, due.nano_usd)
    saved = _saved(row)
    if row.saved_nano_usd != saved:
        yield WrongFigure("saved", row.saved_nano_usd, saved)
    spent = _spent(row, archive)
    if row.compression_nano_usd != spent:
        yield WrongFigure("compression", row.compression_nano_usd, spent)


def _spent(row: Row[*tuple[Any, ...]], archive: str) -> int | None:
    if row.paired_with is None:
        return 0
    if row.paired_cost_nano_usd is None and row.paired_with < archive:
        # Of a request over the end of a month: both were proven together before the other one was archived.
        spent: int = row.compression_nano_usd
        return spent
    # Only the chat's event, which has an original, says what the other one costs.
    is_chat = row.original_tokens is not None
    paired_cost: int | None = row.paired_cost_nano_usd
    return paired_cost if is_chat or paired_cost is None else 0


def _saved(row: Row[*tuple[Any, ...]]) -> int:
    if row.original_tokens is None:
        return 0
    return saved_nano_usd(
        _price(row),
        row.cost_nano_usd,
        original_tokens=row.original_tokens,
        original_cached_tokens=min(row.original_cached_tokens or 0, row.original_tokens),
        completion_tokens=row.completion_tokens,
        minimum=_with_minimum(row),
    )


def _due(row: Row[*tuple[Any, ...]]) -> Cost:
    return cost(
        _price(row),
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cached_tokens=min(row.cached_tokens, row.prompt_tokens),
        minimum=_with_minimum(row),
    )


def _with_minimum(row: Row[*tuple[Any, ...]]) -> bool:
    """A request that failed after its first token pays for its tokens, and never the minimum."""
    return bool(row.outcome != "failed")


def _price(row: Row[*tuple[Any, ...]]) -> ModelPrice:
    return ModelPrice(
        row.model_id,
        row.input_micro_usd_per_mtok,
        row.output_micro_usd_per_mtok,
        row.minimum_nano_usd,
        row.cached_input_micro_usd_per_mtok,
        row.price_ppm,
    )
