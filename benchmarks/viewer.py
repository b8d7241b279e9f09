"""What pages cost a run: its real-time factor at real time with three pages open, and what making a frame takes.

Real pages where there is a chromium; it draws in software here, so three of them want more than a machine has.
"""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.harness import Result

SECONDS = 12.0
PAGES = 3
ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]


def measure() -> list[Result]:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    chromium = shutil.which("chromium")
    results = [Result("making a frame for the page", _frame_us(), "µs", 500.0, at_most=True)]
    if chromium is not None:
        rtf = _rtf_with_pages(chromium)
        results.append(
            Result(f"real-time factor with {PAGES} pages open", rtf, "× real time", 0.98, peer="chromium, in software")
        )
    return results


def _demo() -> Any:
    from microsim.parts.missions.demo_pilot import DemoPilot
    from microsim.runner import Runner
    from microsim.simulation import Simulation

    sim = Simulation("showcase")
    sim.step(60)
    sim.reset()
    return Runner(sim, 1.0, DemoPilot(sim))


def _frame_us() -> float:
    from microsim.parts.view.web.interface import FrameCollector

    runner = _demo()
    collector = FrameCollector(runner)
    collector.scene()
    runner.listen(messages=collector.on_messages)
    times = []
    for _ in range(300):
        runner.publish(runner.sim.step(2))
        start = time.perf_counter()
        collector.frame()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def _rtf_with_pages(chromium: str) -> float:
    from playwright.sync_api import sync_playwright

    from microsim.parts.view.web import PageOptions, Viewer

    runner = _demo()
    with ExitStack() as stack:
        viewer = stack.enter_context(Viewer(runner, PageOptions(port=0)))
        thread = threading.Thread(target=runner.run, daemon=True)
        thread.start()
        stack.callback(thread.join, 10)
        stack.callback(runner.stop)
        browser = stack.enter_context(sync_playwright()).chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for _ in range(PAGES):
            page = browser.new_page(viewport={"width": 640, "height": 480})
            page.goto(viewer.address)
            page.wait_for_function("Number(document.getElementById('ms-time').textContent) > 0", timeout=60_000)
        is_over, wall, sim = threading.Event(), time.perf_counter(), runner.sim_s
        runner.listen(messages=lambda _: is_over.set() if runner.sim_s >= sim + SECONDS else None)
        is_over.wait(10 * SECONDS)
        rtf = (runner.sim_s - sim) / (time.perf_counter() - wall)
        browser.close()
    return rtf
