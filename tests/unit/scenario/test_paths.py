"""Shipped data is found from a checkout and from wherever a package is installed."""

import sys
from pathlib import Path

import pytest

from microsim import paths
from microsim.errors import MicroSimError


@pytest.fixture(autouse=True)
def _forget() -> None:
    paths.data_folder.cache_clear()


def installed(monkeypatch: pytest.MonkeyPatch, module: Path, scenarios: Path) -> None:
    """As if paths.py were at `module`, and the shipped scenarios at `scenarios`."""
    module.parent.mkdir(parents=True)
    scenarios.mkdir(parents=True)
    monkeypatch.setattr(paths, "__file__", str(module))
    monkeypatch.setattr(sys, "prefix", str(module.parent))


def test_in_a_checkout_the_data_is_at_its_root() -> None:
    assert paths.data_folder() == Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("module", "data"),
    [
        ("venv/lib/python3.11/site-packages/microsim/paths.py", "venv/share/microsim"),
        ("ws/install/microsim/lib/python3.10/site-packages/microsim/paths.py", "ws/install/microsim/share/microsim"),
        ("target/microsim/paths.py", "target/share/microsim"),
    ],
    ids=["pip", "colcon", "pip --target"],
)
def test_an_installed_package_finds_the_share_folder_beside_it(
    module: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, tmp_path / module, tmp_path / data / "scenarios")
    assert paths.data_folder() == tmp_path / data


def test_the_ament_prefix_path_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, tmp_path / "a/microsim/paths.py", tmp_path / "b/share/microsim/scenarios")
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path / 'none'}:{tmp_path / 'b'}")
    assert paths.data_folder() == tmp_path / "b/share/microsim"


def test_without_data_the_error_lists_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, tmp_path / "a/microsim/paths.py", tmp_path / "elsewhere")
    monkeypatch.delenv("AMENT_PREFIX_PATH", raising=False)
    with pytest.raises(MicroSimError, match="share/microsim"):
        paths.data_folder()


def test_the_shipped_scenarios_are_listed_by_name() -> None:
    assert paths.scenario_names() == ["default", "flat", "maze", "obstacles_arena", "showcase"]
    assert all(paths.scenario_file(name).is_file() for name in paths.scenario_names())
