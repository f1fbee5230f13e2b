"""The kinds of compression models, a row each: what scores, whether it needs torch, and how its scores are blended.

To add a scorer, write it and add a row here: CONTRIBUTING.md says how.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

Kind = Literal["lexical", "encoder", "token_classifier", "query_classifier"]


@dataclass(frozen=True, slots=True)
class Blend:
    """Weights by which a neural score s in [0, 1] joins the lexical scorer's logit l.

    The blended score is sigmoid(lexical * l + neural * (s - midpoint)); weights are not negative.
    """

    lexical: float
    neural: float
    midpoint: float = 0.5

    def __post_init__(self) -> None:
        if self.lexical < 0 or self.neural < 0:
            raise ValueError(f"blend: weights must not be negative, not {self.lexical:g} and {self.neural:g}")
        if not self.lexical and not self.neural:
            raise ValueError("blend: lexical and neural must not both be 0")


@dataclass(frozen=True, slots=True)
class ScorerKind:
    """`scorer` names what makes the scorer, as `module:name`: reading this table imports neither numpy nor torch.

    It is called without arguments, or with the `ModelSpec` where `has_network`: such a kind runs a checkpoint on torch,
    and its scores join the lexical scorer's by `blend`, unless the spec says otherwise. `scorer` is None for a kind
    that chooses single words: `compression.neural.build` builds that one, and no calibration can be fitted to it.
    """

    scorer: str | None
    has_network: bool = False
    blend: Blend | None = None

    @property
    def chooses_words(self) -> bool:
        return self.scorer is None

    def maker(self) -> Callable[..., Any]:
        """The callable that `scorer` names. Raises `ValueError` for a kind that chooses words."""
        if self.scorer is None:
            raise ValueError("a kind that selects words has no unit scorer")
        module, _, name = self.scorer.partition(":")
        found: Callable[..., Any] = attrgetter(name)(importlib.import_module(module))
        return found


KINDS: dict[str, ScorerKind] = {
    "lexical": ScorerKind("compression.scorers.lexical:LexicalScorer.load"),
    # Measured with MiniLM on questions to twenty hard passages; a cosine c is the score (1 + c) / 2.
    "encoder": ScorerKind(
        "compression.neural.encoder:Encoder.of",
        has_network=True,
        blend=Blend(lexical=0.5, neural=32.0, midpoint=0.72),
    ),
    "query_classifier": ScorerKind(
        "compression.neural.query_classifier:QueryClassifier.of",
        has_network=True,
        blend=Blend(lexical=0.5, neural=8.0, midpoint=0.5),
    ),
    "token_classifier": ScorerKind(None, has_network=True),
}
