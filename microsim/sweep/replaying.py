"""From a token back to its run, or to the reason why it would be another one."""

from __future__ import annotations

from dataclasses import dataclass

from microsim.errors import MicroSimError, UsageError
from microsim.missions import Mission, load_mission
from microsim.scenario import load_scenario
from microsim.scenario.overrides import with_values
from microsim.simulation import Simulation
from microsim.sweep.flying import Taken
from microsim.sweep.metrics import METRICS, watch
from microsim.sweep.tokens import Source, Token, mission_content, read_token, scenario_content
from microsim.sweep.trace import Run
from microsim.version import __version__


@dataclass(frozen=True)
class Replayable:
    """The run of a token, ready at tick 0."""

    token: Token
    sim: Simulation
    mission: Mission | None

    def taken(self) -> Taken:
        """With every metric that has a meaning here."""
        run = Run(self.sim, None)
        return Taken(self.sim, self.mission, [name for name in METRICS if self._is_able(name, run)])

    def _is_able(self, name: str, run: Run) -> bool:
        if METRICS[name].judges:
            return self.mission is not None
        try:
            watch(name, run)
        except UsageError:
            return False
        return True


def from_token(text: str, scenario: str | None = None, mission: str | None = None) -> Replayable:
    """`scenario` and `mission` say where they are now, if not where the token says; their content must be the same."""
    token = read_token(text)
    world = load_scenario(_found(token.scenario, scenario, "scenario"))
    _check(token, token.scenario, scenario_content(world), "scenario")
    flown = None
    if token.mission is not None:
        flown = load_mission(_found(token.mission, mission, "mission"))
        _check(token, token.mission, mission_content(flown), "mission")
    elif mission is not None:
        raise UsageError("this token is of a run without a mission: leave out --mission")
    try:
        return Replayable(token, Simulation(with_values(world, token.changes), token.seed), flown)
    except UsageError as error:
        raise UsageError(f"the token does not fit its scenario: {error}") from None


def _found(source: Source, given: str | None, what: str) -> str:
    """Its name is enough for what is shipped, or lies here."""
    if given is not None:
        return given
    load = load_scenario if what == "scenario" else load_mission
    try:
        load(source.name)
    except MicroSimError as error:
        raise UsageError(
            f"the token's {what} {source.name!r} cannot be loaded; --{what} says where it is: {error}"
        ) from None
    return source.name


def _check(token: Token, source: Source, content: str, what: str) -> None:
    if content == source.content:
        return
    by = (
        ""
        if token.version == __version__
        else f"; the token was made by microsim {token.version}, this is {__version__}"
    )
    raise UsageError(
        f"the {what} {source.name!r} has changed since the token was made (its content was {source.content}, now it is "
        f"{content}){by}: this would be another run"
    )
