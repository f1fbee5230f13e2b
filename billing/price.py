"""The only place where usage becomes cost: integers in, integers out, rounded once."""

from __future__ import annotations

from dataclasses import dataclass

PICO_PER_NANO = 1000
NANO_PER_USD = 1_000_000_000
# Costs live in signed 64-bit columns. At four times a dollar a token, a billion tokens each way still fit.
MAX_MICRO_USD_PER_MTOK = 10**12
MAX_MINIMUM_NANO_USD = 10**15
MAX_TOKENS = 10**9
# Parts of a price are counted in millionths: of this many, it is the whole price.
WHOLE_PPM = 1_000_000
MAX_PPM = 4 * WHOLE_PPM


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Prices of one model. A micro-USD per million tokens is a pico-USD per token: products are exact.

    `ppm` is what is charged of them, the minimum included, in millionths; more than a million where it is dearer.
    """

    model_id: str
    input_micro_usd_per_mtok: int
    output_micro_usd_per_mtok: int
    minimum_nano_usd: int
    # Of prompt tokens found in the prefix cache; None: input's.
    cached_input_micro_usd_per_mtok: int | None = None
    ppm: int = WHOLE_PPM

    def __post_init__(self) -> None:
        if not self.model_id:
            raise ValueError("model_id: must not be empty")
        _check("input_micro_usd_per_mtok", self.input_micro_usd_per_mtok, MAX_MICRO_USD_PER_MTOK)
        _check("output_micro_usd_per_mtok", self.output_micro_usd_per_mtok, MAX_MICRO_USD_PER_MTOK)
        _check("minimum_nano_usd", self.minimum_nano_usd, MAX_MINIMUM_NANO_USD)
        if self.cached_input_micro_usd_per_mtok is not None:
            # Never dearer: what is held for a prompt of which nothing is cached covers it.
            most = self.input_micro_usd_per_mtok
            _check("cached_input_micro_usd_per_mtok", self.cached_input_micro_usd_per_mtok, most)
        _check("ppm", self.ppm, MAX_PPM)

    @property
    def is_free(self) -> bool:
        """True where no request to it is charged anything."""
        highest = self.input_micro_usd_per_mtok, self.output_micro_usd_per_mtok, self.minimum_nano_usd
        return self.ppm == 0 or not any(highest)

    def is_below(self, other: ModelPrice) -> bool:
        """True where nothing is charged more than at the other price, and something less."""
        mine, its = self._charged(), other._charged()
        return mine != its and all(map(int.__le__, mine, its))

    def _charged(self) -> list[int]:
        of_prompts = self.input_micro_usd_per_mtok, self.cheapest_input_micro_usd_per_mtok
        whole = (*of_prompts, self.output_micro_usd_per_mtok, self.minimum_nano_usd)
        return [part * self.ppm for part in whole]

    @property
    def cheapest_input_micro_usd_per_mtok(self) -> int:
        """The least cost of a prompt token."""
        cached = self.cached_input_micro_usd_per_mtok
        return self.input_micro_usd_per_mtok if cached is None else cached


@dataclass(frozen=True, slots=True)
class Cost:
    """`nano_usd` is what is charged; `minimum_applied` is true when the minimum, not the tokens, set it."""

    subtotal_nano_usd: int
    nano_usd: int
    minimum_applied: bool


def cost(
    price: ModelPrice, *, prompt_tokens: int, completion_tokens: int, minimum: bool, cached_tokens: int = 0
) -> Cost:
    """The greater of the token subtotal and, where `minimum` says that it counts, the request minimum.

    `cached_tokens` are part of the prompt's.
    """
    _check("prompt_tokens", prompt_tokens)
    _check("completion_tokens", completion_tokens)
    _check("cached_tokens", cached_tokens, prompt_tokens)
    pico_usd = (
        (prompt_tokens - cached_tokens) * price.input_micro_usd_per_mtok
        + cached_tokens * price.cheapest_input_micro_usd_per_mtok
        + completion_tokens * price.output_micro_usd_per_mtok
    )
    subtotal_nano_usd = round_half_even(pico_usd * price.ppm, PICO_PER_NANO * WHOLE_PPM)
    # Compared before rounding: a subtotal a pico-USD short of the minimum is under it.
    if minimum and pico_usd < price.minimum_nano_usd * PICO_PER_NANO:
        least = round_half_even(price.minimum_nano_usd * price.ppm, WHOLE_PPM)
        return Cost(subtotal_nano_usd, least, minimum_applied=True)
    return Cost(subtotal_nano_usd, subtotal_nano_usd, minimum_applied=False)


def saved_nano_usd(
    price: ModelPrice,
    charged_nano_usd: int,
    *,
    original_tokens: int,
    original_cached_tokens: int,
    completion_tokens: int,
    minimum: bool,
) -> int:
    """Cost of a chat with a prompt of the original tokens, above `charged_nano_usd`. Below zero where
    it would have cost less."""
    whole = cost(
        price,
        prompt_tokens=original_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=original_cached_tokens,
        minimum=minimum,
    )
    return whole.nano_usd - charged_nano_usd


def dearer_nano_usd(
    *, saved_nano_usd: int, compression_nano_usd: int, written_off_nano_usd: int, charged_nano_usd: int
) -> int:
    """What is credited of a chat that its compression made dearer, the charge for that included: at most what the chat
    was charged; 0 where it was not dearer. Of both, `written_off_nano_usd` is not owed anyway."""
    dearer = compression_nano_usd - saved_nano_usd - written_off_nano_usd
    return max(0, min(dearer, charged_nano_usd))


def worst_case(price: ModelPrice, *, prompt_tokens_bound: int, max_tokens: int) -> Cost:
    """No outcome of the request costs more. `max_tokens` counts every choice: n x the limit of one."""
    return cost(price, prompt_tokens=prompt_tokens_bound, completion_tokens=max_tokens, minimum=True)


def usd(nano: int) -> float:
    """For JSON only: the float nearest to the exact amount."""
    return nano / NANO_PER_USD


def exact_usd(nano: int) -> str:
    """The exact amount as text, with as many decimals as it needs and at least two: `12.30`, `-0.000000001`."""
    whole, part = divmod(abs(nano), NANO_PER_USD)
    decimals = f"{part:09d}".rstrip("0").ljust(2, "0")
    return f"{'-' if nano < 0 else ''}{whole}.{decimals}"


def round_half_even(numerator: int, denominator: int) -> int:
    """`numerator / denominator` of non-negative integers, rounded to the nearest, ties to the even one."""
    quotient, remainder = divmod(numerator, denominator)
    twice = 2 * remainder
    if twice > denominator or (twice == denominator and quotient % 2 == 1):
        return quotient + 1
    return quotient


def _check(name: str, value: int, most: int = MAX_TOKENS) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: must be an integer, not {type(value).__name__}")
    if not 0 <= value <= most:
        raise ValueError(f"{name}: must be between 0 and {most}, not {value}")
