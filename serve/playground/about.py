"""What the playground is told of its server: the models of every kind with their prices, and the demo's limits."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from billing.ledger.price_list import PriceList
from compression.pipeline.sizes import LONGEST_SIZED_BYTES, MAX_SIZES, as_requests
from compression.scorers.kinds import KINDS
from models.catalog import Catalog, ChatModel
from serve.config.compression_models import CompressionModelSettings
from serve.config.retrieval_models import RetrievalModelSettings
from serve.config.settings import Settings
from serve.money.price_book import price_of
from serve.money.service_block import price_fields

# What the page asks of one compression; `pages/compress/sizes.js` has it.
PAGE_SIZES = 40


@dataclass(frozen=True, slots=True)
class About:
    """What is public of a server. Where it does not compress, `compressors` and `demo` are empty. `running` says of
    models, by id, whether they answer now."""

    catalog: Catalog
    compressors: Sequence[CompressionModelSettings]
    retrievers: Sequence[RetrievalModelSettings]
    demo: dict[str, int]
    max_body_bytes: int
    running: Callable[[], Awaitable[Mapping[str, bool]]]


def about_of(
    settings: Settings,
    catalog: Catalog,
    *,
    compresses: bool,
    running: Callable[[], Awaitable[Mapping[str, bool]]],
) -> About:
    """`compresses`: whether this server has compression models that run."""
    compression = settings.compression
    demo = {
        "max_chars": compression.demo.max_chars,
        "requests_per_minute": max(
            1, compression.demo.requests_per_minute_per_address // as_requests(PAGE_SIZES)
        ),
    }
    return About(
        catalog=catalog,
        compressors=compression.models if compresses else (),
        retrievers=settings.retrieval_models,
        demo=demo if compresses else {},
        max_body_bytes=settings.server.max_body_bytes,
        running=running,
    )


def about_fields(about: About, prices: PriceList) -> dict[str, Any]:
    """As JSON. Prices are USD, as `/v1/catalog` has them. Raises `PricesUnavailable`."""
    return {
        "object": "playground",
        "pricing_version": prices.version,
        "max_body_bytes": about.max_body_bytes,
        "demo": about.demo,
        "sizes": {"most": MAX_SIZES, "longest_bytes": LONGEST_SIZED_BYTES},
        "chat": [_chat_fields(model, prices) for model in about.catalog.models],
        "compression": [_compressor_fields(model, prices) for model in about.compressors],
        "retrieval": [_retriever_fields(model, prices) for model in about.retrievers],
    }


def _chat_fields(model: ChatModel, prices: PriceList) -> dict[str, Any]:
    can = model.capabilities
    return {
        **_named(model.id, model.name, model.blurb),
        "kind": "chat",
        "context_length": model.context_length,
        "is_default": model.is_default,
        "tools": can.tools is True,
        "reasoning_effort": can.reasoning_effort,
        "media": sorted(can.media),
        **price_fields(price_of(prices, model.id)),
    }


def _compressor_fields(model: CompressionModelSettings, prices: PriceList) -> dict[str, Any]:
    kind = KINDS[model.kind]
    return {
        **_named(model.id, model.name, model.blurb),
        "kind": "compression",
        "ratio": {"min": model.ratio.min, "max": model.ratio.max, "default": model.ratio.default},
        "max_input_bytes": model.max_input_bytes,
        "max_query_chars": model.max_query_chars,
        "offers_sizes": not kind.chooses_words,
        "offers_keep": not kind.chooses_words,
        **price_fields(price_of(prices, model.id)),
    }


def _retriever_fields(model: RetrievalModelSettings, prices: PriceList) -> dict[str, Any]:
    return {
        **_named(model.id, model.name, model.blurb),
        "kind": model.kind,
        "context_length": model.context_length,
        **price_fields(price_of(prices, model.id)),
    }


def _named(id_: str, name: str, blurb: str) -> dict[str, Any]:
    return {"id": id_, "name": name, "blurb": blurb}
