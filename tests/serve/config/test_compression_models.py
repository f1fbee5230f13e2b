"""What a configuration says of compression models is checked where it stands, and reaches the model unchanged."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from compression.flags import FlagSettings
from compression.pipeline.spec import CompressionSettings
from compression.scorers.kinds import KINDS, Blend
from serve.config.compression_models import (
    BlendSettings,
    ChoiceSettings,
    CompressionModelSettings,
    CompressionReplicaSettings,
    CompressionSettingsSection,
    DemoCompressionSettings,
    FlagThresholdSettings,
    RatioSettings,
    spec_of,
)

LEXICAL = {"id": "pith-lexical", "name": "Lexical", "blurb": "The default.", "kind": "lexical"}
WORDS = {**LEXICAL, "id": "words", "kind": "token_classifier", "checkpoint": "embedded:small"}
ENCODER = {**LEXICAL, "id": "encoder", "kind": "encoder", "checkpoint": "some/encoder"}
SECTIONS: list[type[BaseModel]] = [
    BlendSettings,
    ChoiceSettings,
    CompressionModelSettings,
    CompressionReplicaSettings,
    CompressionSettingsSection,
    DemoCompressionSettings,
    FlagThresholdSettings,
    RatioSettings,
]


def model(document: dict[str, Any], **keys: Any) -> CompressionModelSettings:
    return CompressionModelSettings.model_validate({**document, **keys})


def test_a_model_needs_no_more_than_its_name_and_kind_and_then_is_as_the_pipeline_is_by_default() -> None:
    spec = spec_of(model(LEXICAL))
    assert spec.settings == CompressionSettings()
    assert (spec.kind, spec.checkpoint, spec.blend, spec.tokenizer_name) == (
        "lexical",
        None,
        None,
        "pith-mini",
    )
    assert (Path(spec.tokenizer) / "tokenizer.json").is_file()


def test_the_checkpoint_that_pith_carries_is_found() -> None:
    assert (Path(spec_of(model(WORDS)).checkpoint or "") / "config.json").is_file()


def test_a_hub_name_stays_as_it_is() -> None:
    spec = spec_of(model(ENCODER, tokenizer="some/chat-model", tokenizer_name="chat"))
    assert (spec.checkpoint, spec.tokenizer, spec.tokenizer_name) == (
        "some/encoder",
        "some/chat-model",
        "chat",
    )


def test_every_knob_reaches_the_model() -> None:
    spec = spec_of(
        model(
            ENCODER,
            device="cuda:1",
            dtype="bfloat16",
            threads=3,
            batch_tokens=512,
            window=128,
            overlap=16,
            max_waiting=7,
            max_waiting_tokens=999,
            revision="abc",
            protections=["code", "numbers"],
            ratio={"default": 0.3, "min": 0.1, "max": 0.9},
            flags={"aggressive_ratio": 0.2, "disabled": ["low_relevance"], "scripts": ["latin"]},
            selection={"keep_titles": False, "density": 0.5, "swaps": 2},
            blend={"lexical": 0.5, "neural": 3, "midpoint": 0.6},
            max_input_bytes=1000,
            max_query_chars=50,
            steered_by="bm25",
        )
    )
    assert (spec.device, spec.dtype, spec.threads, spec.batch_tokens) == ("cuda:1", "bfloat16", 3, 512)
    assert (spec.window, spec.overlap, spec.max_waiting, spec.max_waiting_tokens) == (128, 16, 7, 999)
    assert (spec.revision, spec.steered_by, spec.blend) == ("abc", "bm25", Blend(0.5, 3, 0.6))
    settings = spec.settings
    assert settings.protections == {"code", "numbers"}
    assert (settings.lowest_ratio, settings.highest_ratio) == (0.1, 0.9)
    assert (settings.longest_input_bytes, settings.longest_query_chars) == (1000, 50)
    assert settings.flags == FlagSettings(
        aggressive_ratio=0.2, disabled=frozenset({"low_relevance"}), scripts=frozenset({"latin"})
    )
    assert (settings.selection.keep_titles, settings.selection.density, settings.selection.swaps) == (
        False,
        0.5,
        2,
    )


def test_the_thresholds_of_a_configuration_are_those_that_the_flags_have() -> None:
    assert set(FlagThresholdSettings.model_fields) == {field.name for field in fields(FlagSettings)}
    assert FlagThresholdSettings().thresholds() == FlagSettings()


@pytest.mark.parametrize(
    ("document", "keys", "words"),
    [
        (LEXICAL, {"checkpoint": "some/model"}, "checkpoint: must not be set for kind lexical"),
        (LEXICAL, {"kind": "encoder"}, "checkpoint: must be set for kind encoder"),
        (LEXICAL, {"kind": "magic"}, "token_classifier"),
        (WORDS, {"checkpoint": "embedded:large"}, "there is no embedded:large, only small"),
        (WORDS, {"checkpoint": " "}, "must name a folder or a hub repository"),
        (LEXICAL, {"tokenizer": "embedded:gpt"}, "there is no embedded:gpt,"),
        (WORDS, {"blend": {"lexical": 1, "neural": 1}}, "kind token_classifier does not use blend"),
        (ENCODER, {"blend": {"lexical": 0, "neural": 0}}, "must not both be 0"),
        (ENCODER, {"blend": {"lexical": -1, "neural": 1}}, "greater than or equal to 0"),
        (ENCODER, {"fidelity": "llmlingua2"}, "for kind token_classifier only"),
        (WORDS, {"window": 64, "overlap": 64}, "overlap (64) must be below window (64)"),
        (WORDS, {"device": "tpu"}, "cuda"),
        (LEXICAL, {"ratio": {"default": 0.1, "min": 0.2}}, "default (0.1) is not between 0.2 and 1"),
        (LEXICAL, {"ratio": {"min": 0.5, "max": 0.5}}, "must be below max"),
        (LEXICAL, {"flags": {"disabled": ["nothing_like_it"]}}, "'nothing_like_it' is not a flag"),
        (LEXICAL, {"flags": {"low_relevance": 2}}, "less than or equal to 1"),
        (LEXICAL, {"protections": ["everything"]}, "quotes"),
        (LEXICAL, {"replicas": {"min": 2}}, "min (2) is above max (1)"),
        (LEXICAL, {"trust_remote_code": True}, "Extra inputs are not permitted"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(
    document: dict[str, Any], keys: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        model(document, **keys)
    assert words in str(caught.value)


def test_two_models_of_one_id_are_refused() -> None:
    with pytest.raises(ValidationError, match="'pith-lexical' is listed twice"):
        CompressionSettingsSection.model_validate({"models": [LEXICAL, LEXICAL]})


def test_the_demo_has_bounds_by_default() -> None:
    section = CompressionSettingsSection()
    assert section.demo.max_chars == 20_000
    assert (section.demo.requests_per_minute_per_address, section.demo.requests_per_minute) == (24, 240)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_key_says_what_it_is(section: type[BaseModel]) -> None:
    silent = [
        name
        for name, field in section.model_fields.items()
        if not field.description
        and not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel))
    ]
    assert silent == []


def test_a_blend_is_for_the_kinds_that_score_by_a_network() -> None:
    assert {name for name, kind in KINDS.items() if kind.blend} == {"encoder", "query_classifier"}
