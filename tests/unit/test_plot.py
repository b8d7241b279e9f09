"""`microsim plot` with many robots and long names: no word lies outside the picture or on another panel."""

from pathlib import Path
from typing import Any

import pytest

import microsim
from microsim.recording.bag import ForeignBag, OwnBag, open_bag
from microsim.recording.entries import BagError
from microsim.recording.pictures import STYLE, matplotlib
from microsim.recording.plot import Page, _declared_plots, _draw, _scenario, _shortened, plot
from microsim.recording.recorder import Recorder
from microsim.recording.series import read_series
from microsim.runner import Runner

NAMES = [f"long_distance_supply_rover_number_{number:02d}" for number in range(6)]
WORLD: dict[str, Any] = {
    "map": {"size_xy_cells": [40, 40]},
    "world_topics": {"occupancy_hz": 0, "markers_hz": 0},
    "robots": {
        name: {"model": "rover", "start": {"map_pose": {"x": 4 + 6 * number, "y": 8}}}
        for number, name in enumerate(NAMES)
    },
}


@pytest.fixture(scope="module")
def figure(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("bags")
    sim = microsim.Simulation(WORLD)
    with Recorder(folder / "bag", sim) as recorder:

        def pilot(messages: object) -> None:
            for number, name in enumerate(NAMES if sim.tick % 20 == 0 else ()):
                sim.command(name, v=1.0, omega=0.1 * number)
                sim.radio_send(name, b"here I am")

        runner = Runner(sim, 0.0, pilot)
        recorder.attach(runner)
        runner.run(300)
    bag = open_bag(folder / "bag")
    with matplotlib("matplotlib").rc_context(STYLE):
        drawn = matplotlib("matplotlib.figure").Figure(figsize=(13.0, 8.2), dpi=150)
        matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg(drawn)
        _draw(drawn, Page(read_series(bag), _scenario(bag, Path(folder))), bag)
        drawn.canvas.draw()
    return drawn


def texts(figure: Any) -> list[Any]:
    found = figure.findobj(matplotlib("matplotlib.text").Text)
    return [each for each in found if each.get_visible() and each.get_text().strip()]


def test_every_word_is_inside_the_picture(figure: Any) -> None:
    width, height = figure.canvas.get_width_height()
    for text in texts(figure):
        box = text.get_window_extent()
        assert box.x0 >= -1, text
        assert box.x1 <= width + 1, text
        assert box.y0 >= -1, text
        assert box.y1 <= height + 1, text


def test_what_is_said_beside_a_title_does_not_lie_on_it(figure: Any) -> None:
    for axes in figure.axes:
        left, right = axes.title.get_window_extent(), axes._right_title.get_window_extent()
        left = axes._left_title.get_window_extent() if axes._left_title.get_text() else left
        assert not axes._right_title.get_text() or left.x1 < right.x0


def test_many_links_are_a_line_for_each_sender_and_no_legend(figure: Any) -> None:
    radio = figure.axes[-1]
    assert len(radio.lines) == len(NAMES)
    assert not any(axes.get_legend() for axes in figure.axes)
    assert "in all" in radio._right_title.get_text()
    assert {_shortened(name) for name in NAMES} <= {text.get_text() for text in texts(figure)}


def test_a_shortened_name_keeps_its_beginning_and_end() -> None:
    assert _shortened("rover") == "rover"
    short = _shortened(NAMES[3])
    assert len(short) == 18
    assert short.startswith("long_dis")
    assert short.endswith("ber_03")


THERMOMETER = """
from microsim.sensors.declaration import Display, Sensor

class Thermometer:
    def __init__(self, context): self.context = context
    def update(self, dt): ...
    def publish(self):
        return {{"temperature": 20.0 + self.context.tick}}

SENSOR = Sensor("thermometer", "sensor_msgs/msg/Temperature", Thermometer, display=Display(plot=("{field}",)))
"""


def recorded_thermometer(folder: Path, field: str) -> OwnBag | ForeignBag:
    (folder / "thermometer.py").write_text(THERMOMETER.format(field=field))
    robots = {"rover": {"sensors": {"hood": {"type": "thermometer", "hz": 10}}}}
    sim = microsim.Simulation({"plugins": [str(folder)], "robots": robots})
    with Recorder(folder / "bag", sim) as recorder:
        runner = Runner(sim, 0.0, lambda messages: None)
        recorder.attach(runner)
        runner.run(30)
    return open_bag(folder / "bag")


def test_what_a_plugin_declares_to_be_plotted_is_plotted(tmp_path: Path) -> None:
    bag = recorded_thermometer(tmp_path, "temperature")
    fields = _declared_plots(_scenario(bag, tmp_path))
    assert fields["/rover/hood"] == ("temperature",)
    assert read_series(bag, fields).readings["/rover/hood", "temperature"]["value"].tolist() == [20, 26, 32, 38, 44, 50]
    plot(bag, tmp_path / "run.svg")
    assert "hood temperature" in (tmp_path / "run.svg").read_text()


def test_a_field_to_plot_that_does_not_exist_is_reported_with_those_that_do(tmp_path: Path) -> None:
    bag = recorded_thermometer(tmp_path, "temprature")
    with pytest.raises(BagError, match=r"/rover/hood: .*has no number 'temprature'; did you mean 'temperature'"):
        plot(bag, tmp_path / "run.svg")
