"""One robot of the scenario in every world."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from microsim.batch.batch_columns import Array, Integers, shared
from microsim.batch.batch_ground import Ground
from microsim.batch.kernels import GAP, HIGH, HOW, IS_DRAWN, IS_GROUND_BOUND, LOW, POSE
from microsim.engine.bodies import Body
from microsim.engine.calls import Rows, has_checked
from microsim.engine.components import Airflow
from microsim.engine.noise import stream_keys
from microsim.engine.random_layout import numbers_between
from microsim.engine.records import address_of
from microsim.engine.world_arrays import WorldArray
from microsim.plugin_errors import plugin_errors
from microsim.scenario.models import Scenario
from microsim.scenario.randomised import is_limit, place_spans, start_stream, value_stream, with_value


class RobotColumns:
    def __init__(self, scenario: Scenario, name: str, ground: Ground, dt: float, n: int) -> None:
        self.name, self.ground, self.dt = name, ground, dt
        self.scenario = scenario
        self.settings = scenario.robots[name]
        self.model = self.settings.engine_model
        self.loops = ground.loops
        xp, width = self.loops.xp, self.loops.width_for(n)
        self.state: Array = xp.zeros((self.model.rows, width))
        self.handed_in: Array = xp.zeros((len(self.model.inputs), width))
        self.in_force: Array = xp.zeros_like(self.handed_in)
        self.keys: Integers = xp.zeros(width, np.int64)
        self.ignored: Integers = xp.zeros(width, np.int64)
        written = scenario.randomize.values if scenario.randomize else {}
        self.limits = {key: span for key, span in written.items() if is_limit(key.split("."), name, self.settings)}
        self.winds = {key: span for key, span in written.items() if key.startswith("wind.")}
        column = self._parameters(self.settings, self._wind({}))
        varies = bool(self.limits or self.winds)
        self.parameters: Array = xp.zeros((len(column), width)) if varies else shared(xp, column, width)
        self.look_at_parameters()
        self.fleet: Rows = self.loops.array(self._fleet_row())
        self.start: Array = self.loops.array(self._start())

    def _start(self) -> Array:
        """(4, 4), see `kernels.put_at_start`."""
        randomize, pose = self.scenario.randomize, self.settings.start.map_pose
        found = np.full((4, 4), math.nan)
        found[POSE] = pose.x, pose.y, pose.z or 0.0, pose.yaw
        start = randomize.starts.get(self.name) if randomize else None
        found[HOW, GAP], found[HOW, IS_DRAWN] = 0.0, start is not None
        found[HOW, IS_GROUND_BOUND] = self.model.is_ground_bound
        if start is not None:
            found[HOW, GAP] = start.gap_m
            found[LOW : HIGH + 1, 0], found[LOW : HIGH + 1, 1] = place_spans(pose, start)
            if start.z is not None and pose.z is not None:
                found[LOW : HIGH + 1, 2] = start.z
            if start.yaw is not None:
                found[LOW : HIGH + 1, 3] = start.yaw
        return found

    def _wind(self, numbers: Mapping[str, float]) -> Airflow:
        wind = self.scenario.wind
        xyz = [float(each) for each in wind.world_xyz]
        for axis in range(3):
            xyz[axis] = numbers.get(f"wind.world_xyz.{axis}", xyz[axis])
        sigma = numbers.get("wind.gust_sigma", wind.gust_sigma)
        return Airflow((xyz[0], xyz[1], xyz[2]), sigma, numbers.get("wind.gust_tau_s", wind.gust_tau_s))

    def _parameters(self, settings: Any, wind: Airflow) -> tuple[float, ...]:
        return tuple(float(each) for each in self.model.parameters(settings, wind, self.dt))

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        self.keys[worlds] = self.loops.stream_keys(seeds, f"{self.name}/air/gust")
        self.handed_in[:, worlds] = self.in_force[:, worlds] = 0.0
        self.ignored[worlds] = 0
        self._draw_parameters(worlds, seeds)
        self.loops.put_at_start(self, worlds, self.loops.stream_keys(seeds, start_stream(self.name)))
        if self.model.settle is not None:
            self.loops.settle(self, worlds)

    def _draw_parameters(self, worlds: Integers, seeds: Integers) -> None:
        spans = {**self.limits, **self.winds}
        if not spans:
            return
        known = self.loops.host(seeds)
        drawn = {
            key: numbers_between(stream_keys(known, value_stream(key)), *map(float, span))
            for key, span in spans.items()
        }
        columns = np.empty((self.parameters.shape[0], worlds.size))
        for index in range(worlds.size):
            numbers = {key: float(values[index]) for key, values in drawn.items()}
            settings = self.settings
            for key in self.limits:
                settings = with_value(settings, key.split(".")[2:], numbers[key])
            columns[:, index] = self._parameters(settings, self._wind(numbers))
        self.parameters[:, worlds] = self.loops.array(columns)
        self.look_at_parameters()

    def body(self) -> Body:
        with plugin_errors(f"robot {self.name}", type(self.settings)):
            return Body(*self.settings.body())

    def look_at_parameters(self) -> None:
        """Whether the number of the tick matters to any world."""
        is_one = self.parameters.strides[1] == 0
        self.needs_tick = bool(self.model.needs_tick(self.parameters[:, :1] if is_one else self.parameters))

    def _fleet_row(self) -> Rows:
        """The call that moves it, see `engine.calls`."""
        state, command, parameters = self.state, self.in_force, self.parameters
        step = 1 if parameters.strides[1] else 0
        one, many = self.loops.advance_functions(self.model)
        self.has_checked = has_checked((one, many))
        return np.array(
            [
                one, 0, address_of(state), *state.shape, 0, 0, address_of(command),
                command.shape[0], address_of(parameters), parameters.shape[0], step,
                address_of(self.keys), address_of(self.ground.scene), 0, 0, 0, 0,
                many, 0, 0,
            ],
            np.int64,
        )  # fmt: skip

    def arrays(self) -> dict[str, WorldArray]:
        found = {
            "state": WorldArray(self.state, 1),
            "handed_in": WorldArray(self.handed_in, 1),
            "in_force": WorldArray(self.in_force, 1),
            "keys": WorldArray(self.keys),
            "ignored": WorldArray(self.ignored),
        }
        if self.limits or self.winds:
            found["parameters"] = WorldArray(self.parameters, 1)
        return found
