"""What an agent can do: each public method is a tool, its docstring the description, its parameters the arguments.

A tool returns plain data with a `next` step, or raises a MicroSimError. Tools run one at a time, see `agent_server`.
"""

from __future__ import annotations

import io
import json
import math
import tempfile
import time
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from microsim.errors import MicroSimError, ScenarioError, UsageError, unknown
from microsim.messages.mappings import to_plain
from microsim.parts.agents.agent_folder import AgentFolder, shipped_file
from microsim.parts.agents.agent_run import WORK_S, AgentRun
from microsim.parts.missions import MissionPilot, load_mission
from microsim.parts.missions.pilot import check
from microsim.scenario import Scenario, load_scenario
from microsim.simulation import Simulation

MOST_RUNS, MOST_SNAPSHOTS, MOST_SWEEP_RUNS = 8, 16, 64
LONGEST_STEP_S = 600.0
_MOST_ITEMS, _MOST_TEXT = 20, 32_000  # of a list, of a text, in an answer
_WIDEST_PX = 800

Answer = dict[str, Any]
RunName = Annotated[str, Field(description="A name of letters, digits, _ and -.", pattern=r"^[\w-]{1,40}$")]
Robot = Annotated[str, Field(description="Name of a robot of the scenario.")]
FileName = Annotated[str, Field(description="A path inside the server's folder.", max_length=300)]
Source = Annotated[str, Field(description="A shipped name, or a file inside the server's folder.", max_length=300)]
Seed = Annotated[int | None, Field(description="Seed of all noise; default: the scenario's.")]
Number = Annotated[float, Field(allow_inf_nan=False)]


class PngPicture(bytes):
    """A PNG, beside the answer about it."""


class AgentTools:
    def __init__(self, folder: AgentFolder) -> None:
        self._folder = folder
        self._runs: dict[str, AgentRun] = {}

    def _run(self, name: str) -> AgentRun:
        if name not in self._runs:
            raise UsageError(unknown("no run", repr(name), name, self._runs) + "; `start` makes one")
        return self._runs[name]

    def _keep(self, name: str, run: AgentRun) -> AgentRun:
        if name not in self._runs and len(self._runs) >= MOST_RUNS:
            raise UsageError(f"there are {MOST_RUNS} runs already: {', '.join(self._runs)}; `end_run` ends one")
        self._runs[name] = run
        return run

    # ---- files -------------------------------------------------------------------------------------------------------

    def list_available(self) -> Answer:
        """List shipped scenarios and missions, your files, and the runs in progress."""
        from microsim.faults import FAULTS
        from microsim.parts.sweep.metrics import METRICS
        from microsim.paths import mission_names, scenario_names

        runs = {
            name: f"{run.sim.scenario.name}, seed {run.sim.seed}, {run.time_s:.3f} s"
            for name, run in self._runs.items()
        }
        found = {
            "scenarios": scenario_names(),
            "missions": mission_names(),
            "files": self._folder.files(),
            "runs": runs,
        }
        about = {"faults": {name: kind.about for name, kind in FAULTS.built_in.items()}, "metrics": list(METRICS)}
        return {**found, **about, "next": "read_file shows one of them; start begins a run"}

    def read_file(self, name: Source) -> Answer:
        """Read a shipped scenario or mission, or a YAML file of your folder, to use it as a model."""
        from microsim.paths import mission_names, scenario_names

        if name in (*scenario_names(), *mission_names()):
            return {
                "name": name,
                "text": shipped_file(name).read_text(encoding="utf-8"),
                "next": "write_file with changes",
            }
        return {"name": name, "text": self._folder.read(name), "next": "write_file with changes, or validate"}

    def write_file(self, name: FileName, text: str) -> Answer:
        """Write a scenario or mission as YAML into your folder, and check it."""
        self._folder.write(name, text)
        return {"written": name, **self.validate(name)}

    def validate(self, name: Source) -> Answer:
        """Check a scenario or mission; lists every problem with line and column."""
        kind = self._folder.kind(name)
        try:
            if kind == "mission":
                mission = load_mission(self._folder.mission(name))
                check(mission, Simulation(self._scenario_of(mission.scenario), mission.seed))
            else:
                self._scenario(name)
        except ScenarioError as error:
            return {"kind": kind, "ok": False, "problems": problems(error), "next": "correct them, then write_file"}
        return {"kind": kind, "ok": True, "next": "fly_mission runs it" if kind == "mission" else "start runs it"}

    def _scenario(self, name: str) -> Scenario:
        return load_scenario(self._folder.scenario(name))

    def _scenario_of(self, named: str | None) -> Scenario:
        """The scenario that a mission names; its path is absolute if it is beside the mission."""
        return self._scenario(named or "default")

    # ---- a run -------------------------------------------------------------------------------------------------------

    def start(self, scenario: Source = "default", seed: Seed = None, run: RunName = "main") -> Answer:
        """Start a run at time 0, or start it again. Nothing moves until `step`."""
        begun = self._keep(run, AgentRun.begin(self._scenario(scenario), seed))
        return {**self._status(run, begun), "next": "command a robot, then step; read_state shows where robots are"}

    def end_run(self, run: RunName = "main") -> Answer:
        """End a run and forget it."""
        self._run(run)
        del self._runs[run]
        return {"ended": run, "runs": list(self._runs), "next": "start begins another"}

    def step(self, seconds: Annotated[float, Field(gt=0, le=LONGEST_STEP_S)], run: RunName = "main") -> Answer:
        """Let simulated time pass. Commands are held until the next one."""
        one = self._run(run)
        left = one.advance(one.sim.clock.ticks_in(Fraction(str(seconds))))
        answer = self._status(run, one)
        if left:
            return {
                **answer,
                "seconds_left": left * one.sim.clock.dt,
                "next": f"stopped after {WORK_S:g} s; step again",
            }
        return {**answer, "next": "read_topic shows what sensors measured; render_scene draws it"}

    def command(self, robot: Robot, values: dict[str, Number], run: RunName = "main") -> Answer:
        """Set a robot's command, held until the next.

        Drone: vx, vy, vz [m/s], yaw_rate [rad/s]. Rover: v [m/s], omega [rad/s]. Car: steering [rad], speed [m/s].
        """
        one = self._run(run)
        taken = one.sim.command_values(robot, values)
        return {"taken": taken, "inputs": list(one.sim.model(robot).inputs), "next": "step lets it act"}

    def set_pose(
        self, robot: Robot, x: Number, y: Number, z: Number | None = None, yaw: Number = 0.0, run: RunName = "main"
    ) -> Answer:
        """Put a robot somewhere, at rest, in the map frame [m, rad]; a drone without z keeps its height."""
        one = self._run(run)
        if not one.sim.set_pose(robot, x, y, z, yaw):
            raise UsageError(f"({x:g}, {y:g}) is off the map or in an occupied cell, so {robot} was not moved")
        return {"taken": True, "next": "step lets it act"}

    def inject_fault(
        self,
        fault: Annotated[str, Field(description="Such as gps:dropout@3s-5s or radio:blackout@3s-5s")],
        run: RunName = "main",
    ) -> Answer:
        """Break a sensor or the radio for a time: `camera:fail@3s-5s`, `rover/gps:jump(10,0,0)@3s-9s`."""
        one = self._run(run)
        data = one.sim.scenario.to_dict()
        one.sim.reconfigure(load_scenario({**data, "faults": [*data.get("faults", ()), fault]}))
        return {"faults": one.sim.scenario.to_dict()["faults"], "next": "step into its time, then read_topic"}

    # ---- looking -----------------------------------------------------------------------------------------------------

    def _status(self, name: str, run: AgentRun) -> Answer:
        robots = {
            robot: {**run.sim.state(robot)._asdict(), "touching": list(run.sim.touching(robot))}
            for robot in run.sim.robots[:_MOST_ITEMS]
        }
        answer = {"run": name, "time_s": run.time_s, "tick": run.sim.tick, "robots": robots}
        events, ignored = list(run.events)[-5:], dict(run.sim.counters)
        return answer | ({"events": events} if events else {}) | ({"ignored": ignored} if ignored else {})

    def read_state(self, run: RunName = "main") -> Answer:
        """The true state of every robot, what it touches, the last events, and what was ignored."""
        one = self._run(run)
        answer = {
            "scenario": one.sim.scenario.name,
            "seed": one.sim.seed,
            "all_events": list(one.events)[-_MOST_ITEMS:],
        }
        return {
            **self._status(run, one),
            **answer,
            "snapshots": list(one.snapshots),
            "next": "read_topic, render_scene, or step",
        }

    def read_topic(self, topic: str = "", run: RunName = "main") -> Answer:
        """The latest message of a topic; without a topic, all topics with their types. Long arrays are shortened."""
        one = self._run(run)
        kinds = {name: kind for name, (kind, _) in one.sim.topics.items()}
        if not topic:
            return {"topics": kinds, "next": "read_topic with one of them"}
        if topic not in kinds:
            raise UsageError(unknown("no topic", repr(topic), topic, kinds))
        if topic not in one.latest:
            return {"topic": topic, "type": kinds[topic], "message": None, "next": "nothing was sent yet: step"}
        message = one.latest[topic]
        answer = {"topic": topic, "type": kinds[topic], "stamp_s": message.stamp_ns / 1e9}
        return {**answer, "message": to_plain(message.message, _MOST_ITEMS), "next": "step, then read it again"}

    def render_camera(self, robot: Robot, camera: str = "camera", run: RunName = "main") -> Answer:
        """What a robot's camera sees now, as an image."""
        from PIL import Image

        image = Image.fromarray(np.ascontiguousarray(self._run(run).sim.render(robot, camera)))
        return {**_png(image), "camera": f"{robot}/{camera}", "next": "step, or render_scene for the whole map"}

    def render_scene(self, run: RunName = "main") -> Answer:
        """The map from above with obstacles, robots and where they have been, beside the cameras, as an image."""
        from microsim.parts.view.web.interface import need_extra

        need_extra("a picture")
        from microsim.parts.view.web.export import still

        one = self._run(run)
        return {**_png(still(one.sim, one.trails)), "time_s": one.time_s, "next": "read_state has the numbers"}

    def digest(self, run: RunName = "main") -> Answer:
        """SHA-256 over every message of the run so far: equal digests mean equal runs."""
        one = self._run(run)
        answer = {"scenario": one.sim.scenario.name, "seed": one.sim.seed, "tick": one.sim.tick}
        return {**answer, "digest": one.sim.digest(), "next": "the same scenario, seed and inputs give the same digest"}

    # ---- time travel -------------------------------------------------------------------------------------------------

    def snapshot(self, name: RunName, run: RunName = "main") -> Answer:
        """Remember this moment of a run."""
        one = self._run(run)
        if name not in one.snapshots and len(one.snapshots) >= MOST_SNAPSHOTS:
            raise UsageError(f"a run has {MOST_SNAPSHOTS} snapshots at most; use one of their names to replace it")
        one.save(name)
        return {"snapshot": name, "time_s": one.time_s, "next": f"restore with name {name!r} comes back here"}

    def restore(self, name: RunName, run: RunName = "main") -> Answer:
        """Go back to a snapshot of this run, bit for bit."""
        one = self._run(run)
        if name not in one.snapshots:
            raise UsageError(unknown("no snapshot", repr(name), name, one.snapshots))
        one.go_back(name)
        return {**self._status(run, one), "next": "try something else, then step"}

    def fork(self, new_run: RunName, run: RunName = "main") -> Answer:
        """Copy a run at this moment; both continue on their own."""
        if new_run in self._runs:
            raise UsageError(f"there is a run {new_run!r} already; choose another name, or end_run")
        twin = self._keep(new_run, self._run(run).forked())
        return {**self._status(new_run, twin), "next": f"command and step the runs, then diff_runs {run} {new_run}"}

    # ---- missions and sweeps -----------------------------------------------------------------------------------------

    def fly_mission(
        self, mission: Source, scenario: Source | None = None, seed: Seed = None, run: RunName = "mission"
    ) -> Answer:
        """Run a mission to its end and judge its expectations. The run stays, to be looked at."""
        plan = load_mission(self._folder.mission(mission))
        chosen = self._scenario(scenario) if scenario is not None else self._scenario_of(plan.scenario)
        one = AgentRun.begin(chosen, plan.seed if seed is None else seed, lambda sim: MissionPilot(sim, plan))
        pilot = one.pilot
        assert isinstance(pilot, MissionPilot)
        left = one.advance(pilot.end)
        one.pilot = None
        verdicts = [
            {"requires": each.name, "result": "failed" if each.problem else "open" if each.is_open else "met"}
            | ({"problem": each.problem} if each.problem else {})
            for each in pilot.verdicts()
        ]
        passed = not left and not pilot.violations()
        answer = {"passed": passed, "verdicts": verdicts, "digest": one.sim.digest()}
        answer |= {"seconds_left": left * one.sim.clock.dt} if left else {}
        self._keep(run, one)
        hint = (
            "export, sweep it over seeds, or end_run"
            if passed
            else f"render_scene of run {run!r} shows where robots went"
        )
        return {**answer, **self._status(run, one), "all_events": list(one.events)[:_MOST_ITEMS], "next": hint}

    def sweep(
        self, scenario: Source = "default", mission: Source | None = None, seeds: str = "0..9",
        vary: dict[str, list[Any]] | None = None, metrics: list[str] | None = None,
        asserts: Annotated[list[str] | None, Field(description="Such as 'collisions == 0'")] = None,
        duration: Annotated[float | None, Field(gt=0, le=LONGEST_STEP_S)] = None,
    ) -> Answer:  # fmt: skip
        """Run a mission, or nothing for a duration, with several seeds and settings; a row of metrics for each run."""
        from microsim.parts.sweep.plan import load_sweep, make_plan

        given = {"seeds": seeds, "vary": vary, "metrics": metrics, "assert": asserts, "duration": duration}
        given["mission"] = None if mission is None else self._folder.mission(mission)
        wanted = {key: value for key, value in given.items() if value is not None}
        plan = make_plan(load_sweep({"scenario": self._folder.scenario(scenario), **wanted}))
        if len(plan) > MOST_SWEEP_RUNS:
            raise UsageError(f"a sweep has {MOST_SWEEP_RUNS} runs at most here, this one has {len(plan)}")
        finished = _swept(plan)
        rows = [{key: value for key, value in row.items() if key != "token"} for row in finished.rows]
        answer = {"runs": len(plan), "done": len(rows), "failed": len(finished.failed), "rows": rows}
        broken = [str(each).partition(": microsim replay")[0] for each in finished.broken]
        hint = "fly_mission with the seed of a bad row shows what happens there"
        return {**answer, "good": finished.is_good and len(rows) == len(plan), "broken": broken, "next": hint}

    # ---- comparing and keeping ---------------------------------------------------------------------------------------

    def diff_runs(self, run: RunName, other: RunName) -> Answer:
        """Compare two runs message by message; reports the first difference."""
        from microsim.recording.bag_io import open_bag
        from microsim.recording.compare import diff

        one, two = self._run(run), self._run(other)
        with tempfile.TemporaryDirectory(prefix="microsim-") as folder:
            first, second = one.record(Path(folder) / run), two.record(Path(folder) / f"{other}{'_' * (run == other)}")
            text = json.dumps(diff(open_bag(first), open_bag(second)).to_dict())
        found: Answer = json.loads(text.replace(f"{folder}/", ""))  # runs are known by their names
        hint = "they are the same" if found["identical"] else "read_state of both shows what came of it"
        return {**found, "next": hint}

    def export(
        self, kind: Literal["recording", "plot", "html", "scenario"], name: FileName, run: RunName = "main"
    ) -> Answer:
        """Write a run into your folder: a rosbag2 recording, a plot (.png), a page (.html) or a scenario (.yaml)."""
        from microsim.parts.view.artefacts import page_of, write_plot

        one = self._run(run)
        suffix = {"recording": "", "plot": ".png", "html": ".html", "scenario": ".yaml"}[kind]
        target = self._folder.new(name, suffix)
        if kind == "scenario":
            target.write_text(one.sim.scenario.to_yaml(), encoding="utf-8")
        elif kind == "recording":
            one.record(target)
        else:
            with tempfile.TemporaryDirectory(prefix="microsim-") as folder:
                bag = one.record(Path(folder) / "run")
                (write_plot if kind == "plot" else page_of)(bag, target, one.sim.scenario.plugins)
        hint = {"recording": f"`microsim replay {name} --open` shows it", "scenario": "start with it"}.get(
            kind, "open it"
        )
        return {"written": name, "kind": kind, "next": hint}


# ---- answers ---------------------------------------------------------------------------------------------------------


def problems(error: MicroSimError) -> list[Answer]:
    """Of a file or of values, each with where it is."""
    if not isinstance(error, ScenarioError):
        return []
    found = [
        {"path": each.path, "line": each.line, "column": each.column, "message": each.explanation}
        for each in error.problems[:_MOST_ITEMS]
    ]
    return [{key: value for key, value in each.items() if value not in (None, "")} for each in found]


def short(value: Any) -> Any:
    """As JSON can hold it, with long lists and texts cut."""
    if isinstance(value, Mapping):
        return {str(key): short(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return _cut([short(item) for item in value[: _MOST_ITEMS + 1]], len(value))
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else str(value)
    return f"{value[:_MOST_TEXT]}…" if isinstance(value, str) and len(value) > _MOST_TEXT else value


def _cut(items: list[Any], count: int) -> list[Any]:
    """The last item of a list that was cut says so; it counts as one, so that it is not cut again."""
    return items if count <= _MOST_ITEMS + 1 else [*items[:_MOST_ITEMS], f"… and {count - _MOST_ITEMS:,} more"]


def _png(image: Any) -> Answer:
    if max(image.size) > _WIDEST_PX:
        image.thumbnail((_WIDEST_PX, _WIDEST_PX))
    file = io.BytesIO()
    image.save(file, "PNG")
    return {"picture": PngPicture(file.getvalue()), "width": image.width, "height": image.height}


def _swept(plan: Any) -> Any:
    """The runs that are done when the wall time of a call is spent; worker processes end with it."""
    from microsim.parts.sweep.results import Finished
    from microsim.parts.sweep.run_all import run_all
    from microsim.parts.sweep.worker_pool import LocalWorkers

    give_up_s, found = time.monotonic() + WORK_S, []
    pool = LocalWorkers(plan.order(), min(2, len(plan)), WORK_S)
    try:
        for outcome in run_all(plan, range(len(plan)), pool, lambda text: None):
            found.append(outcome)
            if time.monotonic() > give_up_s:
                break
    finally:
        pool.close()
    return Finished.of(plan, found)
