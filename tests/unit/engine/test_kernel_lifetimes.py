"""Addresses in kernels: numba frees an array after the last use of its name, whatever still has its address."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from numba.core import ir, postproc
from numba.core.compiler import run_frontend

import microsim
from microsim.engine.calls import table_address
from microsim.engine.records import address_of_record
from tests.support import COMPILED

pytestmark = pytest.mark.skipif(not COMPILED, reason="plain Python keeps what has a name")

MAKES = {"empty", "zeros", "ones", "full", "copy", "array", "empty_like", "zeros_like", "arange"}
TAKES = {"address_of_record", "table_address", "address"}


def names_of(code: Any) -> Iterator[str]:
    return (name.lstrip("_") for name in code.co_names)


def dead_uses(function: Any) -> list[int]:
    """Lines in which an address is used of an array that was made in this function and is freed."""
    found = run_frontend(function)
    postproc.PostProcessor(found).run(emit_dels=True)
    blocks = [found.blocks[label].body for label in sorted(found.blocks)]
    functions: dict[str, str] = {}
    made: set[str] = set()
    part_of: dict[str, str] = {}
    address_in: dict[str, str] = {}

    def whole(name: str) -> str:
        while name in part_of:
            name = part_of[name]
        return name

    for statement in (each for body in blocks for each in body if isinstance(each, ir.Assign)):
        name, value = statement.target.name, statement.value
        operation = getattr(value, "op", "")
        if isinstance(value, (ir.Global, ir.FreeVar)):
            functions[name] = value.name.lstrip("_")
        elif operation == "getattr":
            functions[name] = value.attr
        elif operation == "call" and functions.get(value.func.name) in MAKES:
            made.add(name)
        elif operation == "call" and functions.get(value.func.name) in TAKES:
            address_in.update((name, whole(each.name)) for each in value.args if whole(each.name) in made)
        elif operation in ("getitem", "static_getitem"):
            part_of[name] = value.value.name
        elif isinstance(value, ir.Var) and value.name in address_in:
            address_in[name] = address_in[value.name]
        elif isinstance(value, ir.Var) and value.name != name:
            part_of[name] = value.name
        elif operation == "binop":
            sides = (value.lhs, value.rhs)
            address_in.update((name, address_in[each.name]) for each in sides if each.name in address_in)
    lines = []
    for body in blocks:
        freed: set[str] = set()
        for statement in body:
            if isinstance(statement, ir.Del):
                freed.add(statement.value)
            elif any(address_in.get(each.name) in freed for each in statement.list_vars()):
                lines.append(statement.loc.line)
    return lines


def kernels() -> Iterator[tuple[str, Any]]:
    """All that take addresses."""
    for module in pkgutil.walk_packages(microsim.__path__, "microsim."):
        found: Any = None
        with suppress(ImportError):  # of a library that is not installed
            found = importlib.import_module(module.name)
        for name, value in vars(found).items() if found else ():
            form = getattr(value, "py_func", None)
            if form is not None and form.__module__ == module.name and TAKES.intersection(names_of(form.__code__)):
                yield f"{module.name}.{name}", form


def test_no_kernel_uses_the_address_of_an_array_that_is_freed() -> None:
    checked = dict(kernels())
    assert len(checked) > 10
    assert {name: lines for name, form in checked.items() if (lines := dead_uses(form))} == {}


def test_such_a_use_is_found() -> None:
    def wrong(count: int, copy: Any) -> None:
        numbers = np.zeros(count)
        copy(table_address(numbers), 8)

    def wrong_row(rows: Any, copy: Any) -> None:
        mine = rows.copy()
        copy(address_of_record(mine[0]) + 8)

    def right(count: int, copy: Any) -> None:
        numbers = np.zeros(count)
        copy(table_address(numbers), 8)
        numbers[0] = 1.0

    assert dead_uses(wrong)
    assert dead_uses(wrong_row)
    assert not dead_uses(right)
