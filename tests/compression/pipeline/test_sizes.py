"""Other sizes of one compression are what each would be, had it been asked for alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compression.build import load_counter, plain_compressor
from compression.pipeline.compression_model import MOST_SIZED_UNITS, CompressionRequest, Size
from compression.pipeline.errors import NeitherRatioNorKeep, RatioOutOfRange, RefusedRequest
from compression.pipeline.pipeline import Compressor
from compression.workers.messages import Compress, Compressed, done_of, job_of, packed
from serve.config.compression_models import spec_of
from serve.config.settings import load_settings
from tests.serve.loopback_service import CONFIG

TEXTS = (
    "# Pumps\n\nThe pump ships with a filter. Its colour is a matter of taste. The warranty ends after two years.\n\n"
    "Spare parts are listed below. They cost 4 EUR. Nobody has ever complained about the seals.\n",
    "السخان مضمون لمدة سنتين. اللون مسألة ذوق 😀. قطع الغيار مذكورة أدناه.\n",
    '[{"id": 1, "note": "The warranty ends after two years."}, {"id": 2, "note": "A matter of taste."}]',
)
SIZES = (
    *(Size(ratio / 10) for ratio in range(1, 11)),
    Size(keep=0.5),
    Size(keep=0.99),
)


@pytest.fixture(scope="module")
def compressor() -> Compressor:
    spec = spec_of(load_settings(CONFIG).compression.models[0])
    return plain_compressor(spec, load_counter(spec.tokenizer, name=spec.tokenizer_name))


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("text", TEXTS)
def test_each_size_is_what_it_is_when_it_is_asked_for_alone(
    compressor: Compressor, text: str, in_order: bool
) -> None:
    asked = CompressionRequest("When does the warranty end?", text, 0.4, preserve_order=in_order)
    plain = compressor.compress(asked)
    result = compressor.compress(replace(asked, sizes=SIZES))
    assert (result.output, result.kept) == (plain.output, plain.kept) and len(result.sizes) == len(SIZES)
    for size, found in zip(SIZES, result.sizes, strict=True):
        alone = compressor.compress(replace(asked, target_ratio=size.target_ratio, keep=size.keep))
        assert found.kept == alone.kept
        assert replace(found.receipt, latency_ms=0) == replace(alone.receipt, latency_ms=0)


def test_they_cross_to_a_worker_and_back(compressor: Compressor) -> None:
    asked = CompressionRequest("When?", TEXTS[1], 1.0, sizes=SIZES)
    assert job_of(packed(Compress(asked))) == Compress(asked)
    result = compressor.compress(asked)
    assert result.output == TEXTS[1] and len(result.sizes) == len(SIZES)
    assert done_of(packed(Compressed(result))) == Compressed(result)


def test_a_text_in_very_many_units_has_fewer_sizes(compressor: Compressor) -> None:
    """Each size costs by the unit: lines of one letter would take the server many times what a text of prose does."""
    units = 5000
    most = MOST_SIZED_UNITS // units
    asked = CompressionRequest("7?", "7\n" * units, 1.0, sizes=(Size(1.0),) * most)
    assert len(compressor.compress(asked).sizes) == most
    with pytest.raises(RefusedRequest, match=f"5,000 units, so at most {most} sizes") as refused:
        compressor.compress(replace(asked, sizes=(Size(0.5), *asked.sizes)))
    assert refused.value.field == "sizes"


def test_a_size_that_is_refused_alone_is_refused_among_others(compressor: Compressor) -> None:
    asked = CompressionRequest("When?", TEXTS[0], 0.5)
    with pytest.raises(RatioOutOfRange):
        compressor.compress(replace(asked, sizes=(Size(0.5), Size(0.0))))
    with pytest.raises(NeitherRatioNorKeep):
        compressor.compress(replace(asked, sizes=(Size(),)))
