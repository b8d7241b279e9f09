"""`microsim run --record`, `replay`, `diff`, `plot`, `bag info` and `bag repair`, as a user calls them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from microsim.cli import app
from microsim.errors import UsageError
from microsim.options import simulated_time, size
from microsim.recording.bag_io import open_bag
from microsim.recording.state_file import SnapshotError, read_state, resume
from tests.recording_support import files_of, record


def microsim(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def run(folder: Path, *arguments: Any) -> Result:
    return microsim("run", "flat", "--autopilot", "--duration", "3", "--rtf", "0", "--record", folder, *arguments)


def test_a_run_is_recorded_verified_and_told_apart(tmp_path: Path) -> None:
    done = run(tmp_path / "one")
    assert done.exit_code == 0
    assert "recorded" in done.output
    done = microsim("replay", tmp_path / "one", "--verify")
    assert done.exit_code == 0
    assert done.stdout.startswith("identical: ")
    assert open_bag(tmp_path / "one").run_info.end["digest"] in done.stdout
    run(tmp_path / "two", "--seed", "9")
    done = microsim("diff", tmp_path / "one", tmp_path / "two")
    assert done.exit_code == 1
    assert "different after" in done.stdout
    assert done.stdout.startswith("different seeds (12345 and 9); the first message that differs is /sim/info at ")
    assert microsim("diff", tmp_path / "one", tmp_path / "one").exit_code == 0


def test_what_is_found_can_be_read_by_machines(tmp_path: Path) -> None:
    run(tmp_path / "one")
    run(tmp_path / "two", "--seed", "9")
    found = json.loads(microsim("replay", tmp_path / "one", "--verify", "--json").stdout)
    digest = open_bag(tmp_path / "one").run_info.end["digest"]
    assert (found["identical"], found["digest"], found["difference"]) == (True, digest, None)
    again = json.loads(microsim("replay", tmp_path / "one", "--json").stdout)
    assert (again["ticks"], again["digest"], again["differs"]) == (180, digest, False)
    done = microsim("diff", tmp_path / "one", tmp_path / "two", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["identical"], found["difference"]["topic"]) == (1, False, "/sim/info")
    assert found["difference"]["about"].startswith("different after ")


def test_of_long_texts_the_part_that_differs_is_shown(tmp_path: Path) -> None:
    run(tmp_path / "one")
    run(tmp_path / "two", "--seed", "9")
    told = microsim("diff", tmp_path / "one", tmp_path / "two").stdout
    values = [line for line in told.splitlines() if line.startswith("    ")]
    assert ['"seed": 12345' in values[0], '"seed": 9' in values[1]] == [True, True]


def test_bag_info_tells_numbers_as_numbers_and_the_rates_of_the_scenario(tmp_path: Path) -> None:
    run(tmp_path / "bag")
    facts = json.loads(microsim("bag", "info", tmp_path / "bag", "--json").stdout)
    assert (facts["seed"], facts["ticks"], facts["complete"]) == (12345, 180, True)
    assert facts["scenario"]["name"] == "flat"
    assert facts["messages"] == sum(topic["messages"] for topic in facts["topics"].values())
    assert facts["sent"] < facts["messages"]  # inputs are recorded beside what was sent
    rates = {name: facts["topics"][name]["rate_hz"] for name in ("/clock", "/drone/odom", "/rover/range/front")}
    assert rates == pytest.approx({"/clock": 60.0, "/drone/odom": 30.0, "/rover/range/front": 10.0}, rel=1e-6)
    assert "  60.00 Hz  rosgraph_msgs/msg/Clock" in microsim("bag", "info", tmp_path / "bag").stdout


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
    assert read_state(states[-1]).run_info["scenario"] == "flat"


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
    assert told["ticks"] == 180
    file = tmp_path / "bag" / "microsim_0.mcap"
    file.write_bytes(file.read_bytes()[:-10])
    assert microsim("bag", "info", tmp_path / "bag").exit_code == 1
    done = microsim("bag", "repair", tmp_path / "bag")
    assert done.exit_code == 0
    assert "rewritten: microsim_0.mcap" in done.stdout
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
    from microsim.plotting import PlotError
    from microsim.recording.bag_plot import plot

    record(tmp_path / "bag", ticks=10, topics=("/clock",))
    with pytest.raises(PlotError, match="no odometry"):
        plot(open_bag(tmp_path / "bag"), tmp_path / "x.png")
    with pytest.raises(PlotError, match="ends with"):
        plot(open_bag(tmp_path / "bag"), tmp_path / "x.gif")


@pytest.mark.parametrize(("text", "value"), [("12.5s", "25/2"), ("500ms", "1/2"), ("2min", "120"), ("3", "3")])
def test_times(text: str, value: str) -> None:
    assert simulated_time(text) == Fraction(value)


@pytest.mark.parametrize(("text", "value"), [("500kB", 500_000), ("1.5 MiB", 1_572_864), ("2GB", 2 * 10**9), ("7", 7)])
def test_sizes(text: str, value: int) -> None:
    assert size(text) == value


@pytest.mark.parametrize("text", ["", "s", "-1s", "1e3", "5 parsecs", "nan", "1" * 50])
def test_times_and_sizes_that_make_no_sense(text: str) -> None:
    for parse in (simulated_time, size):
        with pytest.raises(UsageError):
            parse(text)


# ---- what makes no sense is refused before anything is written -------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--history", "0.5s"], "a history spans from 1 s to a day; found 0.5 s"),
        (["--history", "86401s"], "a history spans from 1 s to a day"),
        (["--split-size", "0"], "above 0"),
        (["--topics", "/nope"], "no topic fits"),
    ],
)
def test_a_wrong_wish_leaves_no_folder_behind(tmp_path: Path, arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run(tmp_path / "bag", *arguments)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "value"), [("--storage", "sqlite3"), ("--compress", "zstd"), ("--topics", "/tf"), ("--split-time", "1s")]
)
def test_options_of_a_recording_need_one(option: str, value: str) -> None:
    with pytest.raises(UsageError, match=rf"^{option} is an option of recordings: add --record FOLDER"):
        microsim("run", "flat", "--duration", "0", "--rtf", "0", option, value)


def test_states_of_two_runs_do_not_get_mixed_up(tmp_path: Path) -> None:
    (tmp_path / "bag_states").mkdir()
    (tmp_path / "bag_states" / "tick_000000999.state").touch()
    with pytest.raises(UsageError, match=r"bag_states already exists, .*: move it away"):
        run(tmp_path / "bag", "--history", "2s")
    assert not (tmp_path / "bag").exists()


def test_states_that_cannot_be_written_fail_the_run_but_do_not_hide_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SnapshotError("no room")

    monkeypatch.setattr("microsim.recording.state_file.save_state", full)
    done = run(tmp_path / "bag", "--history", "2s")
    assert done.exit_code == 1
    assert "microsim: no room" in done.output
    assert "flat, seed 12345" in done.output
    assert microsim("replay", tmp_path / "bag", "--verify").exit_code == 0


def test_a_command_line_of_any_bytes_can_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["microsim", "--record", "b\udcffd"])
    record(tmp_path / "bag", ticks=2)
    assert "b\\udcffd" in (tmp_path / "bag" / "recording.json").read_text()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half a second."""
    folder = tmp_path_factory.mktemp("recorded") / "bag"
    record(folder, ticks=30)
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "0.6s"], "the recording ends at 0.500 s, and --from is after that"),
        (["--from", "0.4s", "--at", "0.3s"], "--from is after --at"),
        (["--verify", "--at", "0"], "--verify looks at the whole recording, .*: leave out --at"),
        (["--html", "x.html", "--at", "0"], "--html shows the whole recording: leave out --at"),
        (["--html", "x.html", "--save-state", "x"], "leave out --save-state"),
        (["--open", "--at", "0"], "--view shows the recording: leave out --at"),
    ],
)
def test_a_replay_that_makes_no_sense_is_refused(recorded: Path, arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        microsim("replay", recorded, *arguments)


def test_whoever_looks_beyond_the_end_of_a_recording_is_told(recorded: Path) -> None:
    done = microsim("replay", recorded, "--at", "1s")
    assert done.exit_code == 0
    assert "the recording ends at 0.500 s: after that, robots get no commands" in done.output
    assert "get no commands" not in microsim("replay", recorded, "--at", "0.5s").output


def test_a_token_goes_with_nothing_that_a_bag_has(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave out --from"):
        microsim("replay", "--token", "x", "--from", "0")
