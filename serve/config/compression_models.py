"""Settings of the compression models and of their routes: the part of the configuration that an ML engineer tunes."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from compression.choosing.protection import Protection
from compression.choosing.selection import SelectionSettings
from compression.flags import FlagSettings
from compression.pipeline.spec import CompressionSettings, Dtype, Fidelity, ModelSpec, Steering
from compression.scorers.kinds import KINDS, Blend, Kind
from compression.workers.lanes import PoolPlan, plan_of
from models.embedded.install import EMBEDDED_MODELS
from serve.config.billing import RetentionSettings
from serve.config.values import ReplicaCounts, Section

Share = Annotated[float, Field(ge=0, le=1)]
_FLAGS = FlagSettings()
PACKAGED = "embedded:"
_ROOT = Path(__file__).parents[2]
# The embedded chat models share one tokenizer.
PACKAGED_TOKENIZERS = dict.fromkeys(EMBEDDED_MODELS, _ROOT / "models/embedded/tokenizer")
PACKAGED_CHECKPOINTS = {"small": _ROOT / "compression/neural/small"}
Price = Annotated[Decimal, Field(ge=0, le=1_000_000, max_digits=15, decimal_places=6)]


class FlagThresholdSettings(Section):
    aggressive_ratio: Share = Field(
        _FLAGS.aggressive_ratio, description="A target ratio below this is flagged."
    )
    short_input_tokens: int = Field(
        _FLAGS.short_input_tokens, ge=0, le=1_000_000, description="An input of fewer tokens is flagged."
    )
    low_relevance: Share = Field(
        _FLAGS.low_relevance, description="Flagged if no unit scores at least this, from 0 to 1."
    )
    borderline_share: Share = Field(
        _FLAGS.borderline_share, description="Flagged if the dropped units have this share of the odds."
    )
    query_terms_share: Share = Field(
        _FLAGS.query_terms_share,
        description="Flagged if the output has a smaller share of the query's terms.",
    )
    unsupported_share: Share = Field(
        _FLAGS.unsupported_share, description="Flagged if this share of the letters is in other scripts."
    )
    at_risk_critical: Share | None = Field(
        None, description="Below this probability the flag is critical; default: the calibration's."
    )
    at_risk_warning: Share | None = Field(
        None, description="The same for a warning; default: the calibration's."
    )
    at_risk_info: Share | None = Field(
        None, description="The same for information; default: the calibration's."
    )
    scripts: list[str] = Field(sorted(_FLAGS.scripts), description="Scripts that the model can judge.")
    disabled: list[str] = Field([], description="Codes that are never raised.")

    @model_validator(mode="after")
    def _known_codes(self) -> FlagThresholdSettings:
        self.thresholds()
        return self

    def thresholds(self) -> FlagSettings:
        given = self.model_dump(exclude={"scripts", "disabled"})
        return FlagSettings(**given, scripts=frozenset(self.scripts), disabled=frozenset(self.disabled))


class RatioSettings(Section):
    default: float = Field(0.5, gt=0, le=1, description="Ratio of a request that names none.")
    min: float = Field(0.0, ge=0, lt=1, description="Lowest ratio that is taken; 0 takes all above 0.")
    max: float = Field(1.0, gt=0, le=1, description="Highest ratio that is taken.")

    @model_validator(mode="after")
    def _ordered(self) -> RatioSettings:
        if not self.min < self.max:
            raise ValueError(f"min ({self.min:g}) must be below max ({self.max:g})")
        if not self.min <= self.default <= self.max:
            raise ValueError(f"default ({self.default:g}) is not between {self.min:g} and {self.max:g}")
        return self


class BlendSettings(Section):
    """The blended score is sigmoid(lexical x the lexical logit + neural x (the neural score - midpoint))."""

    lexical: float = Field(ge=0, le=1000, description="Weight of the lexical scorer's logit.")
    neural: float = Field(ge=0, le=1000, description="Weight of the neural score, which is from 0 to 1.")
    midpoint: Share = Field(0.5, description="Neural score that counts neither for nor against a unit.")

    @model_validator(mode="after")
    def _something_counts(self) -> BlendSettings:
        if not self.lexical and not self.neural:
            raise ValueError("lexical and neural must not both be 0")
        return self


class ChoiceSettings(Section):
    keep_titles: bool = Field(
        True, description="Keep a document's title with any part of it, out of the same budget."
    )
    density: Share = Field(0.0, description="0 ranks units by score alone, 1 by score a token.")
    swaps: int = Field(16, ge=0, le=1000, description="Units left out that are tried in place of worse ones.")


class CompressionReplicaSettings(ReplicaCounts):
    max_ongoing_requests: int = Field(
        64, ge=1, description="Twice the requests in a replica at which another one is started."
    )
    gpus: float = Field(0, ge=0, le=64, description="GPUs that Ray sets aside for a replica; may be a part.")


class CompressionModelSettings(Section):
    id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,126}$", description="What callers send as `model`."
    )
    name: str = Field(min_length=1, description="Display name.")
    blurb: str = Field(min_length=1, description="One or two sentences for the public catalog.")
    kind: Kind = Field(
        description="The kind of scorer: `lexical` needs no checkpoint and no torch, the others do."
    )
    checkpoint: str | None = Field(
        None, description="Hub name, a folder, or `embedded:small`; not for `lexical`."
    )
    revision: str | None = Field(
        None,
        description="Commit of the checkpoint's hub repository; default: the newest.",
    )
    tokenizer: str = Field(
        "embedded:pith-mini",
        description="Counts receipts: tokenizer.json, its folder, `embedded:NAME`, hub name.",
    )
    tokenizer_revision: str | None = Field(
        None, description="Commit of the tokenizer's hub repository; default: the newest."
    )
    tokenizer_name: str = Field("pith-mini", min_length=1, description="What receipts call that tokenizer.")
    price_usd_per_mtok_input: Price = Field(
        Decimal(0), description="US dollars per million tokens of input, in the receipt's tokenizer."
    )
    ratio: RatioSettings = RatioSettings()
    max_input_bytes: int = Field(2 * 2**20, ge=1, le=2**30, description="Largest input in bytes of UTF-8.")
    max_query_chars: int = Field(20_000, ge=1, le=10**6, description="Longest query in characters.")
    protections: list[Protection] = Field([], description="What is kept regardless of its score.")
    flags: FlagThresholdSettings = FlagThresholdSettings()
    selection: ChoiceSettings = ChoiceSettings()
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="`cpu`, `cuda` or `cuda:N`.")
    dtype: Dtype = Field("float32", description="Precision of the network's weights.")
    threads: int | None = Field(
        None, ge=1, le=1024, description="CPU threads of the network; default: torch's."
    )
    batch_tokens: int = Field(4096, ge=16, le=2**24, description="Tokens of a batch, padding included.")
    window: int | None = Field(
        None, ge=16, le=2**20, description="Tokens of a window; default: the checkpoint's."
    )
    overlap: int = Field(0, ge=0, le=2**20, description="Tokens that neighbouring windows share.")
    max_waiting: int = Field(256, ge=1, le=10**6, description="Requests a replica has at once; above: 503.")
    workers: int | None = Field(
        None,
        ge=1,
        le=256,
        description="Processes for small inputs; default: for `lexical` one per core, at most 4, else 1.",
    )
    large_bytes: int = Field(
        64 * 1024, ge=1, le=2**30, description="A larger input and query run separately, at lower priority."
    )
    deadline_s: float = Field(
        60, gt=0, le=3600, description="Seconds that a request may take, waiting included; then 503."
    )
    max_waiting_tokens: int = Field(
        1_000_000, ge=1, le=10**9, description="Tokens that wait for the network; above: 503."
    )
    blend: BlendSettings | None = Field(
        None, description="Weights of lexical and neural scores; default: the kind's own."
    )
    steered_by: Steering = Field(
        "lexical", description="Scorer that allocates the budget before a token classifier picks words."
    )
    fidelity: Fidelity = Field(
        "default", description="`llmlingua2` keeps the very words that LLMLingua-2 keeps."
    )
    calibration: str | None = Field(
        None,
        pattern=r"^[./~]",
        description="File written by `pith tune`; default: pith's own for the kind. Not for `token_classifier`.",
    )
    replicas: CompressionReplicaSettings = CompressionReplicaSettings()
    weights_gb: float | None = Field(
        None,
        gt=0,
        description="Gigabytes of weights, for `pith config check --node`; default: the checkpoint's files.",
    )

    @field_validator("checkpoint")
    @classmethod
    def _known_checkpoint(cls, reference: str | None) -> str | None:
        return None if reference is None else _checked(reference, PACKAGED_CHECKPOINTS)

    @field_validator("tokenizer")
    @classmethod
    def _known_tokenizer(cls, reference: str) -> str:
        return _checked(reference, PACKAGED_TOKENIZERS)

    @model_validator(mode="after")
    def _fits_its_kind(self) -> CompressionModelSettings:
        kind = KINDS[self.kind]
        if not kind.has_network and self.checkpoint is not None:
            raise ValueError(f"checkpoint: must not be set for kind {self.kind}: its weights ship with pith")
        if kind.has_network and self.checkpoint is None:
            raise ValueError(f"checkpoint: must be set for kind {self.kind}")
        if self.window is not None and self.overlap >= self.window:
            raise ValueError(f"overlap ({self.overlap}) must be below window ({self.window})")
        if self.fidelity != "default" and not kind.chooses_words:
            raise ValueError(f"fidelity: {self.fidelity} is for kind token_classifier only")
        if self.calibration is not None and kind.chooses_words:
            raise ValueError("calibration: kind token_classifier selects words, so it cannot be calibrated")
        if self.blend is not None and kind.blend is None:
            raise ValueError(f"blend: kind {self.kind} does not use blend")
        return self


class DemoCompressionSettings(Section):
    max_chars: int = Field(20_000, ge=1, le=10**7, description="Longest input of the demo in characters.")
    requests_per_minute_per_address: int = Field(
        24,
        ge=1,
        le=10**6,
        description="Demo requests a minute from one client address. One with `sizes` is 1, and 1 more for each 16.",
    )
    requests_per_minute: int = Field(240, ge=1, le=10**6, description="Demo requests a minute in all.")
    deadline_s: float = Field(
        10, gt=0, le=3600, description="Seconds that a demo request may take, waiting included; then 503."
    )


class ChatCompressionSettings(Section):
    deadline_s: float = Field(
        10, gt=0, le=3600, description="Seconds that compressing one prompt may take; the rest is sent whole."
    )
    cache_mb: int = Field(
        64, ge=0, le=2**20, description="Megabytes of results that each HTTP process keeps for later turns."
    )
    verify_engine_share: float = Field(
        0.02,
        ge=0,
        le=0.5,
        description="Most of a chat engine's time that replies may be scored again in (`compression.verify`), while "
        "nobody wants it; 0: none are.",
    )


class CompressionSettingsSection(Section):
    models: list[CompressionModelSettings] = Field(
        [], description="Compression models, in order; the first is the default."
    )
    demo: DemoCompressionSettings = DemoCompressionSettings()
    chat: ChatCompressionSettings = ChatCompressionSettings()
    retention: RetentionSettings = RetentionSettings()

    @field_validator("models")
    @classmethod
    def _different_models(cls, models: list[CompressionModelSettings]) -> list[CompressionModelSettings]:
        ids = [model.id for model in models]
        for model_id in ids:
            if ids.count(model_id) > 1:
                raise ValueError(f"model id {model_id!r} is listed twice")
        return models


def spec_of(model: CompressionModelSettings) -> ModelSpec:
    """A configured model as `compression.build` needs it: most of it under the same names."""
    blend, checkpoint = model.blend, model.checkpoint
    same = ModelSpec.__dataclass_fields__.keys() & type(model).model_fields.keys()
    made = {
        "tokenizer": _resolved(model.tokenizer, PACKAGED_TOKENIZERS),
        "checkpoint": None if checkpoint is None else _resolved(checkpoint, PACKAGED_CHECKPOINTS),
        "memory_share": _memory_share(model),
        "settings": _pipeline_settings(model),
        "blend": None if blend is None else Blend(**blend.model_dump()),
    }
    return ModelSpec(**{name: getattr(model, name) for name in same} | made)


def _memory_share(model: CompressionModelSettings) -> float:
    """Of each worker, where the model has a part of a GPU."""
    gpus = model.replicas.gpus
    return gpus / (model.workers or 1) if 0 < gpus < 1 else 1.0


def plan_of_model(model: CompressionModelSettings) -> PoolPlan:
    """The processes of a configured model, on the machine that this is called on."""
    return plan_of(
        model.kind,
        workers=model.workers,
        large_bytes=model.large_bytes,
        max_waiting=model.max_waiting,
        deadline_s=model.deadline_s,
    )


def _pipeline_settings(model: CompressionModelSettings) -> CompressionSettings:
    return CompressionSettings(
        selection=SelectionSettings(**model.selection.model_dump()),
        flags=model.flags.thresholds(),
        protections=frozenset(model.protections),
        longest_input_bytes=model.max_input_bytes,
        longest_query_chars=model.max_query_chars,
        lowest_ratio=model.ratio.min,
        highest_ratio=model.ratio.max,
    )


def _checked(reference: str, packaged: Mapping[str, Path]) -> str:
    if not reference.strip():
        raise ValueError("must name a folder or a hub repository")
    name = reference.removeprefix(PACKAGED)
    if name != reference and name not in packaged:
        raise ValueError(f"there is no embedded:{name}, only {', '.join(packaged)}")
    return reference


def _resolved(reference: str, packaged: Mapping[str, Path]) -> str:
    """The folder of what ships with pith; any other reference unchanged."""
    found = packaged.get(reference.removeprefix(PACKAGED)) if reference.startswith(PACKAGED) else None
    return reference if found is None else str(found)
