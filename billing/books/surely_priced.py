"""Which events the database itself finds priced as they should be: most are, and need no second look.

It computes what `billing.price.cost` does, where no product passes 64 bits. The others are computed there.
"""

from sqlalchemy import BigInteger, ColumnElement, Integer, and_, case, cast, func, literal

from billing.price import PICO_PER_NANO, WHOLE_PPM
from billing.store.schema import prices, usage_events

# With prices of at most 10**12 pico-dollars a token, two products of these and a sum stay within 64 bits.
MOST_TOKENS = 10**6
_e, _p = usage_events.c, prices.c


def surely_priced() -> ColumnElement[bool]:
    """Of an event joined with its price; never NULL. False says nothing."""
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
