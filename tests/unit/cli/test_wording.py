"""Plain technical English: phrases that a reader has to read twice are in no page, help text, error or comment."""

import re
import token
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import pages
from tests.pages import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages.PAGES]
EXAMPLES = [
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted(ROOT.glob("scenarios/*.yaml")),
    *sorted(ROOT.glob("missions/*.yaml")),
]
CODE = sorted((ROOT / "microsim").rglob("*.py"))
BROWSER = [*sorted((ROOT / "microsim").rglob("*.js")), *sorted((ROOT / "microsim").rglob("*.css"))]

PHRASES = {  # what to avoid: what to write
    r"\b(?:is|was|are) told\b|\btold (?:once|on|otherwise)\b|\bbe told\b": "reported, logged, received, set",
    r"\bheard\b|\bhears\b": "received, receives",
    r"\btells? of\b": "describes, reports",
    r"\b(?:wants|wanted to be)\b": "requires, needs",
    r"\banew\b": "again, rebuilt",
    r"\b(?:goes|went|go|going) on\b(?! air)": "continues, resumed",
    r"\b(?<!there )(?:is|are) no (?!longer\b|more\b|room\b|less\b|ground\b)[a-z]+\b": "is not a, there is no",
    r"\b(?:knows?|knew) no\b": "does not support",
    r"\bmends?\b|\bmended\b": "repair, correct",
    r"\blooks? into\b": "inspect",
    r"\basked for\b": "requested",
    r"\bslips? of the pen\b": "typo",
    r"what must come of it": "the expected result",
    r"proof of sameness": "determinism check",
    r"out of order for a while": "temporary faults",
    r"\bthe way back\b": "rewind",
    r"(?:engine's part|run's side)": "engine, server side",
    r"\bwhoever\b": "everyone who, the caller",
    r"\bsomebody else\b": "another, an unrelated project's",
    r"\bthose who can:": "supported by:",
    r"\bis strange\b": "is malformed",
    r"name a new folder": "already exists; choose another folder",
    r"states do not pass versions": "a state can be loaded only by the version that saved it",
    r"\bstood still for\b": "stalled for",
    r"by flying it|\bis flown\b|\bbe flown\b": "by re-running it, runs",
    r"\b(?:somebody|anybody)\b": "a user, a subscriber, another",
    r"\bshall\b": "must, should",
    r"\bat hand\b": "available, current",
    r"\bhanded in\b": "sent",
    r"in the same breath": "together",
    r"\bbeside whom\b": "compared with",
    r"\bstands twice\b": "occurs twice",
    r"\bfiles are exchanged\b": "files are in the wrong order",
    r"\bwhat is shipped only\b": "only shipped scenarios",
    r"\ball is well\b": "the fault ends, nothing is wrong",
    r"\bby which (?:messages|a GPS)\b": "delay of each message, offset",
    r"\bthat a message is concerned\b": "probability that a message is affected",
    r"\bits own, and of this\b": "per sensor and tick",
    r"\bonly does this check\b": "does just this check",
    r"\bin every second \w+ in reverse\b": "every other one reverses the order",
    r"\bwhere nobody looks\b|\bif nobody reads\b": "if they are not read",
    r"\bas (?:it|they) always (?:did|were|was)\b": "say what it does",
}
IN_PAGES = {  # in documentation also
    r"\bnobody\b": "no node, no user; or name who does not",
    r"\bin force\b": "active, applies",
    r"(?<!-)\bwins\b": "takes precedence, is used",
    r"\bours\b|\bour own\b": "MicroSim's, the built-in one",
    r"\bbeside (?:it|them|others)\b": "next to, at the same time, compared with",
    r"\b(?:a|per) (?:second|turn) and core\b": "per second on one core",
    r"\bwill do\b": "works, is enough",
    r"\bremappings hold\b": "remappings work",
    r"\bthe same bytes again\b|\bproof of\b": "determinism",
    r"\bhow it is (?:proved|quick)\b": "how it is tested, why it is fast",
    r"^#+ What is (?:read|seen|in it|there)\b": "name the subject: Supported input, Files",
    r"\bso often\b|\bhowever late\b|\bas often as you like\b": "N times, repeatedly",
    r"\bcome by themselves\b|\bcomes by itself\b": "is added automatically",
    r"\bfor ever\b|\bastern\b|\bmakes? no sense\b": "without end, backward, is invalid",
    r"\bnot looked at\b|\bsays otherwise\b": "ignored, changes it",
    r"\b0: only tick 0\b": "0: publish the initial state and stop",
    r"\bby turns\b|^in turns\b|\bIn turns with\b": "alternating",
    r"\bstands? in the way\b": "blocks",
}
AVOIDED = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES), re.IGNORECASE)
AVOIDED_IN_PAGES = re.compile("|".join(f"(?:{phrase})" for phrase in {**PHRASES, **IN_PAGES}), re.IGNORECASE)
TEXTS = {token.STRING, token.COMMENT, getattr(token, "FSTRING_MIDDLE", token.STRING)}


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Lines of prose with their numbers: of Python, only comments and strings that a person reads."""
    if file.suffix != ".py":
        yield from enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        return
    with file.open("rb") as stream:
        for each in tokenize.tokenize(stream.readline):
            if each.type in TEXTS and not each.string.lower().startswith(("b'", 'b"')):
                yield from enumerate(each.string.splitlines(), each.start[0])


def found(file: Path) -> list[str]:
    place, avoided = file.relative_to(ROOT), AVOIDED_IN_PAGES if file.suffix == ".md" else AVOIDED
    return [f"{place}:{line}: {text.strip()}" for line, text in texts(file) if avoided.search(text)]


@pytest.mark.parametrize("files", [PAGES, CODE, BROWSER, EXAMPLES], ids=["pages", "code", "browser", "examples"])
def test_no_phrase_that_has_to_be_read_twice(files: list[Path]) -> None:
    assert [each for file in files for each in found(file)] == []


def test_the_search_finds_phrases_and_leaves_usual_english_alone(tmp_path: Path) -> None:
    bad = "it goes on, is told of it, knows no such key, is no number, wants a folder, starts anew"
    assert len(AVOIDED.findall(bad)) == 6
    for good in ("there is no scenario", "packets go on air", "it is no longer sent", "if you want it", "told = 3"):
        assert not AVOIDED.search(good), good
    assert len(AVOIDED_IN_PAGES.findall("the later one wins, nobody reads it, two a second and core")) == 3
    assert not AVOIDED_IN_PAGES.search("[calibration-wins] in its own folder, ten per second")
    file = tmp_path / "code.py"
    file.write_text('told = b"heard"  # starts anew\nanew = f"{told} goes on"\n')
    assert [line for line, text in texts(file) if AVOIDED.search(text)] == [1, 2]
