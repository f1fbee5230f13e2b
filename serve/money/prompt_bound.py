"""A model's prompts, bounded by what its template and its tokenizer allow."""

import json

from models.prompt_bound import PromptBound, PromptMaking
from serve.money.tokenizer_growth import tokens_per_byte

# Between parts that are joined, and between messages that are put together.
JOINT_BYTES = 2


def proven_bound(making: PromptMaking) -> PromptBound | None:
    """What is proven of every plain prompt; None where nothing is. Read once, when a replica starts."""
    # Here, since nothing else needs the template language.
    from models.template.growth import template_growth

    factor = tokens_per_byte(json.loads(making.tokenizer))
    growth = template_growth(making.template, making.special_tokens, parts=making.parts)
    if factor is None or growth is None:
        return None
    return PromptBound(
        per_byte=factor * growth.copies,
        per_message=factor * (growth.per_message + JOINT_BYTES),
        per_part=factor * (growth.per_part + JOINT_BYTES),
        fixed=factor * growth.fixed,
    )
