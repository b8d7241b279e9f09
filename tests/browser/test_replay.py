"""A recording on the page and as a file: any moment of it can be looked at."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import microsim
from microsim.parts.missions.demo_pilot import DemoPilot
from microsim.recording.recorder import Recorder
from microsim.runner import Runner
from tests.browser_support import PROBES, SLOW_SCREEN, SMALL, WORLD, Run, Tab
from tests.cli_support import run_microsim

TICKS = 12 * 60


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bags") / "flight"
    sim = microsim.Simulation(WORLD)
    runner = Runner(sim, 0.0, DemoPilot(sim))
    with Recorder(folder, sim) as recorder:
        recorder.attach(runner)
        runner.run(TICKS)
    return folder


@pytest.fixture(scope="module")
def digests() -> dict[int, str]:
    """Of the run that was recorded, by tick."""
    sim = microsim.Simulation(WORLD)
    found: dict[int, str] = {}
    runner = Runner(sim, 0.0, DemoPilot(sim))
    runner.listen(messages=lambda messages: found.__setitem__(sim.tick, sim.digest()))
    runner.run(TICKS)
    return found


@pytest.fixture(scope="module")
def tab(browser: Any, bag: Path, started_once: Callable[..., Run]) -> Iterator[Tab]:
    opened = Tab(browser, started_once("replay", str(bag), "--view").address)
    yield opened
    opened.close()


def scrub(tab: Tab, tick: int) -> None:
    tab.page.evaluate(
        """(tick) => { const slider = document.getElementById('ms-scrub'); slider.value = tick;
        for (const kind of ['input', 'change']) slider.dispatchEvent(new Event(kind)); }""",
        tick,
    )
    tab.until_tick(tick)


def test_every_moment_that_is_scrubbed_to_is_the_recorded_one(tab: Tab, digests: dict[int, str]) -> None:
    tab.click("play")
    for tick in (700, 30, 431, 0, TICKS, 61):
        scrub(tab, tick)
        assert tab.text("digest") == digests[tick]


def test_a_recording_is_stepped_and_played_but_not_beyond_its_end(tab: Tab, digests: dict[int, str]) -> None:
    scrub(tab, 100)
    tab.click("step-1")
    tab.until_tick(101)
    assert tab.text("digest") == digests[101]
    scrub(tab, TICKS - 40)
    tab.click("step-60")
    tab.until_tick(TICKS)
    assert tab.text("digest") == digests[TICKS]
    tab.click("play")  # from the start again
    tab.until("Number(document.getElementById('ms-tick').textContent.replace(/,/g, '')) < 600")


def test_a_recording_as_a_file_plays_without_a_server(browser: Any, bag: Path, tmp_path: Path) -> None:
    path = tmp_path / "flight.html"
    assert run_microsim("replay", str(bag), "--html", str(path)).returncode == 0
    assert path.stat().st_size < 1_300_000
    context = browser.new_context(viewport=SMALL, offline=True)
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: requests.append(request.url))
    page.add_init_script(SLOW_SCREEN)
    page.goto(path.as_uri())
    page.wait_for_function("document.querySelector('#ms-card')?.innerText.includes('playground')", timeout=60_000)
    page.wait_for_selector(".mantine-Slider-root", timeout=60_000)  # the time slider
    shown = "[...document.querySelectorAll('.plot')].filter((each) => each.offsetHeight).length"
    page.wait_for_function(f"{shown} >= 4", timeout=60_000)  # height, speed, latency, losses
    page.select_option("#ms-add-plot", "imu:linear_acceleration.z")
    page.wait_for_function("document.querySelector('canvas[data-plot=\"imu:linear_acceleration.z\"]').offsetHeight")
    page.evaluate(f"{PROBES}.press('speed', 0.6)")
    page.wait_for_function(
        "Number(document.querySelector('#root .mantine-Slider-thumb').ariaValueNow) > 4", timeout=60_000
    )
    cursor, scene = (
        "Number(document.getElementById('ms-card').dataset.at)",
        "document.querySelector('#root input').value",
    )
    page.wait_for_function(f"{cursor} > 4 && {cursor} < 9 && Math.abs({cursor} - {scene}) < 0.1", timeout=60_000)
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert complaints == []
    context.close()


def test_facts_of_a_bag_cannot_break_out_of_the_page(bag: Path) -> None:
    from microsim.parts.view.web.export import ExportedRun, _page

    sim = microsim.Simulation(WORLD)
    empty = '<html><head><meta charset="utf-8" /><title>Viser</title></head>'
    page = _page(empty, ExportedRun("</script><b>", 1, "<i>", ""), sim, {"</script><u>": "red"})
    assert "__THREE_DEVTOOLS__" in page  # as on the page of a run: splats without an error in the console
    assert "</script><b>" not in page
    assert "</script><u>" not in page
    assert "<i>" not in page
    found = re.search(r"MICROSIM_RUN=(.*?);</script>", page)
    assert found is not None
    assert json.loads(found[1])["words"][0] == "</script><b>"
