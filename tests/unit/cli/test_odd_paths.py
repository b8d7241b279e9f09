"""`.`, `..`, `/` and nothing as the file or folder of an option: used, or refused with a sentence."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from microsim import Simulation
from microsim.cli import app
from microsim.errors import MicroSimError
from microsim.recording.recorder import Recorder
from tests.recording_support import record

ODD = (".", "..", "/", "")
SHORT = ("run", "flat", "--duration", "0.1", "--rtf", "0", "--transport", "none")


def microsim(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.fixture
def bag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is an empty one beside a bag."""
    folder = tmp_path / "here"
    folder.mkdir()
    record(tmp_path / "bag", ticks=6)
    monkeypatch.chdir(folder)
    return tmp_path / "bag"


def test_the_current_folder_can_be_recorded_into(tmp_path: Path, bag: Path) -> None:
    assert microsim(*SHORT, "--record", ".", "--history", "1s").exit_code == 0
    assert (tmp_path / "here" / "metadata.yaml").exists()
    assert list((tmp_path / "here_states").glob("*.state"))


def test_the_next_run_of_a_recording_is_beside_the_current_folder(tmp_path: Path, bag: Path) -> None:
    sim = Simulation("flat")
    with Recorder(".", sim):
        sim.step()
        sim.reset()
        sim.step()
    assert (tmp_path / "here_run2" / "metadata.yaml").exists()


def test_a_recording_is_plotted_from_inside_its_folder(
    tmp_path: Path, bag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bag)
    assert microsim("plot", ".").exit_code == 0
    assert (tmp_path / "bag.png").exists()


@pytest.mark.parametrize("path", ODD)
@pytest.mark.parametrize(
    "command",
    [
        (*SHORT, "--record"),
        (*SHORT, "--history", "1s", "--record"),
        (*SHORT, "--telemetry"),
        ("run", "--mission", "waypoints", "--duration", "0.1", "--rtf", "0", "--junit"),
        ("replay", "../bag", "--at", "0.05", "--save-state"),
        ("replay", "../bag", "--record"),
        ("plot", "../bag", "--output"),
        ("plot",),
        ("bag", "info"),
        ("bag", "repair"),
        ("picture", "flat", "--out"),
        ("bundle", "new"),
        ("bundle", "info"),
        ("bundle", "pack", "minimal_test", "--output"),
        ("bundle", "unpack", "../bag/metadata.yaml"),
        ("validate",),
    ],
    ids=" ".join,
)
def test_an_odd_path_is_never_a_traceback(command: tuple[str, ...], path: str, bag: Path) -> None:
    with suppress(MicroSimError):  # which `main` prints as a sentence
        assert microsim(*command, path).exit_code in (0, 1, 2)
