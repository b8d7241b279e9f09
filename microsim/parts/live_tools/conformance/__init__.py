"""`microsim conformance`: does a simulator on the ROS 2 network behave as `simulation_interfaces` defines?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from html import escape
from importlib import import_module

from microsim.errors import MicroSimError, UsageError, unknown
from microsim.parts.live_tools.conformance.simulator import (
    CHECKS,
    PLAYING,
    ConformanceCheck,
    NotTestedError,
    Simulator,
    ViolationError,
    feature_names,
    use_dialect,
)
from microsim.version import __version__

FILES = ("feature", "simulation", "entity", "spawn", "world")  # in the order of the checks
PASSED, FAILED, SKIPPED = "passed", "failed", "not tested"


@dataclass(frozen=True)
class CheckOutcome:
    group: str
    name: str
    title: str
    cites: str
    status: str
    detail: str  # why it failed, or was not tested
    seconds: float


@dataclass(frozen=True)
class ConformanceReport:
    node: str
    dialect: str
    features: tuple[str, ...]
    outcomes: tuple[CheckOutcome, ...]

    def count(self, status: str) -> int:
        return sum(each.status == status for each in self.outcomes)

    @property
    def is_conformant(self) -> bool:
        return not self.count(FAILED) and bool(self.count(PASSED))

    @property
    def summary(self) -> str:
        counts = ", ".join(f"{self.count(status)} {status}" for status in (PASSED, FAILED, SKIPPED))
        return f"{self.node}, simulation_interfaces {self.dialect}, {len(self.features)} features: {counts}"

    def to_json(self) -> str:
        counts = {status.replace(" ", "_"): self.count(status) for status in (PASSED, FAILED, SKIPPED)}
        return json.dumps({"version": __version__, "is_conformant": self.is_conformant, **counts, **asdict(self)})

    def lines(self) -> Iterator[str]:
        """As text: a line for each check, and one below it where something is to be said."""
        group = ""
        for each in self.outcomes:
            if each.group != group:
                group = each.group
                yield f"{group}"
            yield f"  {each.status:10}  {each.title}  [{each.cites}]"
            if each.detail:
                yield f"{'':14}{each.detail}"
        yield self.summary

    def to_html(self) -> str:
        """One page, without anything from outside."""
        rows = "".join(
            f'<tr class="{each.status.partition(" ")[0]}"><td>{escape(each.status)}</td><td>{escape(each.title)}'
            f"<small>{escape(each.detail)}</small></td><td>{escape(each.cites)}</td></tr>"
            for each in self.outcomes
        )
        features = escape(", ".join(self.features))
        return _PAGE.format(
            title=escape(f"Conformance of {self.node}"), summary=escape(self.summary), features=features, rows=rows
        )


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>
body{{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}}
table{{border-collapse:collapse;width:100%}}td{{border-top:1px solid #ccc;padding:.3em .6em;vertical-align:top}}
small{{display:block;color:#555}}.passed td:first-child{{color:#176b2c}}
.failed td:first-child{{color:#b00020;font-weight:bold}}
td:last-child{{font-family:monospace;font-size:13px}}</style>
<h1>{title}</h1><p>{summary}</p><p>Announced: {features}</p><table>{rows}</table></html>
"""


def all_checks() -> list[ConformanceCheck]:
    for name in FILES:
        import_module(f"{__name__}.{name}_checks")
    return CHECKS


def chosen_checks(names: Sequence[str]) -> list[ConformanceCheck]:
    """Those of these groups or names; all without any."""
    checks = all_checks()
    known = [*dict.fromkeys(each.group for each in checks), *(each.name for each in checks)]
    for name in names:
        if name not in known:
            raise UsageError(unknown("no check or group", repr(name), name, known))
    return [each for each in checks if not names or each.group in names or each.name in names]


def run_checks(
    sim: Simulator,
    checks: Sequence[ConformanceCheck],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ConformanceReport:
    """One after the other; the simulator is left playing or paused, as it was. TimeoutError: it does not answer."""
    outcomes: list[CheckOutcome] = []
    try:
        was_playing = _is_playing(sim)
        for each in checks:
            outcomes.append(_outcome(sim, each))
            progress(len(outcomes), len(checks))
        if was_playing is not None and not sim.is_silent:
            with suppress(ViolationError):  # it does not do what it should; the checks have said so
                if was_playing:
                    sim.go(PLAYING)
                else:
                    sim.pause()
    finally:
        use_dialect("2.x")
    return ConformanceReport(sim.owner, sim.dialect, tuple(feature_names(sim.features)), tuple(outcomes))


def _is_playing(sim: Simulator) -> bool | None:
    """None: it cannot be asked, or cannot be set."""
    try:
        can_play = sim.has("SIMULATION_STATE_SETTING") and sim.has("SIMULATION_STATE_GETTING")
        return sim.state() == PLAYING if can_play else None
    except ViolationError as error:
        if sim.is_silent:
            raise TimeoutError(f"{sim.owner} does not answer: {error}") from None
        return None


def _outcome(sim: Simulator, check: ConformanceCheck) -> CheckOutcome:
    begun_s = time.monotonic()
    status, detail = PASSED, ""
    try:
        if sim.is_silent:
            raise NotTestedError(f"{sim.owner} has stopped answering")
        if missing := sim.missing(check.needs):
            raise NotTestedError(f"not announced: {', '.join(missing)}")
        try:
            check.work(sim)
        finally:
            sim.tidy_up()
    except NotTestedError as reason:
        status, detail = SKIPPED, str(reason)
    except (ViolationError, MicroSimError, TimeoutError) as reason:
        status, detail = FAILED, str(reason)
    seconds = round(time.monotonic() - begun_s, 3)
    return CheckOutcome(check.group, check.name, check.title, check.cites, status, detail, seconds)
