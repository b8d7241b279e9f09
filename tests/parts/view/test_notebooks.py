"""Notebooks: those of the documentation run, and scenarios, runs and batches show themselves."""

import base64
import io
import re
import urllib.request
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from PIL import Image

import microsim
from microsim.parts.view.live_view import LiveView

NOTEBOOKS = sorted((Path(__file__).resolve().parents[3] / "docs" / "learn/notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("data:image/png" in output.get("data", {}).get("text/html", "") for output in outputs)


def picture_in(html: str) -> np.ndarray[Any, Any]:
    found = re.search(r'src="data:image/png;base64,([^"]+)"', html)
    assert found is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGB"))


def test_scenarios_runs_and_batches_show_a_map_and_their_robots() -> None:
    scenario = microsim.load_scenario({"name": "a <b>", "robots": {"rover": {}, "drone": {"camera": None}}})
    sim = microsim.Simulation(scenario, seed=3)
    batch = microsim.BatchSimulation(scenario, n=5, sensors=["rover/range"])
    assert repr(scenario).startswith("<Scenario 'a <b>', seed 12345: rover (odom, gps, imu, ")
    assert repr(batch) == "<BatchSimulation 'a <b>', 5 worlds on cpu: rover, drone; rover/range>"
    for each in (scenario, sim, batch):
        html = each._repr_html_()
        assert "a &lt;b&gt;" in html
        assert "rover" in html
        assert len(np.unique(picture_in(html).reshape(-1, 3), axis=0)) > 3


def test_the_picture_follows_the_robots() -> None:
    sim = microsim.Simulation({"robots": {"rover": {"start": {"map_pose": {"x": 10, "y": 50}}}}})
    before = picture_in(sim._repr_html_())
    sim.set_pose("rover", 12.0, 50.0)
    sim.step(1)
    assert not np.array_equal(before, picture_in(sim._repr_html_()))


def test_a_view_follows_steps_and_runs_with_its_page() -> None:
    sim = microsim.Simulation({"robots": {"rover": {"camera": None}}}, seed=1)
    twin = sim.fork()
    with sim.show(block=False, open_browser=False, port=0) as view:
        assert isinstance(view, LiveView)
        with urllib.request.urlopen(view.address, timeout=30) as page:
            assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert view.address in view._repr_html_()
        sim.step(60)
        assert view.runner.messages > 0
        view.run(seconds=1.0, rtf=0.0)
        assert sim.tick == 120
        view._reset(None)
        assert sim.tick == 0
        sim.step(30)
    twin.step(30)
    assert sim.digest() == twin.digest()
    with pytest.raises(microsim.UsageError, match="closed"):
        view.run()


def test_a_page_for_a_notebook_may_be_framed_on_this_machine_only() -> None:
    with (
        LiveView(microsim.Simulation({"robots": {}}), port=0, is_framed=True) as view,
        urllib.request.urlopen(view.address, timeout=30) as page,
    ):
        policy = page.headers["Content-Security-Policy"]
    assert "frame-ancestors http://localhost:* http://127.0.0.1:* vscode-webview:;" in policy
