"""Kinds of files that users write, such as scenarios, as `microsim validate` checks them.

    FILE_KIND = FileKind("mission", 20, names=mission_names, is_one=is_mission, check=problems)

A kind is declared in the module `file_kind` of a folder of the core or of a part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from microsim.errors import Problem
from microsim.registry import Registry


@dataclass(frozen=True)
class FileKind:
    """One kind. The functions import what they need when they are called."""

    name: str  # of one, such as mission
    position: int  # where several kinds recognise a file, the last one has it
    names: Callable[[], Sequence[str]]  # of those that ship with MicroSim
    is_one: Callable[[str], bool]  # by what a file or folder contains
    check: Callable[[str], Sequence[Problem]]  # what is wrong with it; also raises ScenarioError


FILE_KINDS: Registry[FileKind] = Registry(
    constant="FILE_KIND", package="microsim", in_folders="file_kind", group="microsim.file_kinds",
    expected="FileKind(...)", is_one=lambda declared: isinstance(declared, FileKind),
    order=lambda declared: declared.position,
)  # fmt: skip


def kind_of(source: str) -> FileKind:
    """What a name or file is: shipped names come first, then what the file itself contains; else a scenario."""
    kinds = FILE_KINDS.all()
    found = [each for each in kinds if source in each.names()] or [each for each in kinds[::-1] if each.is_one(source)]
    return found[0]
