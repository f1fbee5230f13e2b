"""What OpenAI's clients list."""

from pathlib import Path

from openai.types import Model

from tests.serve.served import Client, serving


async def test_models_are_listed_and_found_by_their_ids(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        served = await service.renewed()
        listed = (await served.get("/openai/v1/models").run()).json()
        assert listed["object"] == "list"
        ids = [Model.model_validate(model).id for model in listed["data"]]
        assert ids == [model.id for model in served.settings.models]
        first = listed["data"][0]
        assert first["max_model_len"] == served.settings.models[0].context_length
        assert (first["owned_by"], first["kind"], first["root"]) == ("pith", "chat", ids[0])
        one = await served.get(f"/openai/v1/models/{ids[0]}").run()
        assert (one.status, one.json()) == (200, first)
        missing = await served.get("/openai/v1/models/org/none").run()
        assert (missing.status, missing.json()["error"]["code"]) == (404, "model_not_found")
        assert (await served.get("/openai/v1/models", key="wrong").run()).status == 401
        # Load tools ask which models there are without a key.
        keyless = await Client(served.api, "/openai/v1/models").run()
        assert (keyless.status, keyless.json()) == (200, listed)
        assert (await Client(served.api, "/openai/health").run()).status == 200
