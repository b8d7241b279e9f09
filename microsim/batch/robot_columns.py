"""One robot of the scenario in every world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from microsim.batch.batch_columns import Array, Integers, shared
from microsim.batch.batch_ground import Ground
from microsim.engine.bodies import Body
from microsim.engine.components import Airflow
from microsim.engine.noise import stream_keys
from microsim.engine.random_layout import numbers_between
from microsim.engine.records import address_of
from microsim.engine.world_arrays import WorldArray
from microsim.engine.worlds import Fleet
from microsim.plugin_errors import plugin_errors
from microsim.scenario.models import Scenario
from microsim.scenario.randomised import is_limit, start_row, start_stream, value_stream, with_value


class RobotColumns:
    def __init__(self, scenario: Scenario, name: str, ground: Ground, dt: float, n: int) -> None:
        self.name, self.ground, self.dt = name, ground, dt
        self.scenario = scenario
        self.settings = scenario.robots[name]
        self.model = self.settings.engine_model
        self.loops = ground.loops
        xp, width = self.loops.xp, self.loops.width_for(n)
        self.state: Array = xp.zeros((self.model.rows, width))
        self.new_command: Array = xp.zeros((len(self.model.inputs), width))
        self.keys: Integers = xp.zeros(width, np.int64)
        self.ignored: Integers = xp.zeros(width, np.int64)
        written = scenario.randomize.values if scenario.randomize else {}
        self.limits = {key: span for key, span in written.items() if is_limit(key.split("."), name, self.settings)}
        self.winds = {key: span for key, span in written.items() if key.startswith("wind.")}
        column = self._parameters(self.settings, self._wind({}))
        varies = bool(self.limits or self.winds)
        self.parameters: Array = xp.zeros((len(column), width)) if varies else shared(xp, column, width)
        self.look_at_parameters()
        self.fleet = Fleet(self.model, (name,), self.state, self.parameters, self.keys, ground.scene, self.loops)
        self._row = self.loops.table(self.fleet.row)
        self.fleet_at = address_of(self._row)
        self.start = self.loops.table(start_row(scenario, name))

    def _wind(self, numbers: Mapping[str, float]) -> Airflow:
        wind = self.scenario.wind
        xyz = [float(each) for each in wind.world_xyz]
        for axis in range(3):
            xyz[axis] = numbers.get(f"wind.world_xyz.{axis}", xyz[axis])
        sigma = numbers.get("wind.gust_sigma", wind.gust_sigma)
        return Airflow((xyz[0], xyz[1], xyz[2]), sigma, numbers.get("wind.gust_tau_s", wind.gust_tau_s))

    def _parameters(self, settings: Any, wind: Airflow) -> tuple[float, ...]:
        return self.model.numbers(settings, wind, self.dt)

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        self.keys[worlds] = self.loops.stream_keys(seeds, f"{self.name}/air/gust")
        self.new_command[:, worlds] = self.fleet.command[:, worlds] = 0.0
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
        self.needs_tick = self.model.needs_tick_with(self.parameters[:, :1] if is_one else self.parameters)

    def arrays(self) -> dict[str, WorldArray]:
        """Beside those of `Worlds`."""
        found = {
            "new_command": WorldArray(self.new_command, 1),
            "keys": WorldArray(self.keys),
            "ignored": WorldArray(self.ignored),
        }
        if self.limits or self.winds:
            found["parameters"] = WorldArray(self.parameters, 1)
        return found
