"""`microsim plot` with many robots and long names: no word lies outside the picture or on another panel."""

from pathlib import Path
from typing import Any

import pytest

import microsim
from microsim.plotting import STYLE, matplotlib
from microsim.recording.bag_io import open_bag
from microsim.recording.bag_plot import PlotPage, _draw, _scenario, _shortened, read_series
from microsim.recording.recorder import Recorder
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
        _draw(drawn, PlotPage(read_series(bag), _scenario(bag, Path(folder))), bag)
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
