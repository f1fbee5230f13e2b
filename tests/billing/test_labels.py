"""Whom and what a request names: read wherever it may stand, bounded, and no person kept as it was written."""

from dataclasses import replace
from typing import Any

import pytest

from billing.caller import NO_LIMITS, Caller
from billing.labels import (
    InvalidLabel,
    PersonRequired,
    TagNotAllowed,
    labelled,
    person_key,
    require_person,
)

PEPPER = b"a pepper for the tests only"
CALLER = Caller("ws_1", "prj_1", "key", True, NO_LIMITS, person_key=person_key(PEPPER, "ws_1"))


def person(body: Any, *, caller: Caller = CALLER, is_message: bool = False) -> str | None:
    return labelled(caller, body, is_message=is_message).person


def test_a_person_is_kept_as_a_hash_under_the_pepper_and_the_workspace() -> None:
    named = person({"user": "alice@example.com"})
    assert named is not None and named.startswith("psn_") and len(named) == 20
    assert person({"user": "alice@example.com"}) == named
    assert person({"user": "alice@example.org"}) != named
    for other in (person_key(b"another pepper for the tests", "ws_1"), person_key(PEPPER, "ws_2")):
        assert person({"user": "alice@example.com"}, caller=replace(CALLER, person_key=other)) != named
    assert "alice" not in repr(labelled(CALLER, {"user": "alice@example.com"}))
    assert repr(PEPPER) not in repr(CALLER) and "person_key" not in repr(CALLER)


def test_a_safety_identifier_comes_before_a_user_and_what_is_empty_names_nobody() -> None:
    alice, bob = person({"user": "alice"}), person({"user": "bob"})
    assert person({"safety_identifier": "bob", "user": "alice"}) == bob
    assert person({"safety_identifier": "", "user": "alice"}) == alice
    assert person({"safety_identifier": None, "user": ""}) is None
    assert person({"user": "\ud800"}) not in (None, alice)
    assert labelled(CALLER, ["no", "object"]) is labelled(CALLER, {}) is CALLER


def test_a_message_names_a_person_in_its_metadata_and_no_other_request_does() -> None:
    body = {"metadata": {"user_id": "alice"}}
    assert person(body, is_message=True) == person({"user": "alice"})
    assert person(body) is None
    assert person({"metadata": "none"}, is_message=True) is None


@pytest.mark.parametrize("body", [{"user": 7}, {"safety_identifier": ["alice"]}, {"user": True}])
def test_a_person_that_is_no_text_is_refused_by_name(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidLabel) as refused:
        labelled(CALLER, body)
    assert refused.value.field in body


def test_tags_come_from_the_metadata_and_the_header_each_once_in_order() -> None:
    listed = labelled(CALLER, {"metadata": {"tags": ["research", "batch-1"]}}, header="team_b, research,")
    assert listed.tags == ("batch-1", "research", "team_b")
    assert labelled(CALLER, {"metadata": {"tags": "b, a"}}).tags == ("a", "b")
    assert labelled(CALLER, {"metadata": {"tags": [], "other": 1}}, header="") is CALLER


@pytest.mark.parametrize(
    ("tags", "header", "field"),
    [
        (["a b"], None, "metadata.tags"),
        (["a,b"], None, "metadata.tags"),
        (["*"], None, "metadata.tags"),
        (["x" * 33], None, "metadata.tags"),
        ([7], None, "metadata.tags"),
        ({"a": 1}, None, "metadata.tags"),
        (7, None, "metadata.tags"),
        ("ä", None, "metadata.tags"),
        ([f"t{n}" for n in range(9)], None, "metadata.tags"),
        (None, ",".join(f"t{n}" for n in range(9)), "X-Pith-Tags"),
        (None, "a b", "X-Pith-Tags"),
    ],
)
def test_tags_that_cannot_be_are_refused_by_name(tags: Any, header: str | None, field: str) -> None:
    with pytest.raises(InvalidLabel) as refused:
        labelled(CALLER, {"metadata": {"tags": tags}}, header=header)
    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: must be")


def test_a_project_may_allow_some_tags_or_none() -> None:
    some, none = (replace(CALLER, allowed_tags=tags) for tags in (("research",), ()))
    assert labelled(some, {}, header="research").tags == ("research",)
    assert labelled(none, {"user": "alice"}).person is not None
    for caller in (some, none):
        with pytest.raises(TagNotAllowed, match="does not allow the tag other"):
            labelled(caller, {"metadata": {"tags": ["other"]}})


def test_a_person_is_required_where_the_project_says_so() -> None:
    strict = replace(CALLER, person_required=True)
    require_person(CALLER)
    require_person(labelled(strict, {"user": "alice"}))
    with pytest.raises(PersonRequired, match="safety_identifier or user"):
        require_person(labelled(strict, {"user": ""}))
