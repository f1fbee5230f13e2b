"""A LoRA adapter on the real server: served by its base's engine, under its own name and for its own price."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
import yaml

from benchmarks.training.chat_models.adapter import make_adapter
from tests.integration.running import Server, adapter_entry
from tests.integration.test_reload import traffic

BASE, ADAPTER, LATE = "pith-mini", "pith-mini-loud", "pith-mini-late"
# Anthropic's package has no such parameter any more; the interface has.
COLD = {"temperature": 0}
ASK: list[Any] = [{"role": "user", "content": "Tell me about the river, and then about the sea behind it."}]


def reply(http: httpx.Client, model: str) -> dict[str, Any]:
    body = {"model": model, "messages": ASK, "max_tokens": 16, "temperature": 0}
    done = http.post("/v1/chat/completions", json=body)
    assert done.status_code == 200, done.text
    return dict(done.json(parse_float=Decimal))


def content(found: dict[str, Any]) -> str:
    return str(found["choices"][0]["message"]["content"])


def test_an_adapter_says_something_else_and_charges_its_own_price(http: httpx.Client) -> None:
    base, adapted = reply(http, BASE), reply(http, ADAPTER)
    assert adapted["model"] == ADAPTER and content(adapted) != content(base)
    # Neither has what the other put into the prefix cache.
    assert content(reply(http, BASE)) == content(base) and content(reply(http, ADAPTER)) == content(adapted)
    billing, usage = adapted["service"]["billing"], adapted["usage"]
    assert (billing["input_price_per_mtok"], billing["output_price_per_mtok"]) == (Decimal("1.5"), 6)
    tokens = usage["prompt_tokens"] * Decimal("1.5") + usage["completion_tokens"] * 6
    assert Decimal(str(billing["request_cost_usd"])) == max(tokens / 10**6, Decimal("0.0001"))
    assert usage["prompt_tokens"] == base["usage"]["prompt_tokens"]


@pytest.mark.parametrize("model", [BASE, ADAPTER])
def test_a_stream_says_what_the_whole_reply_says(server: Server, http: httpx.Client, model: str) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key=server.key)
    chunks = list(
        client.chat.completions.create(model=model, messages=ASK, max_tokens=16, temperature=0, stream=True)
    )
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == content(reply(http, model)) and {chunk.model for chunk in chunks} == {model}


def test_an_adapter_speaks_both_dialects_in_every_form(server: Server, http: httpx.Client) -> None:
    expected = content(reply(http, ADAPTER))
    of_openai = openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key=server.key)
    response = of_openai.responses.create(
        model=ADAPTER, input=ASK[0]["content"], max_output_tokens=16, temperature=0
    )
    assert (response.model, response.output_text) == (ADAPTER, expected)
    completion = of_openai.completions.create(model=ADAPTER, prompt="The river", max_tokens=8, temperature=0)
    plain = of_openai.completions.create(model=BASE, prompt="The river", max_tokens=8, temperature=0)
    assert completion.model == ADAPTER and completion.choices[0].text != plain.choices[0].text
    of_anthropic = anthropic.Anthropic(base_url=f"{server.url}/anthropic", api_key=server.key)
    message = of_anthropic.messages.create(model=ADAPTER, messages=ASK, max_tokens=16, extra_body=COLD)
    assert (message.model, message.content[0].text) == (ADAPTER, expected)


def test_every_list_of_models_has_the_adapter(server: Server, http: httpx.Client) -> None:
    listed = httpx.get(f"{server.url}/openai/v1/models/{ADAPTER}").json()
    assert (listed["root"], listed["parent"], listed["max_model_len"]) == (BASE, BASE, 4096)
    assert httpx.get(f"{server.url}/openai/v1/models/{BASE}").json()["parent"] is None
    assert ADAPTER in {model["id"] for model in http.get("/v1/models").json()}
    assert ADAPTER in {model["id"] for model in httpx.get(f"{server.url}/v1/catalog").json()["models"]}
    messages = httpx.get(f"{server.url}/anthropic/v1/models").json()["data"]
    assert ADAPTER in {model["id"] for model in messages}


def test_usage_names_the_adapter_and_has_its_cost(http: httpx.Client) -> None:
    def used() -> dict[str, tuple[int, Decimal]]:
        told = http.get("/v1/usage", params={"group_by": "model"}).json(parse_float=Decimal)
        return {row["model"]: (row["requests"], Decimal(row["cost_usd"])) for row in told["data"]}

    before = used()
    cost = Decimal(str(reply(http, ADAPTER)["service"]["billing"]["request_cost_usd"]))
    requests, spent = before.get(ADAPTER, (0, Decimal(0)))
    after = used()
    assert after[ADAPTER] == (requests + 1, spent + cost) and after.get(BASE) == before.get(BASE)


# `test_reload` adds a model to a real server under load and removes it again; adapters come and go on fake engines in
# `tests/serve/operator/test_adapters.py`.
@pytest.mark.long
def test_an_adapter_comes_and_goes_while_requests_run_and_its_bases_engine_stays(
    server: Server, http: httpx.Client
) -> None:
    make_adapter(server.state_dir / "adapters/late")
    key = (server.state_dir / "admin-key").read_text().strip()
    port = yaml.safe_load(server.config.read_text())["ops"]["port"]
    admin = httpx.Client(
        base_url=f"http://127.0.0.1:{port}/admin/v1", headers={"Authorization": f"Bearer {key}"}, timeout=300
    )
    new = {"id": LATE, "of": BASE, "source": "late", "price": adapter_entry(Path())["price"]}
    with admin, traffic(server, BASE) as load:
        load.more(8)
        added = admin.post("/adapters", json=new)
        assert added.status_code == 201, added.text
        late = reply(http, LATE)
        assert late["model"] == LATE and content(late) != content(reply(http, BASE))
        assert content(late) == content(reply(http, ADAPTER))
        assert LATE in {model["id"] for model in http.get("/v1/models").json()}
        tokens = late["usage"]["prompt_tokens"] * Decimal("1.5") + late["usage"]["completion_tokens"] * 6
        charged = Decimal(str(late["service"]["billing"]["request_cost_usd"]))
        assert charged == max(tokens / 10**6, Decimal("0.0001"))
        load.more(8)
        assert admin.delete(f"/adapters/{LATE}").status_code == 200
        ask = {"messages": ASK, "max_tokens": 1}
        refused, unknown = (
            http.post("/v1/chat/completions", json={"model": model, **ask}) for model in (LATE, "nobody")
        )
        assert refused.status_code == unknown.status_code != 200
        assert content(reply(http, ADAPTER)) == content(late)
        load.more(8)
    assert not load.wrong and set(load.statuses) == {200}
