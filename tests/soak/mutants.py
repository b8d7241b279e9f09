"""Seeded damage: bytes flipped, cut, repeated or put in; trees with nodes replaced, removed, renamed or added."""

from __future__ import annotations

import copy
import random
from typing import Any

PIECES = ["\t", "  ", ": ", "- ", "&a ", "*a", "<<: ", "!!int ", "{", "]", "#", "|", "?", "%", "\n", "'", "---\n", "\0"]
NUMBERS = [0, -1, 1, 0.5, -0.0, 5e-324, 1e-320, 1e7, 1e308, -1e308, 2**31, 2**63, -(2**63), 2**70, 10**400]
NUMBERS += [float("nan"), float("inf"), float("-inf")]
WORDS = [
    "",
    "x",
    "/",
    "..",
    "../x",
    "\0",
    "é",
    "null",
    ".nan",
    "1",
    "drone",
    "rover",
    "box",
    "flat",
    "hills",
    "base_link",
]
KEYS = ["type", "class", "center", "size", "hz", "plugin", "file", "generate", "model", "start", "expect", "x"]


def damaged(dice: random.Random, raw: bytes) -> bytes:
    """The bytes with one to six changes, half of them near the beginning, where headers are."""
    data = bytearray(raw)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 6))):
        reach = len(data) if dice.random() < 0.5 else min(len(data), 200)
        at = dice.randrange(reach + 1)
        match dice.randrange(6):
            case 0 | 1 if data:
                data[min(at, len(data) - 1)] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
            case 2:
                del data[at : at + dice.randint(1, 40)]
            case 3:
                data[at:at] = dice.randbytes(dice.randint(1, 12))
            case 4:
                data[at : at + 8] = dice.choice((b"\xff" * 8, b"\0" * 8, (2**63).to_bytes(8, "little")))
            case _:
                other = dice.randrange(len(data) + 1)
                data[at:at] = data[other : other + dice.randint(1, 64)]
    return bytes(data[: dice.randrange(len(data) + 1)]) if dice.random() < 0.1 else bytes(data)


def misspelled(dice: random.Random, text: str) -> str:
    """The text with pieces cut out and put in."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(text) + 1)
        text = text[:at] + dice.choice(PIECES) + text[at + dice.choice((0, 0, 1, 3, 12)) :]
    return text


def value(dice: random.Random, depth: int = 2) -> Any:
    kind = dice.randrange(6 if depth else 4)
    if kind == 0:
        return dice.choice((None, True, False))
    if kind in (1, 2):
        return dice.choice(NUMBERS) if dice.random() < 0.7 else dice.uniform(-1e3, 1e3)
    if kind == 3:
        return dice.choice(WORDS)
    if kind == 4:
        return [value(dice, depth - 1) for _ in range(dice.randrange(5))]
    return {dice.choice(KEYS): value(dice, depth - 1) for _ in range(dice.randrange(4))}


def changed(dice: random.Random, tree: Any) -> Any:
    """A copy of the tree with one to three nodes replaced, removed, renamed or added."""
    tree = copy.deepcopy(tree)
    for _ in range(dice.randint(1, 3)):
        places = _places(tree)
        if not places:
            break
        container, key = dice.choice(places)
        what = dice.randrange(4)
        if what == 0:
            del container[key]
        elif what == 1 and isinstance(container, dict):
            container[dice.choice((*KEYS, f"{key}_", "é"))] = container.pop(key)
        elif what == 2 and isinstance(container, dict):
            container[dice.choice(KEYS)] = value(dice)
        else:
            container[key] = value(dice)
    return tree


def _places(tree: Any) -> list[tuple[Any, Any]]:
    if isinstance(tree, dict):
        return [place for key, part in tree.items() for place in ((tree, key), *_places(part))]
    if isinstance(tree, list):
        return [place for index, part in enumerate(tree) for place in ((tree, index), *_places(part))]
    return []
