"""`plugin:` entries among the obstacles and features: found, checked, run, and replaced by what they generate.

Plug-ins written for version 0.1 import `Generator` and `Sensor` from here.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from microsim.documents.values import describe_error, show, unknown
from microsim.documents.yaml_text import Path, dotted
from microsim.generators import GENERATORS, Dice, Generator
from microsim.plugin_errors import plugin_error
from microsim.scenario.models import Scenario
from microsim.scenario.world_models import FEATURES, OBSTACLES
from microsim.sensors.plugin import check_options
from microsim.sensors.sensor import Sensor as Sensor  # noqa: PLC0414

MAX_GENERATED = 1_000_000

Found = tuple[str, Path, bool]  # message, where, whether at the key

_LISTS = ("obstacles", "features")


@dataclass(frozen=True)
class Entry:
    """One `plugin:` entry, ready to run."""

    key: str  # obstacles or features
    index: int  # in that list, as written
    generator: Generator
    options: Any
    block: Mapping[str, Any]  # as written

    @property
    def seed(self) -> int | None:
        """Of its own; None: it follows the run."""
        seed: int | None = getattr(self.options, "seed", None)
        return seed


@dataclass(frozen=True)
class Layout:
    """The lists of a scenario with generators: as written, and with what they made in the place of each entry."""

    written: Mapping[str, tuple[Any, ...]]  # by list: elements and entries
    made: Mapping[str, tuple[Any, ...]]  # by list: elements

    @property
    def follows_seed(self) -> bool:
        return any(isinstance(each, Entry) and each.seed is None for some in self.written.values() for each in some)

    @property
    def generators(self) -> set[str]:
        """Their names."""
        return {str(each.block["plugin"]) for some in self.written.values() for each in some if isinstance(each, Entry)}

    def is_made_of(self, scenario: Scenario) -> bool:
        """Whether nothing was spawned, moved or deleted since."""
        return all(getattr(scenario, key) == made for key, made in self.made.items())

    def data(self) -> dict[str, list[Any]]:
        """The lists as written, with every default."""
        return {key: [_plain_data(each) for each in written] for key, written in self.written.items()}


def _plain_data(element: Any) -> Any:
    if isinstance(element, Entry):
        return copy.deepcopy(dict(element.block))
    return element.model_dump(mode="json", by_alias=True)


@dataclass
class Generated:
    """The entries of a scenario, and which of the written elements are left beside them."""

    entries: list[Entry] = field(default_factory=list)
    kept: dict[str, list[int]] = field(default_factory=dict)  # by list: the written index of each kept element

    def original(self, path: Path) -> Path:
        """Where the author wrote what is at `path` once the entries are taken out."""
        if len(path) > 1 and path[0] in self.kept and isinstance(path[1], int):
            return (path[0], self.kept[str(path[0])][path[1]], *path[2:])
        return path


def prepare(data: Mapping[str, Any], folders: tuple[str, ...]) -> tuple[dict[str, Any], Generated, list[Found]]:
    """The data without its `plugin:` entries, the entries, and what is wrong with them."""
    rest = dict(data)
    generated = Generated()
    problems: list[Found] = []
    for key in _LISTS:
        written = data.get(key)
        if not isinstance(written, list):
            continue
        kept = [index for index, each in enumerate(written) if not (isinstance(each, Mapping) and "plugin" in each)]
        rest[key] = [written[index] for index in kept]
        generated.kept[key] = kept
        for index in sorted({*range(len(written))} - {*kept}):
            problems += _prepare_entry(generated, key, index, written[index], folders)
    return rest, generated, problems


def _prepare_entry(
    generated: Generated, key: str, index: int, block: Mapping[str, Any], folders: tuple[str, ...]
) -> list[Found]:
    name = block["plugin"]
    generator = GENERATORS.find(name, folders) if isinstance(name, str) else None
    if generator is None:
        return [(unknown("generator", name, GENERATORS.names(folders)), (key, index, "plugin"), False)]
    own = {option: value for option, value in block.items() if option != "plugin"}
    options, details = check_options(generator.options, own, ["plugin"])
    if details:
        error = ValidationError.from_exception_data("options", details)
        return [
            (describe_error(each), (key, index, *each["loc"]), bool(each.get("ctx", {}).get("at_key")))
            for each in error.errors(include_url=False)
        ]
    generated.entries.append(Entry(key, index, generator, options, block))
    return []


def insert(scenario: Scenario, generated: Generated) -> Scenario:
    """The scenario with what its generators make, each in the place of its entry."""
    if not generated.entries:
        return scenario
    written: dict[str, tuple[Any, ...]] = {}
    for key in _LISTS:
        elements, entries = (
            iter(getattr(scenario, key)),
            {each.index: each for each in generated.entries if each.key == key},
        )
        places = sorted([*generated.kept.get(key, range(len(getattr(scenario, key)))), *entries])
        written[key] = tuple(entries[place] if place in entries else next(elements) for place in places)
    return laid_out(scenario, written, scenario.world_seed)


def laid_out(scenario: Scenario, written: Mapping[str, tuple[Any, ...]], seed: int) -> Scenario:
    """The scenario with what its generators make of a seed; those with a seed of their own take that."""
    made: dict[str, list[tuple[tuple[int, int], Any]]] = {key: [] for key in _LISTS}
    for key, elements in written.items():
        for place, element in enumerate(elements):
            if not isinstance(element, Entry):
                made[key].append(((place, 0), element))
                continue
            for number, each in enumerate(_run(element, scenario, seed)):
                made["obstacles" if each.type in OBSTACLES else "features"].append(((place, number), each))
    in_place = {key: tuple(each for _, each in sorted(pairs, key=lambda pair: pair[0])) for key, pairs in made.items()}
    copied = scenario.model_copy(update=in_place)
    return copied.with_world_seed(scenario._world_seed, Layout(written, in_place))


def _run(entry: Entry, scenario: Scenario, seed: int) -> list[Any]:
    dice = Dice(seed if entry.seed is None else entry.seed, entry.generator.name, entry.index)
    who = f"generator {entry.generator.name!r} ({dotted((entry.key, entry.index))})"
    try:
        elements = list(entry.generator.generate(entry.options, scenario.map, dice))
    except (Exception, SystemExit) as error:
        raise plugin_error(error, f"{who} failed", entry.generator) from error
    if len(elements) > MAX_GENERATED:
        problem = f"{who} made {len(elements):,} elements; expected at most {MAX_GENERATED:,}"
        raise plugin_error(problem, "", entry.generator)
    return [_element(who, number, each, entry.generator) for number, each in enumerate(elements)]


def _element(who: str, number: int, element: Any, generator: Generator) -> Any:
    kinds = {**OBSTACLES, **FEATURES}
    kind = element.get("type") if isinstance(element, Mapping) else None
    if kind not in kinds:
        problem = f"{who} made an unusable element {number}: expected a dict with a type, found {show(element)}"
        raise plugin_error(problem, "", generator)
    try:
        return kinds[kind].model_validate(element)
    except ValidationError as error:
        reasons = "; ".join(
            f"{dotted(each['loc'])}: {describe_error(each)}" for each in error.errors(include_url=False)
        )
        raise plugin_error(f"{who} made an unusable element {number}, a {kind}: {reasons}", "", generator) from None
