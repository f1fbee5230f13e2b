"""The catalog's one rule: in order, and the first is the default."""

import pytest

from models.catalog import Capabilities, Catalog, ChatModel
from models.errors import UnknownModel


def model(model_id: str, *, is_default: bool = False) -> ChatModel:
    return ChatModel(
        id=model_id,
        name=model_id.title(),
        blurb="For tests.",
        context_length=2048,
        input_micro_usd_per_mtok=100_000,
        output_micro_usd_per_mtok=400_000,
        minimum_nano_usd=10_000,
        is_default=is_default,
    )


def test_the_first_model_is_the_default_and_the_order_is_kept() -> None:
    catalog = Catalog((model("b", is_default=True), model("a")))
    assert catalog.default.id == "b"
    assert catalog.ids == ("b", "a")
    assert catalog.get("a").name == "A"


def test_an_unknown_id_names_what_there_is() -> None:
    with pytest.raises(UnknownModel, match="choose one of: b, a") as caught:
        Catalog((model("b", is_default=True), model("a"))).get("c")
    assert caught.value.model_id == "c"
    assert caught.value.known == ("b", "a")


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ((), "at least one"),
        ((model("a"), model("b")), "only default"),
        ((model("a"), model("b", is_default=True)), "only default"),
        ((model("a", is_default=True), model("b", is_default=True)), "only default"),
        ((model("a", is_default=True), model("a")), "share an id"),
    ],
)
def test_a_catalog_without_one_default_in_front_is_refused(
    models: tuple[ChatModel, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Catalog(models)


def test_a_kind_of_media_that_nothing_carries_is_refused() -> None:
    with pytest.raises(ValueError, match="smell"):
        Capabilities(media=frozenset({"smell"}))
