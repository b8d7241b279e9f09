"""The simulator under test (its interfaces by type, its features, its time and entities), and what a check of it is:
a function with the sentence of the standard that it is about.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from microsim.errors import UsageError
from microsim.messages.type_files import add_types
from microsim.messages.types import DEFINITIONS, constants_of, type_hash

if TYPE_CHECKING:
    from microsim.parts.live_tools.client.client_node import ClientNode

Work: TypeAlias = "Callable[[Simulator], None]"

PACKAGE = "simulation_interfaces"
STOPPED, PLAYING, PAUSED = range(3)
LONGEST_S = 5.0  # until simulated time has moved
CHECKS: list[ConformanceCheck] = []  # in the order of their files and lines

NUMBERS: dict[str, int] = constants_of("simulation_interfaces/msg/SimulatorFeatures")
FEATURES = {number: name for name, number in NUMBERS.items()}


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


def check(cites: str, *needs: str) -> Callable[[Work], Work]:
    """Adds a check: its docstring is its title, its file its group."""

    def add(work: Work) -> Work:
        title = (work.__doc__ or work.__name__).strip().rstrip(".")
        group = work.__module__.rpartition(".")[2].removesuffix("_checks")
        CHECKS.append(ConformanceCheck(group, work.__name__, title, cites, needs, work))
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


_SPAWN = "string name\nbool allow_renaming\n{}string entity_namespace\ngeometry_msgs/PoseStamped initial_pose\n"
_OLDER = {  # what 1.x has in another form: path -> request
    "srv/LoadWorld.srv": "string uri\nstring resource_string\nbool fail_on_unsupported_element\n"
    "bool ignore_missing_or_unsupported_assets\n",
    "srv/SetEntityState.srv": "string entity\nsimulation_interfaces/EntityState state\n",
    "srv/SpawnEntity.srv": _SPAWN.format("string uri\nstring resource_string\n"),
    "msg/Spawnable.msg": "string uri\nstring description\nsimulation_interfaces/Bounds spawn_bounds\n",
}
_TELLING = "SetEntityState"  # its type hash says which dialect a server has


def use_dialect(version: str) -> None:
    """Have this process speak 1.x or 2.x."""
    own = DEFINITIONS / PACKAGE
    if version == "2.x":
        add_types(own)
        return
    with tempfile.TemporaryDirectory(prefix="microsim-") as folder:
        for path, request in _OLDER.items():
            file = Path(folder, PACKAGE, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            _, separator, response = (own / path).read_text(encoding="utf-8").partition("---\n")
            file.write_text(request + (separator + response if separator else ""), encoding="utf-8")
        add_types(folder)


class Simulator:
    """`interfaces`: type of a service, such as GetEntities -> its name; of the action, SimulateSteps -> its name."""

    def __init__(
        self, node: ClientNode, owner: str, interfaces: Mapping[str, str], dialect: str, timeout_s: float, to_spawn: str
    ) -> None:
        """`to_spawn`: uri of what is spawned; empty: the last that GetSpawnables lists."""
        self.node, self.owner, self.interfaces = node, owner, interfaces
        self.dialect, self.timeout_s, self._to_spawn = dialect, timeout_s, to_spawn
        use_dialect(dialect)
        self._clock_ns, self._has_stamps = -1, False
        self._spawned: list[str] = []
        self.is_silent = False  # it has stopped answering anything

    # ---- calls

    def offers(self, kind: str) -> bool:
        return kind in self.interfaces

    def call(self, kind: str, **request: Any) -> Any:
        if not self.offers(kind):
            raise ViolationError(f"{self.owner} does not offer {kind}, though its features announce it")
        service_type = f"{PACKAGE}/srv/{kind}"
        try:
            return self.node.call(self.interfaces[kind], request, type=service_type, timeout=self.timeout_s)
        except TimeoutError as error:
            self.is_silent = not self._answers()
            raise ViolationError(str(error)) from None

    def _answers(self) -> bool:
        """Whether it answers what every simulator offers."""
        kind = "GetSimulatorFeatures"
        try:
            self.node.call(self.interfaces[kind], {}, type=f"{PACKAGE}/srv/{kind}", timeout=self.timeout_s)
        except TimeoutError:
            return False
        return True

    @cached_property
    def features(self) -> frozenset[int]:
        return frozenset(int(each) for each in self.call("GetSimulatorFeatures").features.features)

    def has(self, feature: str) -> bool:
        return NUMBERS[feature] in self.features

    def missing(self, needs: tuple[str, ...]) -> list[str]:
        return [name for name in needs if not self.has(name)]

    # ---- state and time

    def state(self) -> int:
        return int(self.call("GetSimulationState").state.state)

    def go(self, wanted: int) -> None:
        """Bring it into a state, whatever it is in."""
        if self.has("SIMULATION_STATE_GETTING") and self.state() == wanted:
            return
        code = int(self.call("SetSimulationState", state={"state": wanted}).result.result)
        expect(code in (1, 101), f"SetSimulationState {wanted}: expected result 1, found {code}")

    def pause(self) -> None:
        """As far as it can be paused."""
        if self.has("SIMULATION_STATE_SETTING") and self.has("SIMULATION_STATE_PAUSE"):
            if self.has("SIMULATION_STATE_GETTING") and self.state() == STOPPED:
                self.go(PLAYING)
            self.go(PAUSED)

    def time_ns(self) -> int:
        """From the stamp of an entity's state, which needs no waiting; else from /clock."""
        if self.has("ENTITY_STATE_GETTING") and (names := self.entities()):
            stamp = self.call("GetEntityState", entity=names[0]).state.header.stamp
            self._has_stamps |= bool(stamp.sec or stamp.nanosec)
            if self._has_stamps:
                return int(stamp.sec) * 10**9 + int(stamp.nanosec)
        return self.clock_ns()

    def clock_ns(self) -> int:
        if self._clock_ns < 0:
            if "/clock" not in self.node.topics():
                raise NotTestedError("simulated time cannot be read: no stamps in entity states, and no /clock")
            self.node.subscribe("/clock", self._hear, type="rosgraph_msgs/msg/Clock", depth=100)
            self._clock_ns = 0
        self.node.wait_until(lambda: self._clock_ns > 0, 0.5)
        return self._clock_ns

    def _hear(self, message: Any) -> None:
        self._clock_ns = int(message.clock.sec) * 10**9 + int(message.clock.nanosec)

    def until(self, is_so: Callable[[], bool]) -> bool:
        """Whether it becomes true soon."""
        import time

        end = time.monotonic() + LONGEST_S
        while not is_so():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)  # what is asked over the network again and again
        return True

    # ---- entities

    def entities(self, **filters: Any) -> list[str]:
        response = self.call("GetEntities", filters=filters)
        code = int(response.result.result)
        expect(code == 1, f"GetEntities {filters or ''}: expected result 1, found {code}")
        return list(map(str, response.entities))

    def an_entity(self, *categories: int) -> str:
        """A robot, if there is one."""
        names = self.entities()
        if self.has("ENTITY_INFO_GETTING"):
            info = {name: int(self.call("GetEntityInfo", entity=name).info.category.category) for name in names[:50]}
            names = [name for name in info if not categories or info[name] in categories]
            names.sort(key=lambda name: info[name] != 1)
        if not names:
            raise NotTestedError("there is no entity to test with")
        return names[0]

    def pose(self, entity: str) -> tuple[float, ...]:
        """x, y, z and quaternion x, y, z, w."""
        pose = self.call("GetEntityState", entity=entity).state.pose
        place, turn = pose.position, pose.orientation
        return place.x, place.y, place.z, turn.x, turn.y, turn.z, turn.w

    def set_pose(self, entity: str, pose: tuple[float, ...], frame: str = "", **flags: bool) -> Any:
        state = {"header": {"frame_id": frame}, "pose": pose_message(pose)}
        given = {"set_pose": True, **flags} if self.dialect == "2.x" else {}
        return self.call("SetEntityState", entity=entity, state=state, **given)

    # ---- spawning

    def spawn_request(self, name: str, uri: str = "", text: str = "", **rest: Any) -> dict[str, Any]:
        resource = {"uri": uri, "resource_string": text}
        where = {"entity_resource": resource} if self.dialect == "2.x" else resource
        pose = pose_message(rest.pop("pose", (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)))
        stamped = {"header": {"frame_id": rest.pop("frame", "")}, "pose": pose}
        return {"name": name, "initial_pose": stamped, **where, **rest}

    def spawn(self, name: str, uri: str = "", **rest: Any) -> Any:
        """By this name, wherever there is room, if no pose is given."""
        poses = [rest.pop("pose")] if "pose" in rest else self.free_poses()
        response: Any = None
        for pose in poses:
            response = self.call("SpawnEntity", **self.spawn_request(name, uri, pose=pose, **rest))
            if int(response.result.result) != 109:  # INVALID_POSE
                break
        if int(response.result.result) == 1:
            self._spawned.append(str(response.entity_name))
        return response

    def note_spawned(self, names: Iterable[str]) -> None:
        """So that they are deleted after the check."""
        self._spawned += filter(None, names)

    def free_poses(self) -> list[tuple[float, ...]]:
        """Beside an entity, at growing distances, and far above."""
        x, y, z = 0.0, 0.0, 0.0
        if self.has("ENTITY_STATE_GETTING") and (names := self.entities()):
            x, y, z = self.pose(names[0])[:3]
        rings = [(r * math.cos(a), r * math.sin(a), h) for h in (0.0, 5.0) for r in (2.0, 4.0, 8.0) for a in range(6)]
        return [(x + dx, y + dy, z + dz, 0.0, 0.0, 0.0, 1.0) for dx, dy, dz in rings]

    def spawnable(self) -> str:
        """The uri of something that can be spawned."""
        if self._to_spawn:
            return self._to_spawn
        if not self.has("SPAWNABLES"):
            raise NotTestedError("SPAWNABLES is not announced: name something with --spawn")
        found = [uri for uri in map(self.uri_of, self.call("GetSpawnables").spawnables) if uri]
        if not found:
            raise NotTestedError("GetSpawnables lists nothing")
        return found[-1]

    def uri_of(self, spawnable: Any) -> str:
        return str(spawnable.entity_resource.uri if self.dialect == "2.x" else spawnable.uri)

    def tidy_up(self) -> None:
        """Delete what was spawned."""
        names = self.entities() if self._spawned and self.has("DELETING") else []
        spawned, self._spawned = self._spawned, []
        for name in [each for each in spawned if each in names]:
            self.call("DeleteEntity", entity=name)


def pose_message(pose: tuple[float, ...]) -> dict[str, Any]:
    place, turn = dict(zip("xyz", pose[:3], strict=True)), dict(zip("xyzw", pose[3:], strict=True))
    return {"position": place, "orientation": turn}


def found_interfaces(node: ClientNode) -> Mapping[tuple[str, str], str]:
    """(node, type without its package) -> name, of everything that is of the standard."""
    found: dict[tuple[str, str], str] = {}
    for name, kinds in {**node.services(), **node.actions()}.items():
        for package, what, leaf in (kind.split("/") for kind in kinds if kind.count("/") == 2):
            if package == PACKAGE and "_" not in leaf:
                service = f"{name}/_action/send_goal" if what == "action" else name
                owners = {owner for owner, _ in _servers(node, service)}
                found |= {(owner, leaf): name for owner in owners - {""} or owners}
    return found


def _servers(node: ClientNode, service: str) -> list[tuple[str, Any]]:
    """Nodes and endpoints; a simulator may have further endpoints that belong to no node."""
    return node.endpoints(lambda view: view.at(f"rq{service}Request", is_writer=False))


DISCOVERY_S = 5.0  # longest wait for a simulator to appear


def find_simulator(node: ClientNode, name: str, dialect: str, timeout_s: float, to_spawn: str = "") -> Simulator:
    """The one of that name, or the only one on the network."""
    wanted = name if name.startswith("/") or not name else f"/{name}"
    found: Mapping[tuple[str, str], str] = {}
    owners: list[str] = []

    def is_there() -> bool:
        nonlocal found, owners
        found = found_interfaces(node)
        owners = sorted({owner for owner, kind in found if kind == "GetSimulatorFeatures"})
        return wanted in owners or (not wanted and bool(owners))

    node.wait_until(is_there, min(timeout_s, DISCOVERY_S))  # it may be starting, or discovery may be slow
    if wanted and wanted not in owners:
        there = f"there are: {', '.join(owners)}" if owners else "no node offers it"
        raise UsageError(f"node {wanted} does not offer {PACKAGE}/srv/GetSimulatorFeatures; {there}")
    if not owners:
        nodes = ", ".join(node.nodes()) or "none"
        raise UsageError(f"no node offers {PACKAGE}/srv/GetSimulatorFeatures; nodes on this domain: {nodes}")
    if not wanted and len(owners) > 1:
        raise UsageError(f"several simulators are on the network; choose one with --node: {', '.join(owners)}")
    owner = wanted or owners[0]
    interfaces = {kind: name for (who, kind), name in found.items() if who == owner}
    version = _dialect_of(node, interfaces.get(_TELLING)) if dialect == "auto" else dialect
    return Simulator(node, owner, interfaces, version, timeout_s, to_spawn)


def _dialect_of(node: ClientNode, service: str | None) -> str:
    """By the type hash of a request that 1.x has in another form."""
    readers = [] if service is None else _servers(node, service)
    use_dialect("1.x")
    older = type_hash(f"{PACKAGE}/srv/{_TELLING}_Request")
    return "1.x" if any(each.type_hash == older for _, each in readers) else "2.x"


def feature_names(numbers: frozenset[int]) -> list[str]:
    return [FEATURES.get(number, str(number)) for number in sorted(numbers)]
