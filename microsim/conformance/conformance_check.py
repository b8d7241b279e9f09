"""What a check is: a function of the simulator under test, with the sentence of the standard that it is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from microsim.conformance.simulator import Simulator

Work: TypeAlias = "Callable[[Simulator], None]"

CHECKS: list[ConformanceCheck] = []  # in the order of their files and lines

# simulation_interfaces/msg/SimulatorFeatures
FEATURES = {
    0: "SPAWNING", 1: "DELETING", 2: "NAMED_POSES", 3: "POSE_BOUNDS", 4: "ENTITY_TAGS", 5: "ENTITY_BOUNDS",
    6: "ENTITY_BOUNDS_BOX", 7: "ENTITY_BOUNDS_CONVEX", 8: "ENTITY_CATEGORIES", 9: "SPAWNING_RESOURCE_STRING",
    10: "ENTITY_STATE_GETTING", 11: "ENTITY_STATE_SETTING", 12: "ENTITY_INFO_GETTING", 13: "ENTITY_INFO_SETTING",
    14: "SPAWNABLES", 20: "SIMULATION_RESET", 21: "SIMULATION_RESET_TIME", 22: "SIMULATION_RESET_STATE",
    23: "SIMULATION_RESET_SPAWNED", 24: "SIMULATION_STATE_GETTING", 25: "SIMULATION_STATE_SETTING",
    26: "SIMULATION_STATE_PAUSE", 31: "STEP_SIMULATION_SINGLE", 32: "STEP_SIMULATION_MULTIPLE",
    33: "STEP_SIMULATION_ACTION", 40: "WORLD_LOADING", 41: "WORLD_RESOURCE_STRING", 42: "WORLD_TAGS",
    43: "WORLD_UNLOADING", 44: "WORLD_INFO_GETTING", 45: "AVAILABLE_WORLDS", 50: "SPAWNING_ENTITIES",
}  # fmt: skip
NUMBERS = {name: number for number, name in FEATURES.items()}


class ViolationError(Exception):
    """The simulator does not do what the definition says."""


class NotTestedError(Exception):
    """What a check needs is not there."""


@dataclass(frozen=True)
class ConformanceCheck:
    group: str
    name: str
    title: str
    cites: str  # file of simulation_interfaces, and the field, constant or comment
    needs: tuple[str, ...]  # features, all of them
    work: Work


def check(cites: str, *needs: str, group: str = "") -> Callable[[Work], Work]:
    """Adds a check: its docstring is its title, its file its group."""

    def add(work: Work) -> Work:
        title = (work.__doc__ or work.__name__).strip().rstrip(".")
        own_group = work.__module__.rpartition(".")[2].removesuffix("_checks")
        CHECKS.append(ConformanceCheck(group or own_group, work.__name__, title, cites, needs, work))
        return work

    return add


def expect(is_so: Any, text: str) -> None:
    if not is_so:
        raise ViolationError(text)


def expect_code(response: Any, wanted: int | Sequence[int], request: str) -> None:
    """The result of a call is one of these codes; what is not OK comes with a message."""
    codes = (wanted,) if isinstance(wanted, int) else tuple(wanted)
    code, why = int(response.result.result), str(response.result.error_message)
    shown = f"result {code}{f' ({why})' if why else ''}"
    expect(code in codes, f"{request}: expected result {' or '.join(map(str, codes))}, found {shown}")


def expect_refused(response: Any, request: str) -> None:
    expect(int(response.result.result) != 1, f"{request}: expected a refusal, found result 1 (RESULT_OK)")
