"""The catalog of a configuration: its chat models as callers see them."""

from models.catalog import Capabilities, Catalog, ChatModel
from serve.config.chat_models import ModelSettings
from serve.config.settings import Settings


def catalog_of(settings: Settings) -> Catalog:
    """The catalog that callers see, from the configuration."""
    return Catalog(tuple(_chat_model(model, index == 0) for index, model in enumerate(settings.models)))


def _chat_model(model: ModelSettings, is_default: bool) -> ChatModel:
    capabilities = model.capabilities
    cached = model.price.cached_input_usd_per_mtok
    return ChatModel(
        id=model.id,
        name=model.name,
        blurb=model.blurb,
        context_length=model.context_length,
        input_micro_usd_per_mtok=int(model.price.input_usd_per_mtok * 10**6),
        output_micro_usd_per_mtok=int(model.price.output_usd_per_mtok * 10**6),
        minimum_nano_usd=int(model.price.minimum_request_usd * 10**9),
        is_default=is_default,
        cached_input_micro_usd_per_mtok=None if cached is None else int(cached * 10**6),
        capabilities=Capabilities(
            tools=capabilities.tools,
            reasoning_effort=capabilities.reasoning_effort,
            media=frozenset(capabilities.media),
            template_roles=frozenset(capabilities.template_roles),
            chat_template_kwargs=frozenset(capabilities.chat_template_kwargs),
        ),
        adapter_of=model.adapter.of if model.adapter is not None else None,
    )
