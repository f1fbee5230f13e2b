"""The growth of a prompt by its chat template, proven from the source: no measuring, since a template may branch on
anything that it is given.

The template is walked with sizes in place of values. What is not understood may stand in a condition, where it prints
nothing; printed or repeated, it ends the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from jinja2 import Environment, TemplateSyntaxError, nodes

from models.template.values import (
    ABSENT,
    FILTERS,
    METHODS,
    SAME,
    UNKNOWN,
    Content,
    Known,
    Message,
    Messages,
    Part,
    Pieces,
    Text,
    Unproven,
    added,
    item_of,
    joined,
    printed,
    truth,
)

# No plain request gives these to a template.
NEVER_GIVEN = ("tools", "documents", "tool_choice", "continue_final_message")
MOST_MACROS_DEEP = 8
MOST_ITEMS = 64
Level = Literal["all", "message", "part", "nowhere"]


@dataclass(frozen=True, slots=True)
class Growth:
    """A rendered prompt has at most `copies` times the bytes of the messages' texts, and so many more for each message,
    for each part of a content, and once. No role may be longer than `ROLE_BYTES`."""

    copies: int
    per_message: int
    per_part: int
    fixed: int

    def largest(self, other: Growth) -> Growth:
        """A bound for both, of which one applies."""
        return Growth(
            max(self.copies, other.copies),
            max(self.per_message, other.per_message),
            max(self.per_part, other.per_part),
            max(self.fixed, other.fixed),
        )


def template_growth(source: str, special_tokens: Mapping[str, str], *, parts: bool) -> Growth | None:
    """The growth that is proven of a template for requests that are roles and texts alone; None where none is.

    `special_tokens` are the strings that the tokenizer gives to the template, such as `bos_token`; with `parts`, each
    message's content is given to it as a list of text parts, and else as one string.
    """
    environment = Environment(extensions=["jinja2.ext.loopcontrols"])
    environment.trim_blocks = environment.lstrip_blocks = True
    walk = _Walk({name: Known(value) for name, value in special_tokens.items()}, parts)
    try:
        walk.statements(environment.parse(source).body)
    except (TemplateSyntaxError, Unproven, RecursionError):
        return None
    return walk.growth


class _Walk:
    """One reading of a template: what names stand for, and the sum of what was printed."""

    def __init__(self, given: Mapping[str, Any], parts: bool) -> None:
        self.names = {**given, "messages": Messages(parts), **dict.fromkeys(NEVER_GIVEN, ABSENT)}
        self.macros: dict[str, nodes.Macro] = {}
        # What a macro sees: nothing that was set in a loop.
        self._globals = self.names
        self._depth = 0
        self._level: Level = "all"
        self._owner: object = "all"
        self.growth = Growth(0, 0, 0, 0)

    def statements(self, body: Sequence[nodes.Node]) -> None:
        for node in body:
            read = self._READERS.get(type(node))
            if read is None:
                raise Unproven(type(node).__name__)
            read(self, node)

    # What prints.

    def _output(self, node: nodes.Output) -> None:
        for part in node.nodes:
            self._print(Known(part.data) if isinstance(part, nodes.TemplateData) else self.value(part))

    def _print(self, value: Any) -> None:
        text = printed(value)
        if text.size == 0:
            return
        if self._level == "nowhere":
            raise Unproven("printed in a loop of unknown length")
        if (text.copies or text.per_part) and self._level != "all" and text.owner != self._owner:
            raise Unproven("a text printed again for each message")
        was = self.growth
        self.growth = replace(was, copies=was.copies + text.copies, per_part=was.per_part + text.per_part)
        once = {"all": "fixed", "message": "per_message", "part": "per_part"}[self._level]
        self.growth = replace(self.growth, **{once: getattr(self.growth, once) + text.fixed})

    # What branches and repeats.

    def _if(self, node: nodes.If) -> None:
        branches: list[tuple[nodes.Node | None, list[nodes.Node]]] = [(node.test, node.body)]
        branches += [(each.test, each.body) for each in node.elif_]
        branches.append((None, node.else_))
        before, ends = dict(self.names), []
        start = most = self.growth
        for test, body in branches:
            holds = True if test is None else truth(self.value(test))
            if holds is False:
                continue
            self.names, self.growth = dict(before), start
            self.statements(body)
            ends.append(self.names)
            most = most.largest(self.growth)
            if holds:
                break
        self.names, self.growth = _merged(ends), most

    def _for(self, node: nodes.For) -> None:
        items = self.value(node.iter)
        if isinstance(items, Known):
            self._repeat(node, [Known(item) for item in _items(items.value)], self._level, self._owner)
        elif items is not ABSENT:
            level, owner, item = self._loop(items)
            self._repeat(node, [item], level, owner)
        self.statements(node.else_)

    def _loop(self, items: Any) -> tuple[Level, object, Any]:
        owner = object()
        if isinstance(items, Messages) and self._level == "all":
            return "message", owner, Message(owner, items.parts)
        if isinstance(items, Content) and (self._level == "all" or items.owner == self._owner):
            return "part", owner, Part(owner)
        return "nowhere", owner, UNKNOWN

    def _repeat(self, node: nodes.For, items: Sequence[Any], level: Level, owner: object) -> None:
        for item in items:
            with self._inside(level, owner):
                self._bind(node.target, item)
                self.names["loop"] = UNKNOWN
                self.statements(node.body)

    @contextmanager
    def _inside(self, level: Level, owner: object) -> Iterator[None]:
        """Names that are set in a loop or a macro end with it."""
        kept = self.names, self._globals, self._level, self._owner
        if self._level == "all" and self._depth == 0:
            self._globals = dict(self.names)
        self.names, self._level, self._owner = dict(self.names), level, owner
        yield
        self.names, self._globals, self._level, self._owner = kept

    # What names things.

    def _set(self, node: nodes.Assign) -> None:
        self._bind(node.target, self.value(node.node))

    def _bind(self, target: nodes.Node, value: Any) -> None:
        if isinstance(target, nodes.Name):
            self.names[target.name] = value
        elif isinstance(target, nodes.Tuple):
            for each in target.items:
                self._bind(each, UNKNOWN)
        elif not isinstance(target, nodes.NSRef):
            raise Unproven("an unknown target")

    def _macro(self, node: nodes.Macro) -> None:
        self.macros[node.name] = node

    def _expanded(self, macro: nodes.Macro, call: nodes.Call) -> Text:
        """A macro's text for these arguments. Raises `Unproven`.

        It prints to a sum of its own, in the terms of the loop around it."""
        if self._depth >= MOST_MACROS_DEEP or call.kwargs or len(call.args) != len(macro.args):
            raise Unproven("a macro that is not followed")
        arguments = [self.value(argument) for argument in call.args]
        owners = {value.owner for value in arguments if getattr(value, "owner", None) is not None}
        if len(owners) > 1:
            raise Unproven("a macro over several messages")
        owner = next(iter(owners), self._owner)
        outer, self.growth = self.growth, Growth(0, 0, 0, 0)
        seen = self._globals if self._level != "all" or self._depth else self.names
        with self._inside("nowhere" if self._level == "nowhere" else "message", owner):
            self._depth += 1
            self.names = dict(seen)
            for parameter, value in zip(macro.args, arguments, strict=True):
                self.names[parameter.name] = value
            self.statements(macro.body)
            self._depth -= 1
        made, self.growth = self.growth, outer
        return Text(owner, copies=made.copies, per_part=made.per_part, fixed=made.per_message + made.fixed)

    _READERS: Mapping[type[nodes.Node], Callable[..., None]] = {
        nodes.Output: _output,
        nodes.If: _if,
        nodes.For: _for,
        nodes.Assign: _set,
        nodes.Macro: _macro,
        nodes.Break: lambda self, node: None,
        nodes.Continue: lambda self, node: None,
    }

    # Expressions.

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
                return self._expanded(self.macros[called.name], node)
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


def _items(value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or len(value) > MOST_ITEMS:
        raise Unproven("a loop over something unknown")
    return value


def _merged(ends: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The values of names after branches, each of which may have been taken."""
    names = {name for end in ends for name in end}
    return {name: joined([end.get(name, ABSENT) for end in ends]) for name in names}


def _reworked(value: Any, times: tuple[int, int] | None) -> Any:
    if times is None or not isinstance(value, (Text, Known)):
        return UNKNOWN
    return printed(value).times(*times)
