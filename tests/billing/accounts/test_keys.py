"""`billing.accounts.keys`: what a key is, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.accounts import keys
from billing.errors import InvalidKey

PEPPER = b"0123456789abcdef"
SECRET = "A" * keys.SECRET_CHARS
KEY_ID = "a" * keys.ID_CHARS
# Not a minted one: the names of tests must be the same in every process that collects them.
GOOD = f"pith_{KEY_ID}_{SECRET}"


def test_a_minted_key_is_read_back() -> None:
    key = keys.mint()
    assert keys.parse(key.token) == key


def test_keys_differ_in_id_and_in_secret() -> None:
    minted = [keys.mint() for _ in range(200)]
    assert len({key.key_id for key in minted}) == len({key.secret for key in minted}) == 200


def test_the_secret_is_not_in_the_repr() -> None:
    key = keys.mint()
    assert key.secret not in repr(key)


def test_a_digest_depends_on_id_secret_and_pepper() -> None:
    key = keys.mint()
    assert keys.matches(key, keys.digest(key, PEPPER), PEPPER)
    others = [
        (keys.ApiKey(keys.mint().key_id, key.secret), PEPPER),
        (keys.ApiKey(key.key_id, keys.mint().secret), PEPPER),
        (key, b"another pepper, long enough"),
    ]
    for other, pepper in others:
        assert not keys.matches(other, keys.digest(key, PEPPER), pepper)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "pith",
        "pith__",
        GOOD[:-1],
        GOOD + "A",
        GOOD + "\n",
        " " + GOOD,
        GOOD.upper(),
        GOOD.replace("pith", "Pith"),
        GOOD.replace("_", "-"),
        f"pith_{KEY_ID}_{SECRET[:-1]}_",
        f"pith_{KEY_ID}_{SECRET[:-1]}\n",
        f"pith_{KEY_ID}_{SECRET[:-1]}\x00",
        f"pith_{KEY_ID}_{SECRET[:-1]}\u00e9",
        # Digits and letters to Unicode, and not to us.
        f"pith_{chr(0x0663) * keys.ID_CHARS}_{SECRET}",
        f"pith_{chr(0xFF41) * keys.ID_CHARS}_{SECRET}",
        f"pith_' OR '1'='1' --_{SECRET}",
        f"pith_a' OR 1=1;--aaa_{SECRET}",
        f"pith_%%%%%%%%%%%%%%%%_{SECRET}",
        f"pith_{KEY_ID}_{'../' * 14}a",
        "sk-" + "A" * 62,
        "pith_" + "a" * 10_000_000,
    ],
)
def test_anything_else_is_no_key(token: str) -> None:
    with pytest.raises(InvalidKey):
        keys.parse(token)


@given(st.text(max_size=80))
def test_no_text_at_all_breaks_the_parser(token: str) -> None:
    with pytest.raises(InvalidKey):
        keys.parse(token)


def test_the_error_tells_a_caller_nothing_about_why() -> None:
    with pytest.raises(InvalidKey) as caught:
        keys.parse("pith_nonsense")
    assert str(caught.value) == str(InvalidKey("wrong secret"))


def test_a_short_pepper_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        keys.check_pepper(b"short")
