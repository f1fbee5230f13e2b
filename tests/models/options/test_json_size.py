"""The count of a JSON text's values is never too low, and exact where it decides."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from models.options.messages import values_in

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a",:[]{}\\\\\\u00e9\n', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(alphabet='a",[\\\\', max_size=4), inner, max_size=5)
    ),
    max_leaves=40,
)


def count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


def empties(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else (not inner) + sum(map(empties, inner))


@given(JSON, st.integers(0, 30), st.booleans())
@example(value=":", enough=1, escaped=False)
def test_the_count_is_an_upper_bound_and_close_where_it_is_more_than_enough(
    value: Any, enough: int, escaped: bool
) -> None:
    found = values_in(json.dumps(value, ensure_ascii=escaped).encode(), enough=enough)
    assert count(value) <= found or count(value) > enough < found
    # An empty list counts like one that holds something.
    assert found <= max(enough, count(value) + empties(value))
