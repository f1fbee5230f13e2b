"""What makes a prompt of a conversation in a vLLM engine: template and tokenizer, from which a bound is proven."""

from typing import Any

from vllm.renderers.hf import (
    HfRenderer,
    resolve_chat_template,
    resolve_chat_template_content_format,
)

from models.prompt_bound import PromptMaking


def prompt_making(serving_chat: Any) -> PromptMaking | None:
    """What vLLM does for every plain request; None where it does not go by a template and a fast tokenizer alone."""
    online = serving_chat.online_renderer
    renderer = online.renderer
    if online.use_harmony or online.default_chat_template_kwargs or type(renderer) is not HfRenderer:
        return None
    tokenizer = renderer.get_tokenizer()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    template = resolve_chat_template(
        tokenizer, chat_template=online.chat_template, tools=None, model_config=online.model_config
    )
    if backend is None or template is None:
        return None
    content_format = resolve_chat_template_content_format(
        online.chat_template,
        None,
        online.chat_template_content_format,
        tokenizer,
        model_config=online.model_config,
    )
    special = {name: str(value) for name, value in tokenizer.special_tokens_map.items() if value}
    return PromptMaking(template, content_format == "openai", special, backend.to_str())
