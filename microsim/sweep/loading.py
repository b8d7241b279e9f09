"""`load_sweep`: from a file or a dict to a Sweep, or to every reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from microsim.documents.values import show
from microsim.documents.yaml_text import read_yaml
from microsim.errors import ScenarioError, SweepError, UsageError
from microsim.scenario.files import SUFFIXES, read_text
from microsim.scenario.messages import Places, in_order
from microsim.sweep.models import Sweep

_OWN_KEYS = ("seeds", "vary", "metrics", "assert", "out", "mission")  # neither a scenario nor a mission has them


def is_sweep(file: str | Path) -> bool:
    """Whether a file, by its keys, is a sweep rather than a scenario. What cannot be read is not."""
    path = Path(file)
    if path.suffix not in SUFFIXES or not path.is_file():
        return False
    try:
        data = read_yaml(read_text(path), str(path)).data
    except ScenarioError:
        return False
    return isinstance(data, Mapping) and any(key in data for key in _OWN_KEYS)


def load_sweep(source: str | Path | Mapping[str, Any] | Sweep, **changes: Any) -> Sweep:
    """The sweep of that file or content, with some keys given otherwise; SweepError lists all that is wrong."""
    if isinstance(source, Sweep):
        return source
    if isinstance(source, Mapping):
        return _validated(dict(source), Places(), changes)
    file = Path(source)
    try:
        document = read_yaml(read_text(file), str(file))
    except ScenarioError as error:
        raise SweepError(error.problems) from None
    return _validated(document.data, Places(str(file), document), changes)


def _validated(data: Any, places: Places, changes: Mapping[str, Any]) -> Sweep:
    if not isinstance(data, Mapping):
        keys = ", ".join(Sweep.key_names())
        raise SweepError(places.problem(f"expected a mapping with any of the keys {keys}, found {show(data)}", ()))
    try:
        sweep = Sweep.model_validate({**data, **changes})
    except ValidationError as error:
        raise SweepError(in_order(places.problems(error, data, lambda path: path))) from None
    sweep._places = places
    return sweep


def values_of(text: str) -> list[Any]:
    """`0.1,0.15`, `[0, 0, 0],[1, 0, 0]`, `true,false`: the values of a `--vary`, written as in YAML."""
    try:
        found = read_yaml(f"[{text}]", "--vary").data
    except ScenarioError:
        raise UsageError(f"expected values with commas between them, found {show(text)}") from None
    return list(found)
