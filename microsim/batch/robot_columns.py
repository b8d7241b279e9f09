"""One robot of the scenario in every world."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from microsim.batch.batch_columns import Integers, columns, shared, width_for
from microsim.batch.batch_ground import Ground
from microsim.batch.kernels import move, put_at_start, take_commands
from microsim.engine.calls import Rows, address_of, advance_address
from microsim.engine.components import Airflow
from microsim.engine.noise import stream_keys
from microsim.engine.random_layout import numbers_between
from microsim.scenario.models import Scenario
from microsim.scenario.randomised import place_spans, start_stream, value_stream
from microsim.scenario.randomize import is_limit, with_value


class RobotColumns:
    def __init__(self, scenario: Scenario, name: str, ground: Ground, dt: float, n: int) -> None:
        self.name, self.ground, self.dt = name, ground, dt
        self.scenario = scenario
        self.settings = scenario.robots[name]
        self.model = self.settings.engine_model
        self.state = columns(self.model.rows, n)
        self.handed_in = columns(len(self.model.inputs), n)
        self.in_force = columns(len(self.model.inputs), n)
        self.keys: Integers = np.zeros(width_for(n), np.int64)
        self.ignored: Integers = np.zeros(width_for(n), np.int64)
        written = scenario.randomize.values if scenario.randomize else {}
        self.limits = {key: span for key, span in written.items() if is_limit(key.split("."), name, self.settings)}
        self.winds = {key: span for key, span in written.items() if key.startswith("wind.")}
        column = self._parameters(self.settings, self._wind({}))
        self.parameters = columns(len(column), n) if self.limits or self.winds else shared(column, n)
        self.needs_tick = bool(self.model.needs_tick(self.parameters[:, :1]))
        self.fleet = self._fleet_row()
        self._start()

    def _start(self) -> None:
        randomize, pose = self.scenario.randomize, self.settings.start.map_pose
        self.pose = np.array((pose.x, pose.y, pose.z or 0.0, pose.yaw), np.float64)
        start = randomize.starts.get(self.name) if randomize else None
        self.is_drawn, self.gap_m = start is not None, 0.0
        self.chances = np.full((2, 4), math.nan)
        if start is not None:
            self.gap_m = float(start.gap_m)
            self.chances[:, 0], self.chances[:, 1] = place_spans(pose, start)
            if start.z is not None and pose.z is not None:
                self.chances[:, 2] = start.z
            if start.yaw is not None:
                self.chances[:, 3] = start.yaw

    def _wind(self, numbers: Mapping[str, float]) -> Airflow:
        wind = self.scenario.wind
        xyz = [float(each) for each in wind.world_xyz]
        for axis in range(3):
            xyz[axis] = numbers.get(f"wind.world_xyz.{axis}", xyz[axis])
        sigma = numbers.get("wind.gust_sigma", wind.gust_sigma)
        return Airflow((xyz[0], xyz[1], xyz[2]), sigma, numbers.get("wind.gust_tau_s", wind.gust_tau_s))

    def _parameters(self, settings: Any, wind: Airflow) -> tuple[float, ...]:
        return self.model.parameters(settings, wind, self.dt)

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        self.keys[worlds] = stream_keys(seeds, f"{self.name}/air/gust")
        self.handed_in[:, worlds] = self.in_force[:, worlds] = 0.0
        self.ignored[worlds] = 0
        self._draw_parameters(worlds, seeds)
        ground = self.ground
        put_at_start(
            self.state,
            self.pose,
            self.chances,
            self.gap_m,
            self.is_drawn,
            self.model.is_ground_bound,
            ground.elevation,
            ground.footings,
            ground.cell,
            ground.west,
            ground.south,
            stream_keys(seeds, start_stream(self.name)),
            worlds,
        )
        if self.model.settle is not None:
            self._settle(worlds)

    def _settle(self, worlds: Integers) -> None:
        """Lay those that were put somewhere onto the slope there."""
        ground, put = self.ground, np.ascontiguousarray(self.state[:, worlds])
        grid = (ground.elevation, ground.cell, ground.west, ground.south)
        assert self.model.settle is not None
        self.model.settle(put, np.ascontiguousarray(self.parameters[:, worlds]), *grid)
        self.state[:, worlds] = put

    def _draw_parameters(self, worlds: Integers, seeds: Integers) -> None:
        spans = {**self.limits, **self.winds}
        if not spans:
            return
        drawn = {
            key: numbers_between(stream_keys(seeds, value_stream(key)), *map(float, span))
            for key, span in spans.items()
        }
        for index, world in enumerate(worlds.tolist()):
            numbers = {key: float(values[index]) for key, values in drawn.items()}
            settings = self.settings
            for key in self.limits:
                settings = with_value(settings, key.split(".")[2:], numbers[key])
            self.parameters[:, world] = self._parameters(settings, self._wind(numbers))
        self.look_at_parameters()

    def look_at_parameters(self) -> None:
        self.needs_tick = bool(self.model.needs_tick(self.parameters))

    def take(self, begin: int, end: int) -> None:
        age = -1 if self.model.command_age is None else self.model.command_age
        take_commands(self.handed_in, self.in_force, self.state, age, self.ignored, begin, end)

    def move(self, tick: Integers, ticks: int, begin: int, end: int) -> None:
        move(self.fleet, self.needs_tick, self.ground.is_shared, tick, ticks, begin, end)

    def _fleet_row(self) -> Rows:
        """The call that moves it, see `engine.calls`."""
        state, command, parameters = self.state, self.in_force, self.parameters
        step = 1 if parameters.strides[1] else 0
        return np.array(
            [
                advance_address(self.model.advance), address_of(state), *state.shape, 0, 0, address_of(command),
                command.shape[0], address_of(parameters), parameters.shape[0], step, address_of(self.keys),
                address_of(self.ground.scene), 0, 0, 0, 0,
            ],
            np.int64,
        )  # fmt: skip

    def arrays(self) -> dict[str, tuple[Any, int]]:
        """All that makes up its worlds, with the axis of the worlds."""
        found: dict[str, tuple[Any, int]] = {
            "state": (self.state, 1),
            "handed_in": (self.handed_in, 1),
            "in_force": (self.in_force, 1),
            "keys": (self.keys, 0),
            "ignored": (self.ignored, 0),
        }
        if self.limits or self.winds:
            found["parameters"] = (self.parameters, 1)
        return found
