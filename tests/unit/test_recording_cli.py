"""`microsim run --record`, `replay`, `diff`, `plot`, `bag info` and `bag repair`, as a user calls them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from microsim.cli import app
from microsim.cli.recording import seconds, size
from microsim.recording.bag import open_bag
from microsim.recording.state_file import read_state, resume
from tests.recording_support import files_of, record


def microsim(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def run(folder: Path, *arguments: Any) -> Result:
    return microsim("run", "flat", "--demo", "--duration", "3", "--rtf", "0", "--record", folder, *arguments)


def test_a_run_is_recorded_verified_and_told_apart(tmp_path: Path) -> None:
    done = run(tmp_path / "one")
    assert done.exit_code == 0
    assert "recorded" in done.output
    done = microsim("replay", tmp_path / "one", "--verify")
    assert done.exit_code == 0
    assert done.stdout.startswith("identical: ")
    assert open_bag(tmp_path / "one").facts.end["digest"] in done.stdout
    run(tmp_path / "two", "--seed", "9")
    done = microsim("diff", tmp_path / "one", tmp_path / "two")
    assert done.exit_code == 1
    assert "different after" in done.stdout
    assert "seed: 12345 and 9" in done.stdout
    assert microsim("diff", tmp_path / "one", tmp_path / "one").exit_code == 0


def test_recording_options_reach_the_bag(tmp_path: Path) -> None:
    options = ["--storage", "mcap", "--compress", "zstd", "--topics", "/drone/*", "--topics", "/clock"]
    done = run(tmp_path / "bag", *options, "--exclude", "*camera*", "--split-time", "1s", "--history", "2s")
    assert done.exit_code == 0
    bag = open_bag(tmp_path / "bag")
    topics = {each.topic for block in bag.blocks() for each in block.channels}
    assert "/drone/odom" in topics
    assert not {"/rover/odom", "/drone/camera/image_raw"} & topics
    assert len(list((tmp_path / "bag").glob("*.mcap"))) == 4
    states = sorted((tmp_path / "bag_states").glob("*.state"))
    assert states
    assert read_state(states[-1]).facts["scenario"] == "flat"


def test_a_replay_stops_saves_and_records(tmp_path: Path) -> None:
    run(tmp_path / "bag")
    state = tmp_path / "at.state"
    done = microsim("replay", tmp_path / "bag", "--at", "1.5s", "--save-state", state)
    assert done.exit_code == 0
    assert resume(state, tmp_path).tick == 90
    done = microsim("replay", tmp_path / "bag", "--record", tmp_path / "again")
    assert done.exit_code == 0
    assert files_of(tmp_path / "bag") == files_of(tmp_path / "again")
    done = microsim("replay", tmp_path / "bag", "--rtf", "20", "--from", "2s")
    assert done.exit_code == 0
    assert "replayed 180 ticks" in done.stdout


def test_bag_info_and_repair(tmp_path: Path) -> None:
    run(tmp_path / "bag")
    done = microsim("bag", "info", tmp_path / "bag")
    assert done.exit_code == 0
    assert "/drone/odom" in done.stdout
    told = json.loads(microsim("bag", "info", tmp_path / "bag", "--json").stdout)
    assert told["ticks"] == "180"
    file = tmp_path / "bag" / "microsim_0.mcap"
    file.write_bytes(file.read_bytes()[:-10])
    assert microsim("bag", "info", tmp_path / "bag").exit_code == 1
    done = microsim("bag", "repair", tmp_path / "bag")
    assert done.exit_code == 0
    assert "written anew: microsim_0.mcap" in done.stdout
    assert microsim("bag", "info", tmp_path / "bag").exit_code == 0
    assert (tmp_path / "bag" / "microsim_0.mcap.damaged").exists()


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_plot_is_drawn_and_the_same_twice(tmp_path: Path, kind: str) -> None:
    record(tmp_path / "bag", ticks=200)
    pictures = [tmp_path / f"{number}.{kind}" for number in range(2)]
    for picture in pictures:
        done = microsim("plot", tmp_path / "bag", "-o", picture)
        assert done.exit_code == 0
        assert picture.stat().st_size > 10_000
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_plots_that_cannot_be_are_refused(tmp_path: Path) -> None:
    from microsim.recording.plot import PlotError, plot

    record(tmp_path / "bag", ticks=10, topics=("/clock",))
    with pytest.raises(PlotError, match="no odometry"):
        plot(open_bag(tmp_path / "bag"), tmp_path / "x.png")
    with pytest.raises(PlotError, match="ends with"):
        plot(open_bag(tmp_path / "bag"), tmp_path / "x.gif")


@pytest.mark.parametrize(("text", "value"), [("12.5s", "25/2"), ("500ms", "1/2"), ("2min", "120"), ("3", "3")])
def test_times(text: str, value: str) -> None:
    assert seconds(text) == Fraction(value)


@pytest.mark.parametrize(("text", "value"), [("500kB", 500_000), ("1.5 MiB", 1_572_864), ("2GB", 2 * 10**9), ("7", 7)])
def test_sizes(text: str, value: int) -> None:
    assert size(text) == value


@pytest.mark.parametrize("text", ["", "s", "-1s", "1e3", "5 parsecs", "nan", "1" * 50])
def test_times_and_sizes_that_make_no_sense(text: str) -> None:
    for parse in (seconds, size):
        with pytest.raises(typer.BadParameter):
            parse(text)
