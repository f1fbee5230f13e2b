"""The sizes of a chat template's expressions: names and macros are resolved by its statements."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import nodes

from models.template.values import (
    ABSENT,
    UNKNOWN,
    Known,
    Message,
    Part,
    Pieces,
    Text,
    added,
    item_of,
    joined,
    printed,
    truth,
)
from models.template.words import FILTERS, METHODS, SAME


class Expressions(ABC):
    """The expressions of one template."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = dict(names)
        self.macros: dict[str, nodes.Macro] = {}

    @abstractmethod
    def expanded(self, macro: nodes.Macro, call: nodes.Call) -> Text:
        """What a macro prints, called like this. Raises `Unproven`."""

    def value(self, node: nodes.Node) -> Any:
        """The size of what an expression yields, where that is known."""
        find = self._VALUES.get(type(node))
        return UNKNOWN if find is None else find(self, node)

    def _item(self, node: nodes.Getattr | nodes.Getitem) -> Any:
        owner = self.value(node.node)
        if isinstance(node, nodes.Getattr):
            return item_of(owner, node.attr)
        if isinstance(node.arg, nodes.Slice):
            return item_of(owner, slice(None))
        index = self.value(node.arg)
        return item_of(owner, index.value if isinstance(index, Known) else UNKNOWN)

    def _sum(self, node: nodes.Add | nodes.Concat) -> Any:
        parts = node.nodes if isinstance(node, nodes.Concat) else [node.left, node.right]
        values = [self.value(part) for part in parts]
        is_text = [isinstance(v, Text) or (isinstance(v, Known) and isinstance(v.value, str)) for v in values]
        if isinstance(node, nodes.Add) and not all(is_text):
            return UNKNOWN
        if any(value is UNKNOWN for value in values):
            return UNKNOWN
        return added([printed(value) for value in values])

    def _either(self, node: nodes.CondExpr) -> Any:
        holds = truth(self.value(node.test))
        found = [] if holds is False else [self.value(node.expr1)]
        if holds is not True:
            found.append(ABSENT if node.expr2 is None else self.value(node.expr2))
        return joined(found)

    def _or(self, node: nodes.Or) -> Any:
        left = self.value(node.left)
        holds = truth(left)
        if holds is not None:
            return left if holds else self.value(node.right)
        return joined([left, self.value(node.right)])

    def _and(self, node: nodes.And) -> Any:
        left = self.value(node.left)
        if truth(left) is False:
            return left
        right = self.value(node.right)
        if truth(left):
            return right
        return Known(False) if truth(right) is False else UNKNOWN

    def _not(self, node: nodes.Not) -> Any:
        holds = truth(self.value(node.node))
        return UNKNOWN if holds is None else Known(not holds)

    def _test(self, node: nodes.Test) -> Any:
        value = self.value(node.node)
        if value is UNKNOWN:
            return UNKNOWN
        if node.name in ("defined", "undefined"):
            return Known((value is ABSENT) == (node.name == "undefined"))
        if node.name == "string":
            return Known(isinstance(value, Text) or isinstance(getattr(value, "value", None), str))
        if node.name == "mapping":
            return Known(isinstance(value, (Message, Part)))
        if node.name == "none" and not isinstance(value, Known):
            return Known(False)
        return UNKNOWN

    def _filter(self, node: nodes.Filter) -> Any:
        value = UNKNOWN if node.node is None else self.value(node.node)
        if node.name in ("default", "d") and node.args:
            other = self.value(node.args[0])
            return other if value is ABSENT else joined([value, other])
        if node.name in ("first", "last"):
            return item_of(value, 0)
        return value if node.name == "list" else _reworked(value, FILTERS.get(node.name))

    def _call(self, node: nodes.Call) -> Any:
        called = node.node
        if isinstance(called, nodes.Name):
            if called.name in self.macros:
                return self.expanded(self.macros[called.name], node)
            return Known("") if called.name == "raise_exception" else UNKNOWN
        if not isinstance(called, nodes.Getattr):
            return UNKNOWN
        value = self.value(called.node)
        if called.attr in ("split", "rsplit"):
            text = _reworked(value, SAME)
            return Pieces(text) if isinstance(text, Text) else UNKNOWN
        return _reworked(value, METHODS.get(called.attr))

    _VALUES: Mapping[type[nodes.Node], Callable[..., Any]] = {
        nodes.Const: lambda self, node: Known(node.value),
        nodes.List: lambda self, node: UNKNOWN if node.items else Known([]),
        nodes.Name: lambda self, node: self.names.get(node.name, UNKNOWN),
        nodes.Getattr: _item,
        nodes.Getitem: _item,
        nodes.Add: _sum,
        nodes.Concat: _sum,
        nodes.CondExpr: _either,
        nodes.Or: _or,
        nodes.And: _and,
        nodes.Not: _not,
        nodes.Test: _test,
        nodes.Filter: _filter,
        nodes.Call: _call,
    }


def _reworked(value: Any, times: tuple[int, int] | None) -> Any:
    if times is None or not isinstance(value, (Text, Known)):
        return UNKNOWN
    return printed(value).times(*times)
