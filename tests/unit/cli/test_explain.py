"""`microsim explain`: everything that can be written has an explanation, and a search finds it."""

from __future__ import annotations

import pytest

from microsim.cli.commands.explain import ExplainOptions, explain
from microsim.cli.explanations import Explanation, all_explanations, found_for
from microsim.errors import UsageError


@pytest.fixture(scope="module")
def entries() -> list[Explanation]:
    return all_explanations()


def test_a_key_has_default_range_unit_and_example(entries: list[Explanation]) -> None:
    (gust,) = found_for("wind.gust_sigma", entries)
    assert (gust.default, gust.limits, gust.unit) == ("0.0", "at least 0, at most 1000", "m/s")
    assert gust.example == "microsim sweep --vary wind.gust_sigma=0.0,…"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("controllers", "key of scenarios"),
        ("/clock", "topic"),
        ("dropout", "fault"),
        ("collisions", "metrics"),
        ("microsim when", "command"),
    ],
)
def test_everything_has_a_name_and_a_text(entries: list[Explanation], name: str, kind: str) -> None:
    found = [each for each in found_for(name, entries) if each.kind == kind]
    assert found
    assert all(each.about for each in found)


def test_the_end_of_a_name_and_words_of_its_text_find_it(entries: list[Explanation]) -> None:
    assert all(each.name.endswith(".drop_probability") for each in found_for("drop_probability", entries))
    assert "radio.drop_probability" in [each.name for each in found_for("probability packet lost", entries)]


def test_every_key_of_a_scenario_is_explained(entries: list[Explanation]) -> None:
    assert not [each.name for each in entries if each.kind == "key of scenarios" and not each.about.strip()]


def test_what_there_is_not_is_refused_with_what_is_near() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'wind.gust_sigma'"):
        explain(ExplainOptions("wind.gust_sgma"))
