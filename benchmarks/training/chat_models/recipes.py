"""The shape and the schooling of each embedded model, as plain values without torch."""

from dataclasses import dataclass

HEAD_SIZE = 32  # the smallest that vLLM's CPU attention takes


@dataclass(frozen=True, slots=True)
class Recipe:
    """`steps_per_minute` turns minutes into a fixed number of steps, so that a run can be repeated exactly.

    It was measured on two cores of a server; elsewhere the minutes are only nominal. The penalty was chosen
    over 1.0 to 1.2, with which more greedy replies went in circles and some never ended.
    """

    model_type: str
    context_length: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    key_value_heads: int
    rope_theta: float
    minutes: float
    steps_per_minute: int
    seed: int
    repetition_penalty: float = 1.3


RECIPES: dict[str, Recipe] = {
    "pith-mini": Recipe("llama", 16384, 128, 352, 5, 4, 4, 10_000.0, 6.0, 200, 1),
    "pith-small": Recipe("qwen2", 2048, 64, 192, 6, 2, 1, 10_000.0, 2.0, 300, 2),
    "pith-base": Recipe("qwen3", 65536, 64, 192, 8, 2, 2, 100_000.0, 1.5, 300, 3),
    "pith-wide": Recipe("llama", 2048, 64, 512, 4, 2, 2, 10_000.0, 1.5, 300, 4),
}
