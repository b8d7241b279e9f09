"""Whatever is written, the answer is a scenario or the list of what is wrong with it."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from microsim.documents.yaml_text import read_yaml
from microsim.errors import ScenarioError
from microsim.paths import scenario_file, scenario_names
from microsim.scenario import Scenario, load_scenario

ALL = {name: scenario_file(name).read_text(encoding="utf-8") for name in scenario_names()}
TREES = {name: read_yaml(text, name).data for name, text in ALL.items()}

Place = tuple[Any, Any]  # a container, and a key or index of it

numbers = st.integers() | st.floats() | st.sampled_from([0, -1, 1e-320, 1e308, 2**63, 10**400, 0.5, 1e7])
words = st.sampled_from(
    [
        "",
        "drone",
        "rover",
        "box",
        "flat",
        "hills",
        "water",
        "none",
        "null",
        "random_maze",
        "1",
        ".nan",
        "../x",
        "\0",
        "é",
    ]
)
leaves = st.none() | st.booleans() | numbers | words | st.text(max_size=8)
keys = st.sampled_from(["type", "class", "center", "size", "hz", "plugin", "file", "generate", "model", "start"])
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys | words, inner, max_size=4), max_leaves=12
)


def answer(source: Any) -> None:
    """Loading gives a Scenario that survives its own dump, or a ScenarioError that says something."""
    try:
        scenario = load_scenario(source)
    except ScenarioError as refusal:
        check_message(refusal)
    else:
        assert isinstance(scenario, Scenario)
        assert load_scenario(scenario.to_dict()) == scenario


def check_message(refusal: ScenarioError) -> None:
    assert refusal.problems
    assert all(problem.message for problem in refusal.problems)
    assert "pydantic" not in str(refusal)
    assert "Traceback" not in str(refusal)


def places(tree: Any) -> list[Place]:
    if isinstance(tree, dict):
        return [place for key, value in tree.items() for place in ((tree, key), *places(value))]
    if isinstance(tree, list):
        return [place for index, value in enumerate(tree) for place in ((tree, index), *places(value))]
    return []


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(TREES)), st.data())
def test_a_shipped_scenario_with_values_changed_taken_away_or_renamed(name: str, data: st.DataObject) -> None:
    tree = copy.deepcopy(TREES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        found = places(tree)
        if not found:
            break
        container, key = found[data.draw(st.integers(0, len(found) - 1))]
        change = data.draw(st.sampled_from(["replace", "remove", "rename"]))
        if change == "replace" or isinstance(container, list):
            container[key] = data.draw(values)
        elif change == "remove":
            del container[key]
        else:
            container[data.draw(st.text(max_size=6))] = container.pop(key)
    answer(tree)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(Scenario.key_names()) | st.text(max_size=4), values, max_size=5))
def test_any_data_under_any_key(data: dict[str, Any]) -> None:
    answer(data)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(sorted(ALL)),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 20), st.text(max_size=6) | st.sampled_from(
        ["\t", "  ", ": ", "- ", "&a ", "*a", "<<: ", "!!int ", "{", "]", "#", "|", ">", "?", "%", "\n", "'", "---\n"]
    )), min_size=1, max_size=4),
)  # fmt: skip
def test_a_shipped_text_with_pieces_cut_out_and_put_in(
    tmp_path: Path, name: str, edits: list[tuple[float, int, str]]
) -> None:
    text = ALL[name]
    for where, cut, piece in edits:
        at = int(where * len(text))
        text = text[:at] + piece + text[at + cut :]
    file = tmp_path / "mutated.yaml"
    file.write_text(text, encoding="utf-8", errors="replace")
    answer(file)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_in_a_file(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "any.yaml"
    file.write_bytes(raw)
    answer(file)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_name(name: str) -> None:
    answer(name)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=120), st.sampled_from([".npy", ".csv"]), st.booleans())
def test_any_bytes_in_a_heightmap(tmp_path: Path, raw: bytes, suffix: str, magic: bool) -> None:
    file = tmp_path / f"h{suffix}"
    file.write_bytes((b"\x93NUMPY\x01\x00" if magic else b"") + raw)
    answer({"map": {"size_xy_cells": [3, 2], "elevation": {"file": str(file)}}, "robots": {}})


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_key_of_every_shipped_scenario_may_be_left_out(name: str) -> None:
    """Either it is optional, or the message says that it is missing."""
    for index in range(len(places(TREES[name]))):
        tree = copy.deepcopy(TREES[name])
        container, key = places(tree)[index]
        del container[key]
        try:
            load_scenario(tree)
        except ScenarioError as error:
            text = str(error)
            assert any(word in text for word in ("missing key", "expected", "the start")), text
