"""Conditions, seeds and tokens: what is read is what was meant, and nothing else is taken."""

import operator
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.errors import UsageError
from microsim.parts.sweep.expressions import ExpressionError, parse
from microsim.parts.sweep.plan import condition, seeds
from microsim.parts.sweep.run_one import Token, TokenSource, read_token

SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
ROW = {"collisions": 2, "path_length.rover": 3.5, "radio_drop": None, "passed": True, "digest": "ab"}

# ---- a condition as text, and what it is worth in ROW, made side by side ---------------------------------------------

numbers = st.one_of(st.integers(-5, 5), st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 3)))
operands = st.one_of(
    numbers.map(lambda number: (repr(number), float(number))),
    st.sampled_from(["collisions", "path_length.rover"]).map(lambda name: (name, float(ROW[name]))),
)
comparisons = st.builds(
    lambda left, sign, right: (f"{left[0]} {sign} {right[0]}", SIGNS[sign](left[1], right[1])),
    operands,
    st.sampled_from(sorted(SIGNS)),
    operands,
)
leaves = st.one_of(
    comparisons, st.sampled_from([("passed", True), ("radio_drop < 1", False), ("radio_drop != 1", False)])
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: (f"({a[0]} and {b[0]})", a[1] and b[1]), inner, inner),
        st.builds(lambda a, b: (f"({a[0]} or {b[0]})", a[1] or b[1]), inner, inner),
        st.builds(lambda a: (f"not ({a[0]})", not a[1]), inner),
    ),
    max_leaves=8,
)


@given(trees)
def test_a_condition_is_worth_what_its_parts_are(tree):
    text, expected = tree
    assert condition(text).holds(ROW) is expected


@given(st.lists(comparisons, min_size=2, max_size=4), st.data())
def test_and_binds_closer_than_or(parts, data):
    words = [data.draw(st.sampled_from(["and", "or"])) for _ in parts[1:]]
    text = parts[0][0] + "".join(f" {word} {part[0]}" for word, part in zip(words, parts[1:], strict=True))
    groups = [[parts[0][1]]]
    for word, part in zip(words, parts[1:], strict=True):
        groups.append([part[1]]) if word == "or" else groups[-1].append(part[1])
    assert condition(text).holds(ROW) is any(all(group) for group in groups)


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=40), st.text("colisn ()<>=!andort0.5'_", max_size=40)))
def test_no_text_is_taken_that_is_no_condition(text):
    try:
        found = condition(text)
    except UsageError:
        return
    assert isinstance(found.holds(dict.fromkeys(found.metrics, 0)), bool)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ends too soon; expected a metric or a number"),
        ("colisions > 0", "did you mean 'collisions'?"),
        ("collisions = 0", "equality is written =="),
        ("collisions >", "ends too soon"),
        ("collisions > 0 0", "expected `and`, `or` or the end, found '0' at character 16"),
        ("collisions", "compare it, as in 'collisions > 0'"),
        ("collisions and passed", "the operands of `and` must be true or false; compare them"),
        ("passed > 1", "compares true or false with a number"),
        ("digest > 'a'", "has no order; use == or !="),
        ("radio_drop.rover > 0", "does not measure single robots"),
        ("mean(passed) > 0", "takes a metric that is a number"),
        ("share(collisions) > 0", "takes a condition"),
        ("mean(mean(collisions)) > 0", "cannot be used inside another function"),
        ("sum(collisions) > 0", "no function 'sum'"),
        ("__import__('os').system('x') > 0", "unexpected"),
        ("(" * 40 + "passed", "nested too deeply"),
        ("passed" + " and passed" * 200, "at most 1000 characters"),
    ],
)
def test_a_bad_condition_is_told_what_is_wrong(text, message):
    with pytest.raises(ExpressionError, match=re.escape(message)):
        condition(text)


@pytest.mark.parametrize(
    "text",
    [
        "passed" + ")" * 300,
        "(" * 990,
        "mean(" * 100 + "collisions" + ")" * 100 + " > 0",
        "\0",
        "\ud800",
        "[x for x in passed]",
        "(lambda: passed)()",
        "passed if passed else passed",
        "passed := passed",
        "passed # a comment",
        "f'{passed}' == digest",
        "b'ab' == digest",
        "collisions < collisions < 3",
        "collisions in collisions",
        "collisions > 0x10",
        "collisions > 1_000",
        "collisions > 1j",
        "collisions + 1 > 0",
        "-collisions > 0",
        "...",
        "()",
        "mean() > 0",
        "mean(collisions, collisions) > 0",
        "passed()",
        "True",
        "await passed",
    ],
)
def test_hostile_text_is_refused_with_our_own_error(text):
    """Whatever Python's grammar has beyond ours."""
    with pytest.raises(ExpressionError):
        condition(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not " * 240 + "passed", True),
        ("not " * 241 + "passed", False),
        ("(" * 29 + "passed" + ")" * 29, True),
        ("passed" + " or passed" * 90, True),
        ("1" * 980 + " > collisions", True),
        ("collisions > 1e99999", False),
        ("'\0\\\n\ud800' == digest", False),
    ],
)
def test_odd_but_correct_text_is_read(text, expected):
    assert condition(text).holds(ROW) is expected


def test_a_condition_has_lines_quotes_and_any_name_of_a_robot():
    assert condition("collisions > 0\n  and\tpassed").holds(ROW)
    assert condition("digest == 'ab' and digest != \"it's\"").holds(ROW)
    kinds = {"path_length.class": float, "path_length.2nd": float, "path_length.not": float}
    for name in kinds:
        found = parse(f"not {name} < 5.", kinds.__getitem__)
        assert found.metrics == (name,)
        assert found.holds({name: 6.0})
        assert not found.holds({name: 4.0})


def test_a_second_comparison_is_refused_where_it_is():
    with pytest.raises(ExpressionError, match="expected `and`, `or` or the end, found '<' at character 18"):
        condition("1 < (collisions) < 3")


def test_functions_look_at_all_runs():
    rows = [{"collisions": 0}, {"collisions": 3}, {"collisions": None}, {"collisions": 1}]
    assert condition("mean(collisions) == 1.3333333333333333").holds({"collisions": None}, rows)
    assert condition("min(collisions) == 0 and max(collisions) == 3").holds({"collisions": None}, rows)
    assert condition("share(collisions > 0) == 0.5").holds({"collisions": None}, rows)
    assert parse("mean(a) > 0", lambda name: float).is_about_all_runs
    assert not parse("a > 0", lambda name: float).is_about_all_runs


# ---- seeds -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 60), st.integers(0, 50)), min_size=1, max_size=5))
def test_both_ends_of_a_range_of_seeds_count(ranges):
    text = ",".join(f"{first}..{first + more}" if more else str(first) for first, more in ranges)
    assert seeds(text) == tuple(seed for first, more in ranges for seed in range(first, first + more + 1))


@given(st.text(max_size=20))
def test_no_other_text_is_taken_for_seeds(text):
    try:
        found = seeds(text)
    except ValueError:
        return
    assert re.fullmatch(r"[\d\s,.+-]+", text)
    assert found


@pytest.mark.parametrize("text", ["", "1..", "..5", "5..1", "a", "1.5", "0..99999999999", "9223372036854775808"])
def test_bad_seeds_are_refused(text):
    with pytest.raises(ValueError, match="expected"):
        seeds(text)


# ---- tokens ----------------------------------------------------------------------------------------------------------

values = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
sources = st.builds(
    TokenSource, st.text(min_size=1, max_size=12), st.text("0123456789abcdef", min_size=16, max_size=16)
)
tokens = st.builds(
    Token,
    scenario=sources,
    mission=st.none() | sources,
    seed=st.integers(-(2**63), 2**63 - 1),
    duration=st.none() | st.floats(0.1, 1e6),
    changes=st.dictionaries(st.from_regex(r"[a-z]{3,6}\.[a-z_]{1,8}", fullmatch=True), values, max_size=3),
)


@given(tokens)
def test_a_token_is_read_back_and_needs_no_quotes(token):
    text = str(token)
    assert read_token(text) == token
    assert re.fullmatch(r"[\w.:=@%/~-]+", text, re.ASCII)


@given(tokens, st.data())
def test_a_token_that_was_changed_is_refused(token, data):
    text = str(token)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from([char for char in "0aZ:=." if char != text[place]]))
    with pytest.raises(UsageError, match="token"):
        read_token(text[:place] + other + text[place + 1 :])
    with pytest.raises(UsageError, match="token"):
        read_token(text[:place])
