"""What to load an encoder from: plain values, so that they cross a process and need no torch to read."""

from dataclasses import dataclass
from typing import Literal

from compression.pipeline.spec import Dtype


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """`checkpoint`: a folder or hub name; `revision`: its commit. `context_length`: tokens of a window. `threads`: of
    the CPU; None: torch's own number. `max_waiting_tokens`: what may wait for the network; above, work is refused.
    `memory_share`: part of a GPU's memory that the process may take."""

    does: Literal["embed", "relate"]
    checkpoint: str
    revision: str | None
    context_length: int
    device: str = "cpu"
    memory_share: float = 1.0
    dtype: Dtype = "float32"
    threads: int | None = None
    batch_tokens: int = 4096
    max_waiting_tokens: int = 4_000_000
