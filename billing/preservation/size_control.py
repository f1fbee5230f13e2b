"""Control of the size of compressed prompts: smaller while what it changes in replies stays within a bound, or larger.

Adaptive conformal inference (Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021)
on a ladder of sizes: each sample moves the position on it, towards smaller prompts by what it is below the bound, or
back by what it is above. So the position is an account: whatever the samples are, their sum is at no time above

    bound * samples - MARGIN * sqrt(squares) + (START - position) * bound / GAIN

The last part is at most a hundred bounds while the position is on the ladder, however many samples there are. The
margin is for the chats that are no samples: `squares` are those of what each sample was off the mean before it, so that
it is some standard errors of their mean. It is no proof: one that holds for any bounded samples, as
`confidence_sequence` has it, would need thousands of these before it moved, since a few are great.
`tests/billing/preservation/streams.py` simulates how often the bound holds over all chats, and what that costs.

Between two sizes of the ladder a share of conversations has the smaller one. So a step changes the size, and with it
the prefix, of a quarter of the conversations that are under way.
"""

from dataclasses import dataclass, replace
from math import floor, sqrt

# The probability that the evidence is kept, from the whole prompt on to the smallest.
SIZES: tuple[float | None, ...] = (None, 0.99, 0.98, 0.95, 0.9, 0.8)
TOP = float(len(SIZES) - 1)
# All conversations at 0.99.
START = 1.0
# Of a size, for a sample that is off the bound by as much as the bound.
GAIN = 0.01
MARGIN = 1.4
# In parts of the ladder: nobody's size changes for less.
STEPS = 4
# Nats a token in the mean of a reply, which no real one comes near.
LARGEST = 8.0


@dataclass(frozen=True, slots=True)
class SizeControl:
    """The account of one project's samples. `step` is the position that is in use, rounded towards the whole prompt.

    Chats that are sent whole, as their size, are samples of 0: the bound is of the mean over all of them.
    """

    step: float = START
    position: float = START
    samples: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.samples if self.samples else 0.0

    def after(self, shift: float, bound: float) -> "SizeControl":
        """With one more sample: what compression changed in a reply, in the unit of the bound, which is above 0."""
        shift = min(LARGEST, max(-LARGEST, shift))
        squares = self.squares + (shift - self.mean) ** 2
        margin = MARGIN * (sqrt(squares) - sqrt(self.squares))
        position = min(TOP, self.position + GAIN * (bound - shift - margin) / bound)
        return replace(
            self,
            step=_step(self.step, position),
            position=position,
            samples=self.samples + 1,
            total=self.total + shift,
            squares=squares,
        )


def _step(step: float, position: float) -> float:
    """Down at once; up once two steps are due, so that it does not go to and fro."""
    if step <= position < min(TOP, step + 2 / STEPS):
        return step
    return max(0.0, floor(position * STEPS) / STEPS)


def size_of(step: float, drawn: float) -> float | None:
    """The size of a conversation that drew a number from 0 to below 1: `keep`, or None for the whole prompt."""
    return SIZES[min(len(SIZES) - 1, max(0, floor(step + drawn)))]


def shares_of(step: float) -> dict[str, float]:
    """Of conversations, by the size that they have at this step."""
    at = min(len(SIZES) - 1, max(0, floor(step)))
    smaller = step - at
    shares = {_name(SIZES[at]): 1 - smaller}
    return shares | ({_name(SIZES[at + 1]): smaller} if smaller > 0 else {})


def _name(size: float | None) -> str:
    return "whole" if size is None else f"{size:g}"
