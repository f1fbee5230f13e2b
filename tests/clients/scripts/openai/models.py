"""The models that the `openai` package lists, and which of its exceptions a user catches."""

import json
import os

import openai
from openai import OpenAI

MODEL = os.environ["PITH_CHAT_MODEL"]
client = OpenAI()


def raised(client: OpenAI, **given: object) -> list[object]:
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}], **given}
    try:
        client.chat.completions.create(**asked)
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code, error.param, error.message]
    raise SystemExit("it did not fail")


models = list(client.models.list())
print(
    json.dumps(
        {
            "models": [model.id for model in models],
            "owned": sorted({model.owned_by for model in models}),
            "one": client.models.retrieve(MODEL).id,
            "wrong key": raised(OpenAI(api_key="pith_wrong")),
            "wrong model": raised(client, model="gpt-5"),
            "wrong field": raised(client, temperature=9),
            "too long": raised(client, messages=[{"role": "user", "content": "word " * 20000}]),
        }
    )
)
