"""What joins a run from outside: one file with an option of its own, found through its entry point or its folder."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner, Result

import microsim
from microsim.attachment import ATTACHMENTS, Attachment, Plan, Run
from microsim.cli import app
from microsim.cli.command import Command, joined_by
from microsim.cli.runs import joined, ran
from microsim.errors import PluginError, UsageError
from microsim.options import option
from microsim.runner import Runner
from tests.cli_support import environment
from tests.forked_python import forked_python

FAST = ("--rtf", "0", "--headless")

TRACE = '''
"""Every pose as CSV, a row for each robot and tick."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

from microsim.attachment import Attachment, Run
from microsim.options import check_can_write, option


class TraceOptions(NamedTuple):
    trace: Annotated[Path | None, option("--trace FILE", "Write every pose as CSV.")] = None


class Trace(Attachment):
    name, options = "trace", TraceOptions

    def prepare(self, plan):
        check_can_write("--trace", self.given.trace)

    @contextmanager
    def attach(self, run: Run) -> Iterator[None]:
        runs = 1

        def write(messages: object) -> None:
            for robot in run.sim.robots:
                state = run.sim.state(robot)
                print(runs, run.sim.tick, robot, state.x, state.y, sep=",", file=file)

        def begin(sim: object) -> None:
            nonlocal runs
            runs += 1

        with self.given.trace.open("w") as file:
            run.runner.listen(messages=write, restarts=begin, every_s=0.0)
            yield
        run.results["trace"] = str(self.given.trace)
        run.lines.append(f"  trace       {self.given.trace}")


ATTACHMENT = Trace
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a package with a module `tracer` and entry points to it."""

    def installed(text: str = TRACE, **entries: str) -> None:
        facts = tmp_path / "tracer-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: tracer\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in (entries or {"trace": "tracer"}).items()]
        (facts / "entry_points.txt").write_text("\n".join(["[microsim.attachments]", *lines, ""]))
        (tmp_path / "tracer.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "tracer", raising=False)

    return installed


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def rows_of(file: Path) -> list[list[str]]:
    with file.open() as stream:
        return list(csv.reader(stream))


def test_a_package_adds_an_attachment_with_its_option_to_run_replay_and_demo(
    tmp_path: Path, install: Callable[..., None]
) -> None:
    without = call("run", "flat", "--duration", "0.5", *FAST, "--json")
    install()
    file, bag = tmp_path / "t.csv", tmp_path / "bag"
    done = call("run", "flat", "--duration", "0.5", *FAST, "--json", "--trace", str(file), "--record", str(bag))
    facts = json.loads(done.stdout)
    assert (done.exit_code, facts["trace"]) == (0, str(file))
    assert [(row[1], row[2]) for row in rows_of(file)] == [(str(t), r) for t in range(31) for r in ("drone", "rover")]
    assert json.loads(without.stdout)["digest"] == facts["digest"]

    again = call("replay", str(bag), "--trace", str(tmp_path / "r.csv"), "--json")
    assert (again.exit_code, json.loads(again.stdout)["trace"]) == (0, str(tmp_path / "r.csv"))
    assert rows_of(tmp_path / "r.csv") == rows_of(file)

    for command in ("run", "replay", "demo"):
        assert "Write every pose as CSV." in call(command, "--help").stdout
    with pytest.raises(UsageError, match=f"--trace {tmp_path}/no/t.csv: there is no folder"):
        call("run", "flat", "--trace", str(tmp_path / "no" / "t.csv"), *FAST)


def test_a_folder_of_the_package_is_a_part_with_its_attachments(tmp_path: Path) -> None:
    """Parts are moved by moving their folder: nothing lists them."""
    part = tmp_path / "tracing"
    part.mkdir()
    (part / "__init__.py").write_text("")
    (part / "attachment.py").write_text(TRACE)
    script = (
        f"import sys, microsim; microsim.__path__.append({str(tmp_path)!r}); from microsim.cli import main\n"
        "sys.argv = ['microsim', *sys.argv[1:]]; main()"
    )
    words = "run", "flat", "--duration", "0.1", *FAST, "--trace", str(tmp_path / "t")
    command = [*forked_python(environment()), "-c", script, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert f"  trace       {tmp_path}/t" in done.stdout
    assert len(rows_of(tmp_path / "t")) == 2 * 7


def test_a_broken_attachment_is_named_and_the_run_does_without(install: Callable[..., None]) -> None:
    install(TRACE + "\nFOUR = 4\n", broken="tracer:NOTHING", number="tracer:FOUR")
    done = call("run", "flat", "--duration", "0", "--json")
    assert done.exit_code == 0
    assert "plug-in 'broken' (entry point microsim.attachments, tracer:NOTHING) could not be loaded" in done.stderr
    assert "microsim.attachments: number: expected ATTACHMENT = a subclass of Attachment, found int" in done.stderr


@pytest.mark.parametrize("name", ["--record", "--seed", "-q"])
def test_an_option_that_the_command_already_has_is_refused_by_name(name: str, install: Callable[..., None]) -> None:
    install(TRACE.replace("--trace FILE", f"{name} FILE"))
    with pytest.raises(PluginError) as refused:
        call("run", "flat", "--duration", "0")
    assert str(refused.value) == f"the attachment 'trace' has the option {name}, which `microsim run` already has"


# ---- the order in which they join ------------------------------------------------------------------------------------


def attachment(log: list[str], word: str, place: int, fails: str = "") -> Attachment:
    class Noting(Attachment):
        name, position = word, place

        def prepare(self, plan: Plan) -> None:
            log.append(f"prepare {word}")

        def attach(self, run: Run) -> AbstractContextManager[None]:
            return self._joined()

        @contextmanager
        def _joined(self) -> Any:
            log.append(f"join {word}")
            if fails == "join":
                raise UsageError(f"{word} cannot join")
            yield
            log.append(f"leave {word}")
            if fails == "leave":
                raise UsageError(f"{word} cannot finish")

    return Noting()


def run_with(*attachments: Attachment) -> Run:
    plan = Plan("run", attachments=attachments)
    sim = microsim.Simulation({"map": {"size_xy_cells": [40, 40]}, "robots": {"rover": {}}})
    return Run(Runner(sim, 0.0), plan)


def test_they_join_in_order_and_leave_in_the_opposite_one() -> None:
    log: list[str] = []
    run = run_with(attachment(log, "a", 1), attachment(log, "b", 2))
    run.begin.append(lambda: log.append("begin"))
    run.runner.listen(messages=lambda messages: log.append(f"tick {run.sim.tick}"))
    with joined(run):
        ran(run, 1)
    assert log == ["join a", "join b", "begin", "tick 0", "tick 1", "leave b", "leave a"]


def test_one_that_cannot_join_is_a_wrong_input_and_those_before_it_leave() -> None:
    log: list[str] = []
    run = run_with(attachment(log, "a", 1), attachment(log, "b", 2, "join"), attachment(log, "c", 3))
    with ExitStack() as stack, pytest.raises(UsageError, match="b cannot join"):
        stack.enter_context(joined(run))
    assert log == ["join a", "join b"]
    assert not run.has_begun


def test_a_run_that_fails_is_reported_and_everyone_leaves_as_after_a_good_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log: list[str] = []
    run = run_with(attachment(log, "a", 1), attachment(log, "b", 2))

    def fail(messages: object) -> None:
        if run.sim.tick == 3:
            raise UsageError("the disk is gone")

    run.runner.listen(messages=fail, every_s=0.0)
    with joined(run):
        ran(run, 10)
    assert (run.is_failed, run.error) == (True, "the disk is gone")
    assert log == ["join a", "join b", "leave b", "leave a"]
    assert "the run failed at tick 3: the disk is gone" in capsys.readouterr().err


def test_the_built_in_ones_have_names_and_places_of_their_own_and_all_that_steer_come_before_the_node() -> None:
    found = list(ATTACHMENTS.built_in.values())
    by_command: dict[str, list[tuple[int, str]]] = {
        command: [(each.position, each.name) for each in found if each.options_for(command) is not None]
        for command in ("run", "replay", "demo")
    }
    assert len({each.name for each in found}) == len(found)
    for places in by_command.values():
        assert len({place for place, _ in places}) == len(places)
    names = [name for _, name in sorted(by_command["run"])]
    assert names == [
        "saved state", "mission", "pilot", "controller", "telemetry", "network", "foxglove", "node", "recording",
        "page", "dashboard",
    ]  # fmt: skip


# ---- a transport from outside ----------------------------------------------------------------------------------------

BUS = '''
"""The run on a bus inside this process."""

from microsim.attachment import Attachment
from microsim.parts.ros2.attachment import Network
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport


class OnBus(Attachment):
    name, position, commands = "bus", 25, ("run",)

    def prepare(self, plan):
        transport = MemoryTransport("microsim", (), Bus())
        transport.close, before = (lambda: (print("the bus was closed"), before())), transport.close
        transport.poll, poll = (lambda seconds=0.0: (Polls.add(), poll(seconds))), transport.poll
        plan.find(Network).join(transport, plan)


class Polls:
    count = 0

    @classmethod
    def add(cls):
        cls.count += 1
        if cls.count == 10:
            print("the bus was polled")


ATTACHMENT = OnBus
'''


def test_a_transport_is_one_more_attachment_between_the_network_and_the_node(install: Callable[..., None]) -> None:
    wanted = ("run", "flat", "--duration", "0.5", *FAST, "--digest", "-q")
    without = call(*wanted)
    install(BUS)
    polled, digest, closed = call(*wanted).stdout.splitlines()
    assert (polled, closed) == ("the bus was polled", "the bus was closed")
    assert digest == without.stdout.strip()


# ---- how options become parameters -----------------------------------------------------------------------------------


class First(NamedTuple):
    value: Any = 1


def test_fields_of_the_same_name_in_two_attachments_are_kept_apart() -> None:
    from typing import Annotated

    class One(NamedTuple):
        size: Annotated[int, option("--one N", "One.")] = 1

    class Two(NamedTuple):
        size: Annotated[int, option("--two N", "Two.")] = 2

    class Own(NamedTuple):
        size: Annotated[int, option("--own N", "Own.")] = 3

    kinds = [type(name, (Attachment,), {"name": name, "options": kind}) for name, kind in (("a", One), ("b", Two))]
    got: list[Any] = []

    def work(options: Own, attachments: Any = ()) -> None:
        got.extend([options, *(each.given for each in attachments)])

    work.__annotations__["options"] = Own
    call, _ = joined_by(work, kinds, "run")
    call(**{name: place for place, name in enumerate(call.__signature__.parameters, 10)})
    assert got == [Own(10), One(11), Two(12)]
    got.clear()
    call(**{name: each.default for name, each in call.__signature__.parameters.items()})
    assert got == [Own()]  # none of the others was requested
    assert Command(work).json is None


def test_an_attachment_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(PluginError, match="expected ATTACHMENT = a subclass of Attachment, found First"):
        ATTACHMENTS._checked(First(), "here")
