"""The language of `--find` and `assert:`: comparisons of metrics joined by `and`, `or`, `not`. Never evaluated as code.

    condition  = comparison | condition ("and" | "or") condition | "not" condition | "(" condition ")"
    comparison = operand [ ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) operand ]
    operand    = number | "true" | "false" | 'text' | metric | function "(" condition ")" | "(" condition ")"

Functions consider all runs: mean(m), min(m), max(m), share(condition).

Python's own parser supplies precedence and nesting, and nothing else. It sees a placeholder `_` for every name, number
and text, and of the rest only `and`, `or`, `not`, comparison signs and parentheses, in an order that was checked
before. So a robot may be called `class`, and no input can reach what Python's grammar has beyond this one.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from microsim.errors import UsageError, unknown

Value: TypeAlias = float | int | bool | str | None
Row: TypeAlias = Mapping[str, Value]
Evaluate: TypeAlias = Callable[[Row, Sequence[Row]], Value]  # one run, all runs
KindOf: TypeAlias = Callable[[str], type]  # of a metric: float, int, bool or str; UsageError: there is none

MAX_LENGTH = 1000  # characters
MAX_DEPTH = 30

_TOKEN = re.compile(
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_]\w*(?:\.\w+)*)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign><=|>=|==|!=|<|>|\(|\))"
)
_COMPARE: Mapping[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}
_SIGNS = [sign for sign, _ in _COMPARE.values()]
FUNCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda numbers: math.fsum(numbers) / len(numbers),
    "min": min,
    "max": max,
    "share": lambda flags: math.fsum(flags) / len(flags),
}
_KIND_NAMES = {bool: "true or false", float: "a number", str: "text"}


class ExpressionError(UsageError):
    """An expression that cannot be read."""


@dataclass(frozen=True)
class Condition:
    """An expression that is true or false."""

    text: str
    metrics: tuple[str, ...]  # in the order of the text
    is_about_all_runs: bool
    evaluate: Evaluate = field(repr=False, compare=False)

    def holds(self, row: Row, rows: Sequence[Row] = ()) -> bool:
        return bool(self.evaluate(row, rows))


def parse(text: str, kind_of: KindOf) -> Condition:
    """The condition; ExpressionError says what is wrong and at which character."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"expected an expression of at most {MAX_LENGTH} characters, found {len(text)}")
    tokens = _tokens(text)
    _check_order(text, tokens)
    try:
        tree = ast.parse(" ".join(token.shown for token in tokens), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the order was checked: this is a safety net
        raise ExpressionError(f"{text!r} is not a condition") from None
    reader = _TreeReader(text, tokens, kind_of)
    kind, evaluate = reader.read(tree.body)
    if kind is not bool:
        raise ExpressionError(f"{text!r} is not a condition; compare it, as in 'collisions > 0'")
    return Condition(text.strip(), tuple(dict.fromkeys(reader.metrics)), reader.has_functions, evaluate)


# ---- tokens ----------------------------------------------------------------------------------------------------------


class _Lexeme(NamedTuple):
    kind: str  # number, name, text, or sign: what the grammar itself consists of
    text: str
    at: int  # character in the expression, from 1
    column: int  # in what Python parses

    @property
    def shown(self) -> str:
        """What Python parses."""
        return self.text if self.kind == "sign" else "_"


def _tokens(text: str) -> list[_Lexeme]:
    tokens: list[_Lexeme] = []
    at = column = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        found = _TOKEN.match(text, at)
        if found is None:
            hint = "; equality is written ==" if text[at] == "=" else ""
            raise ExpressionError(f"{text!r}: unexpected {text[at]!r} at character {at + 1}{hint}")
        kind = "sign" if found[0] in ("and", "or", "not") else str(found.lastgroup)
        tokens.append(_Lexeme(kind, found[0], at + 1, column))
        at, column = found.end(), column + len(tokens[-1].shown) + 1
    return tokens


def _check_order(text: str, tokens: Sequence[_Lexeme]) -> None:
    """Refuses the first token that cannot follow those before it, and what is nested too deeply."""
    needs_operand, depth, before = True, 0, _Lexeme("sign", "(", 0, 0)
    for token in tokens:
        if needs_operand:
            may_negate = token.text == "not" and before.text not in _SIGNS
            if token.kind == "sign" and token.text != "(" and not may_negate:
                raise _unexpected(text, "a metric or a number", token)
            needs_operand = token.kind == "sign"
        else:
            is_call = token.text == "(" and before.kind == "name" and before.text not in ("true", "false")
            is_end = token.text == ")" and depth > 0
            if not (is_call or is_end or (token.kind == "sign" and token.text not in ("(", ")", "not"))):
                raise _unexpected(text, "`and`, `or` or " + ("`)`" if depth else "the end"), token)
            needs_operand = not is_end
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth >= MAX_DEPTH:
            raise ExpressionError(f"{text!r} is nested too deeply; expected at most {MAX_DEPTH} levels")
        before = token
    if needs_operand or depth:
        raise ExpressionError(f"{text!r} ends too soon; expected {'a metric or a number' if needs_operand else '`)`'}")


def _unexpected(text: str, expected: str, token: _Lexeme) -> ExpressionError:
    return ExpressionError(f"{text!r}: expected {expected}, found {token.text!r} at character {token.at}")


# ---- from Python's tree to a function --------------------------------------------------------------------------------


class _TreeReader:
    """Turns each node of the tree into its kind (bool, float or str) and the function that evaluates it."""

    def __init__(self, text: str, tokens: Sequence[_Lexeme], kind_of: KindOf) -> None:
        self.text, self.tokens, self.kind_of = text, tokens, kind_of
        self.at_column = {token.column: token for token in tokens}
        self.metrics: list[str] = []
        self.has_functions = self.is_inside_function = False

    def read(self, node: ast.expr) -> tuple[type, Evaluate]:
        if isinstance(node, ast.BoolOp):
            return self._junction(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._negation(node)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            return self._function(node)
        if isinstance(node, ast.Name):
            return self._operand(self.at_column[node.col_offset])
        raise ExpressionError(f"{self.text!r} is not a condition")  # nothing else passes the check of the order

    def _junction(self, node: ast.BoolOp) -> tuple[type, Evaluate]:
        word, combine = ("and", all) if isinstance(node.op, ast.And) else ("or", any)
        parts = [self._flag(part, word) for part in node.values]
        return bool, lambda row, rows: combine(part(row, rows) for part in parts)

    def _negation(self, node: ast.UnaryOp) -> tuple[type, Evaluate]:
        inner: ast.expr = node
        count = 0
        while isinstance(inner, ast.UnaryOp):  # a loop: there may be hundreds in a row
            inner, count = inner.operand, count + 1
        evaluate, is_odd = self._flag(inner, "not"), count % 2 == 1
        return bool, lambda row, rows: bool(evaluate(row, rows)) is not is_odd

    def _flag(self, node: ast.expr, word: str) -> Evaluate:
        kind, evaluate = self.read(node)
        if kind is not bool:
            raise ExpressionError(f"{self.text!r}: the operands of `{word}` must be true or false; compare them")
        return evaluate

    def _comparison(self, node: ast.Compare) -> tuple[type, Evaluate]:
        if len(node.ops) > 1:
            end = node.comparators[0].end_col_offset or 0
            second = next(token for token in self.tokens if token.column >= end and token.text in _SIGNS)
            raise _unexpected(self.text, "`and`, `or` or the end", second)
        (left_kind, left), (right_kind, right) = self.read(node.left), self.read(node.comparators[0])
        sign, compare = _COMPARE[type(node.ops[0])]
        if left_kind is not right_kind:
            raise ExpressionError(f"{self.text!r} compares {_KIND_NAMES[left_kind]} with {_KIND_NAMES[right_kind]}")
        if left_kind is not float and sign not in ("==", "!="):
            raise ExpressionError(f"{self.text!r}: {_KIND_NAMES[left_kind]} has no order; use == or !=")

        def evaluate(row: Row, rows: Sequence[Row]) -> bool:
            """A missing value meets no comparison, not even `!=`."""
            one, other = left(row, rows), right(row, rows)
            return one is not None and other is not None and compare(one, other)

        return bool, evaluate

    def _function(self, node: ast.Call) -> tuple[type, Evaluate]:
        name = self.at_column[node.func.col_offset].text
        if name not in FUNCTIONS:
            raise ExpressionError(f"{self.text!r}: {unknown('no function', repr(name), name, FUNCTIONS)}")
        if self.is_inside_function:
            raise ExpressionError(f"{self.text!r}: {name}(…) cannot be used inside another function")
        self.has_functions = self.is_inside_function = True
        kind, inner = self.read(node.args[0])
        self.is_inside_function = False
        if kind is not (bool if name == "share" else float):
            expected = "a condition, as in share(collisions > 0)" if name == "share" else "a metric that is a number"
            raise ExpressionError(f"{self.text!r}: {name}(…) takes {expected}")

        def evaluate(row: Row, rows: Sequence[Row]) -> Value:
            values = [inner(each, rows) for each in rows]
            numbers = [float(value or 0.0) for value in values if value is not None or kind is bool]
            return FUNCTIONS[name](numbers) if numbers else None

        return float, evaluate

    def _operand(self, token: _Lexeme) -> tuple[type, Evaluate]:
        value: float | bool | str
        if token.kind == "number":
            value = float(token.text)
        elif token.kind == "text":
            value = token.text[1:-1]
        elif token.text in ("true", "false"):
            value = token.text == "true"
        else:
            return self._metric(token.text)
        return type(value), lambda row, rows: value

    def _metric(self, name: str) -> tuple[type, Evaluate]:
        try:
            kind = self.kind_of(name)
        except UsageError as error:
            raise ExpressionError(f"{self.text!r}: {error}") from None
        self.metrics.append(name)

        def evaluate(row: Row, rows: Sequence[Row]) -> Value:
            value = row[name]
            return None if isinstance(value, float) and math.isnan(value) else value

        return float if kind is int else kind, evaluate
