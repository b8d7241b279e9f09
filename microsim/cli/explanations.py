"""What there is to know about a key, topic, sensor, fault, metric or command: the texts of the reference, by name.

All of it is made from the models and declarations, as the pages of the reference are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Schema = dict[str, Any]

_UNIT = re.compile(r"\[([^\[\]\s]{1,9})\]")
_DEEPEST = 7  # keys in a path
_KINDS = {"number": "number", "integer": "whole number", "boolean": "true or false", "string": "text"}
_LIMITS = (
    ("minimum", "at least"),
    ("exclusiveMinimum", "above"),
    ("maximum", "at most"),
    ("exclusiveMaximum", "below"),
)


@dataclass(frozen=True)
class Explanation:
    name: str  # `robots.drone.max_vx`, `/clock`, `dropout`, `collisions`, `sweep`
    kind: str  # `key of scenarios`, `topic`, `fault`, `metric`, `command` …
    about: str
    default: str = ""
    limits: str = ""
    unit: str = ""
    example: str = ""

    def lines(self) -> list[str]:
        facts = {"default": self.default, "range": self.limits, "unit": self.unit, "example": self.example}
        return [f"{self.name}  ({self.kind})", f"  {self.about}", *(f"  {k}: {v}" for k, v in facts.items() if v)]

    def plain(self) -> dict[str, str]:
        return asdict(self)


def all_explanations() -> list[Explanation]:
    return [*_keys(), *_topics(), *_faults(), *_commands(), *_listed()]


def found_for(text: str, entries: Sequence[Explanation]) -> list[Explanation]:
    """Those of that name; else those whose name ends with it, then has it; else those whose text has all its words."""
    wanted = text.lower().strip()
    names = [(each, each.name.lower()) for each in entries]
    for matches in (
        [each for each, name in names if name == wanted],
        [each for each, name in names if name.endswith((f".{wanted}", f"/{wanted}"))],
        [each for each, name in names if wanted in name],
    ):
        if matches:
            return matches
    words = wanted.split()
    return [each for each in entries if all(word in f"{each.name} {each.about}".lower() for word in words)]


def _keys() -> Iterator[Explanation]:
    from microsim.scenario import json_schema

    whole = json_schema()
    yield from _keys_of(whole, whole["$defs"], "")


def _keys_of(
    block: Schema, blocks: Mapping[str, Schema], path: str, above: tuple[str, ...] = ()
) -> Iterator[Explanation]:
    for key, value in block.get("properties", {}).items():
        place = f"{path}.{key}".removeprefix(".")
        yield _key(place, value)
        for name, inner in _blocks_in(value):
            if name not in above and place.count(".") < _DEEPEST:
                yield from _keys_of(blocks[name], blocks, f"{place}{inner}", (*above, name))


def _blocks_in(value: Schema) -> Iterator[tuple[str, str]]:
    """Names of blocks that a value can be, each with what its keys are below."""
    if "$ref" in value:
        yield value["$ref"].rsplit("/", 1)[1], ""
    for each in value.get("anyOf", ()):
        yield from _blocks_in(each)
    for each in value.get("properties", {}).values() if value.get("type") == "object" else ():
        yield from _blocks_in(each)
    if isinstance(value.get("items"), dict):
        yield from ((name, f".0{inner}") for name, inner in _blocks_in(value["items"]))
    for pattern in (*value.get("patternProperties", {}).values(), value.get("additionalProperties")):
        if isinstance(pattern, dict):
            yield from ((name, f".NAME{inner}") for name, inner in _blocks_in(pattern))


def _key(place: str, value: Schema) -> Explanation:
    about = value.get("description", "")
    units = _UNIT.findall(about)
    plain: Schema = next((each for each in (value, *value.get("anyOf", ())) if each.get("type") in _KINDS), {})
    limits = ", ".join(
        f"{words} {plain[name]:g}" for name, words in _LIMITS if isinstance(plain.get(name), (int, float))
    )
    limits = limits or ", ".join(map(str, value.get("enum") or plain.get("enum") or ()))
    default = json.dumps(value["default"]) if "default" in value else ""
    default = default if len(default) < 60 else "a block of defaults"
    is_number = plain.get("type") in ("number", "integer") and isinstance(value.get("default"), (int, float))
    example = f"microsim sweep --vary {place}={value['default']},…" if is_number and "NAME" not in place else ""
    return Explanation(place, "key of scenarios", about, default, limits, units[0] if len(units) == 1 else "", example)


def _topics() -> Iterator[Explanation]:
    from microsim.messages.topics import TOPICS

    for each in TOPICS.values():
        way = "sent" if each.direction == "out" else "taken"
        about = f"{each.about or each.kind}; {each.type}, {way}, {each.rate}"
        yield Explanation(
            each.name.replace("{robot}", "ROBOT"), "topic", about, example=f"microsim topic echo {each.name}"
        )


def _faults() -> Iterator[Explanation]:
    from microsim.faults import FAULTS

    for name, kind in FAULTS.built_in.items():
        yield Explanation(
            name, "fault", kind.about, example=f"microsim run --inject '{kind.example}'" if kind.example else ""
        )


def _commands() -> Iterator[Explanation]:
    from microsim.cli.command import COMMANDS

    for name, command in COMMANDS.built_in.items():
        help_text = (
            getattr(command.work, "__doc__", "") if not hasattr(command.work, "info") else command.work.info.help
        )
        lines = [line.strip() for line in (help_text or "").splitlines()]
        about = lines[0] if lines else ""
        example = next((line for line in lines if line.startswith(f"microsim {name}")), "")
        yield Explanation(f"microsim {name}", "command", about, example=re.split(r"\s{3,}", example)[0])


def _listed() -> Iterator[Explanation]:
    """What parts list: metrics, sensors, generators, scenarios, missions."""
    from microsim.listings import LISTINGS

    for group in LISTINGS.all():
        for name, about in group.entries().items():
            yield Explanation(name, group.name, about)
