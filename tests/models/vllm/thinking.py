"""A checkpoint that reasons before it answers, made of an embedded model: its words for it are common ones renamed."""

from __future__ import annotations

import json
from pathlib import Path

from models.embedded.install import ensure_checkpoints

# Tokens that are part of no other one. The end of the reasoning is a word that the model says every few sentences.
RENAMED = {"ĠOkay": "<think>", "Ġthat": "</think>"}
END_OF_THOUGHT = "310"
_PROMPT = "{{- '<|im_start|>assistant\\n' -}}"
_THINKING = """{{- '<|im_start|>assistant\\n' -}}
{%- if enable_thinking is defined and not enable_thinking -%}
{{- '<think>\\n\\n</think>\\n\\n' -}}
{%- else -%}
{{- '<think>\\n' -}}
{%- endif -%}
"""
_EFFORT = """{%- if reasoning_effort -%}
{{- '<|im_start|>system\\nReasoning effort: ' ~ reasoning_effort ~ '<|im_end|>\\n' -}}
{%- endif -%}
"""


def thinking_checkpoint(folder: Path) -> Path:
    """The checkpoint's folder, made in `folder`."""
    made = ensure_checkpoints(folder)["pith-base"]
    template = made / "chat_template.jinja"
    text = template.read_text()
    assert text.count(_PROMPT) == 1
    template.write_text(_EFFORT + text.replace(_PROMPT, _THINKING))
    tokenizer = made / "tokenizer.json"
    tokenizer.write_text(json.dumps(_renamed(json.loads(tokenizer.read_text()))))
    return made


def _renamed(tokenizer: dict) -> dict:
    model, added = tokenizer["model"], tokenizer["added_tokens"]
    model["merges"] = [pair for pair in model["merges"] if "".join(pair) not in RENAMED]
    for old, new in RENAMED.items():
        model["vocab"][new] = model["vocab"].pop(old)
        added.append({**added[-1], "id": model["vocab"][new], "content": new})
    return tokenizer
