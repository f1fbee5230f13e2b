"""The parts of the check: what each runs, how long it may take, and what it cannot do without."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

NETWORKS, ENGINE, SERVICE = (
    "benchmarks.gpu_check.networks",
    "benchmarks.gpu_check.engine",
    "benchmarks.gpu_check.service",
)


@dataclass(frozen=True, slots=True)
class Part:
    """`module` is run with `words`; `packages` must be installed. `starts_sessions`: of processes that do not end with
    it, and that psutil finds."""

    name: str
    about: str
    module: str
    words: tuple[str, ...]
    limit_s: float
    packages: tuple[str, ...] = ()
    starts_sessions: bool = False

    def skipped(self, device_lacks: str = "") -> str:
        """Why it is not run; empty where it is."""
        missing = [name for name in self.packages if find_spec(name) is None]
        return f"not installed: {', '.join(missing)}" if missing else device_lacks


NEEDED = ("torch", "transformers")
PARTS = (
    Part("classifier", "the token classifier", NETWORKS, ("classifier",), 150, NEEDED),
    Part(
        "llmlingua",
        "PromptCompressor on the same checkpoint",
        NETWORKS,
        ("llmlingua",),
        150,
        (*NEEDED, "llmlingua"),
    ),
    Part("encoder", "the encoder", NETWORKS, ("encoder",), 120, NEEDED),
    Part("engine", "vLLM by itself, by feature", ENGINE, (), 540, (*NEEDED, "vllm", "psutil"), True),
    Part(
        "service",
        "`pith serve` beside vLLM's server",
        SERVICE,
        (),
        480,
        (*NEEDED, "vllm", "ray", "psutil"),
        True,
    ),
)
