"""What `--find` and `assert:` are written in: comparisons of metrics with `and`, `or`, `not`; parsed, never evaluated.

    condition  = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | comparison
    comparison = operand [ ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) operand ]
    operand    = number | "true" | "false" | 'text' | name | function "(" condition ")" | "(" condition ")"

A name is a metric. Functions look at all runs: mean(m), min(m), max(m), share(condition).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from microsim.errors import UsageError, unknown

Value: TypeAlias = float | int | bool | str | None
Row: TypeAlias = Mapping[str, Value]

LONGEST = 1000  # characters
DEEPEST = 30

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_]\w*(?:\.\w+)*)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign><=|>=|==|!=|<|>|\(|\))"
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class ExpressionError(UsageError):
    """An expression that cannot be read."""


# ---- the tree --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constant:
    value: float | bool | str

    def of(self, row: Row, rows: Sequence[Row]) -> Value:
        return self.value


@dataclass(frozen=True)
class Metric:
    name: str

    def of(self, row: Row, rows: Sequence[Row]) -> Value:
        value = row[self.name]
        return None if isinstance(value, float) and math.isnan(value) else value


@dataclass(frozen=True)
class Comparison:
    sign: str
    left: Node
    right: Node

    def of(self, row: Row, rows: Sequence[Row]) -> bool:
        """What has no value meets no comparison, not even `!=`."""
        left, right = self.left.of(row, rows), self.right.of(row, rows)
        return left is not None and right is not None and _COMPARE[self.sign](left, right)


@dataclass(frozen=True)
class Not:
    inner: Node

    def of(self, row: Row, rows: Sequence[Row]) -> bool:
        return not self.inner.of(row, rows)


@dataclass(frozen=True)
class Junction:
    is_and: bool
    parts: tuple[Node, ...]

    def of(self, row: Row, rows: Sequence[Row]) -> bool:
        return (all if self.is_and else any)(part.of(row, rows) for part in self.parts)


@dataclass(frozen=True)
class Aggregate:
    function: str
    inner: Node

    def of(self, row: Row, rows: Sequence[Row]) -> Value:
        values = [self.inner.of(each, rows) for each in rows]
        if self.function == "share":
            return sum(bool(value) for value in values) / len(values) if values else None
        numbers = [float(value) for value in values if value is not None and not isinstance(value, str)]
        return FUNCTIONS[self.function](numbers) if numbers else None


Node: TypeAlias = Constant | Metric | Comparison | Not | Junction | Aggregate

FUNCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda numbers: math.fsum(numbers) / len(numbers),
    "min": min,
    "max": max,
    "share": lambda numbers: math.nan,  # of runs in which a condition holds: computed by itself
}


@dataclass(frozen=True)
class Condition:
    """A parsed expression that is true or false."""

    text: str
    root: Node

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric it looks at, in the order of the text."""
        return tuple(dict.fromkeys(node.name for node in _walk(self.root) if isinstance(node, Metric)))

    @property
    def is_about_all_runs(self) -> bool:
        return any(isinstance(node, Aggregate) for node in _walk(self.root))

    def holds(self, row: Row, rows: Sequence[Row] = ()) -> bool:
        return bool(self.root.of(row, rows))

    def checked(self, kinds: Mapping[str, type]) -> Condition:
        """Refuses what makes no sense for metrics of these types; gives itself."""
        _check(self.root, kinds, self.text)
        return self


def _walk(node: Node) -> Iterator[Node]:
    yield node
    inner: tuple[Node, ...] = ()
    if isinstance(node, Comparison):
        inner = (node.left, node.right)
    elif isinstance(node, (Not, Aggregate)):
        inner = (node.inner,)
    elif isinstance(node, Junction):
        inner = node.parts
    for each in inner:
        yield from _walk(each)


# ---- what makes sense ------------------------------------------------------------------------------------------------


def _check(root: Node, kinds: Mapping[str, type], text: str) -> None:
    if _kind(root, kinds, text, False) is not bool:
        raise ExpressionError(f"{text!r} is no condition: compare it, as in 'collisions > 0'")


def _kind(node: Node, kinds: Mapping[str, type], text: str, inside: bool) -> type:
    """bool, float or str; `inside`: of an aggregate."""
    if isinstance(node, Constant):
        return type(node.value)
    if isinstance(node, Metric):
        found = kinds[node.name]
        return float if found is int else found
    if isinstance(node, Comparison):
        return _comparison_kind(node, kinds, text, inside)
    if isinstance(node, Aggregate):
        return _aggregate_kind(node, kinds, text, inside)
    for part in node.parts if isinstance(node, Junction) else (node.inner,):
        if _kind(part, kinds, text, inside) is not bool:
            word = "not" if isinstance(node, Not) else "and" if node.is_and else "or"
            raise ExpressionError(f"{text!r}: what stands beside `{word}` must be true or false; compare it")
    return bool


def _comparison_kind(node: Comparison, kinds: Mapping[str, type], text: str, inside: bool) -> type:
    left, right = _kind(node.left, kinds, text, inside), _kind(node.right, kinds, text, inside)
    words = {bool: "true or false", float: "a number", str: "text"}
    if left is not right:
        raise ExpressionError(f"{text!r} compares {words[left]} with {words[right]}")
    if left is not float and node.sign not in ("==", "!="):
        raise ExpressionError(f"{text!r}: {words[left]} has no order; use == or !=")
    return bool


def _aggregate_kind(node: Aggregate, kinds: Mapping[str, type], text: str, inside: bool) -> type:
    if inside:
        raise ExpressionError(f"{text!r}: {node.function}(…) cannot stand inside of another such function")
    found, wanted = _kind(node.inner, kinds, text, True), bool if node.function == "share" else float
    if found is not wanted:
        expected = "a condition, as in share(collisions > 0)" if wanted is bool else "a metric that is a number"
        raise ExpressionError(f"{text!r}: {node.function}(…) takes {expected}")
    return float


# ---- parsing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Word:
    kind: str
    text: str
    at: int  # character, from 1


def parse(text: str, known: Callable[[str], object] | None = None) -> Condition:
    """The condition; ExpressionError says what is wrong and where. `known` refuses a name by raising UsageError."""
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression may have {LONGEST} characters at most, this one has {len(text)}")
    return Condition(text.strip(), _Parser(text, known).whole())


def _words(text: str) -> list[_Word]:
    words, place = [], 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            hint = "; equal is ==" if text[place] == "=" else ""
            raise ExpressionError(f"{text!r}: unexpected {text[place]!r} at character {place + 1}{hint}")
        if found.lastgroup != "space":
            words.append(_Word(str(found.lastgroup), found[0], place + 1))
        place = found.end()
    return words


class _Parser:
    def __init__(self, text: str, known: Callable[[str], object] | None) -> None:
        self.text, self.known = text, known
        self.words = _words(text)
        self.depth = 0

    def whole(self) -> Node:
        node = self.condition()
        if self.words:
            raise self.wrong("`and`, `or` or the end")
        return node

    def condition(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ExpressionError(f"{self.text!r} is nested too deeply; expected at most {DEEPEST} levels")
        parts = [self.all()]
        while self.take("or"):
            parts.append(self.all())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else Junction(False, tuple(parts))

    def all(self) -> Node:
        parts = [self.one()]
        while self.take("and"):
            parts.append(self.one())
        return parts[0] if len(parts) == 1 else Junction(True, tuple(parts))

    def one(self) -> Node:
        negations = 0
        while self.take("not"):
            negations += 1
        node = self.comparison()
        return Not(node) if negations % 2 else Not(Not(node)) if negations else node

    def comparison(self) -> Node:
        left = self.operand()
        if self.words and self.words[0].text in _COMPARE:
            sign = self.words.pop(0).text
            return Comparison(sign, left, self.operand())
        return left

    def operand(self) -> Node:
        if self.take("("):
            return self.closed(self.condition())
        if not self.words:
            raise self.wrong("a metric or a number")
        word = self.words[0]
        if word.kind == "sign" or word.text in ("and", "or", "not"):
            raise self.wrong("a metric or a number")
        self.words.pop(0)
        if word.kind == "number":
            return Constant(float(word.text))
        if word.kind == "text":
            return Constant(word.text[1:-1])
        if word.text in ("true", "false"):
            return Constant(word.text == "true")
        return self.named(word)

    def named(self, word: _Word) -> Node:
        if self.take("("):
            if word.text not in FUNCTIONS:
                raise ExpressionError(f"{self.text!r}: {unknown('no function', repr(word.text), word.text, FUNCTIONS)}")
            return Aggregate(word.text, self.closed(self.condition()))
        if self.known is not None:
            try:
                self.known(word.text)
            except UsageError as error:
                raise ExpressionError(f"{self.text!r}: {error}") from None
        return Metric(word.text)

    def closed(self, node: Node) -> Node:
        if not self.take(")"):
            raise self.wrong("`)`")
        return node

    def take(self, text: str) -> bool:
        is_next = bool(self.words) and self.words[0].text == text and self.words[0].kind != "text"
        if is_next:
            self.words.pop(0)
        return is_next

    def wrong(self, expected: str) -> ExpressionError:
        if not self.words:
            return ExpressionError(f"{self.text!r} ends too soon; expected {expected}")
        word = self.words[0]
        return ExpressionError(f"{self.text!r}: expected {expected}, found {word.text!r} at character {word.at}")
