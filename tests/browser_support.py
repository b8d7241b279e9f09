"""A page of a run as tests see it, and runs with a page."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from websockets.sync.client import connect

from tests.forked_python import forked_python

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")
SMALL = {"width": 480, "height": 360}  # software draws it in a tenth of a second
# A screen that asks for four pictures a second: as many as software can draw would keep a core busy all the time.
SLOW_SCREEN = """{ const next = window.requestAnimationFrame;
window.requestAnimationFrame = (draw) => setTimeout(() => next(draw), 250);
window.cancelAnimationFrame = clearTimeout; }"""
PATIENCE_MS = 120_000  # on a busy machine
NOT_OURS = ("THREE.Clock: This module has been deprecated", "[.WebGL-")  # warnings: viser's, and the driver's
PROBES = (ROOT / "tests" / "browser" / "probes.js").read_text().strip().rstrip(";").partition("\n")[2]

WORLD = {
    "name": "playground",
    "seed": 5,
    "map": {"size_xy_cells": [30, 30]},
    "obstacles": [{"type": "box", "center": [22, 10, 0], "size": [2, 4, 2]}],
    "robots": {
        "drone": {"start": {"map_pose": {"x": 10, "y": 10, "z": 5}}, "camera": {"hz": 5}},
        "rover": {"start": {"map_pose": {"x": 8, "y": 10, "yaw": 0}}},
    },
}


class Tab:
    """A page of a run. Remembers every request and every complaint."""

    def __init__(
        self, browser: Any, address: str, size: dict[str, int] = SMALL, query: str = "", script: str = ""
    ) -> None:
        self.context = browser.new_context(viewport=size)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("websocket", lambda socket: self.requests.append(socket.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._on_console)
        self.page.add_init_script(SLOW_SCREEN + script)
        self.page.goto(address + query)
        self.until("Number(document.getElementById('ms-tick').textContent.replace(',', '')) >= 0")

    def _on_console(self, message: Any) -> None:
        if message.type == "error" or (message.type == "warning" and not message.text.startswith(NOT_OURS)):
            self.complaints.append(message.text)

    def until(self, condition: str) -> None:
        self.page.wait_for_function(condition, polling=50)

    def text(self, name: str) -> str:
        return str(self.page.evaluate(f"document.getElementById('ms-{name}').textContent"))

    def click(self, name: str) -> None:
        """At once: waiting for a still picture, as playwright does, takes long in software."""
        self.page.evaluate(f"document.getElementById('ms-{name}').click()")

    @property
    def tick(self) -> int:
        return int(self.text("tick").replace(",", ""))

    def until_tick(self, tick: int) -> None:
        self.until(f"Number(document.getElementById('ms-tick').textContent.replace(/,/g, '')) === {tick}")

    def until_status(self, word: str) -> None:
        self.until(f"document.getElementById('ms-pill').textContent === {word!r}")

    def robot(self, name: str) -> list[float]:
        """x, y, height, speed."""
        self.until_robot(name, "speed !== undefined")
        words = self.page.evaluate(f"document.querySelector('[data-row={name}]').innerText")
        return [float(number) for number in re.findall(r"-?\d+\.\d+", words)][:4]

    def until_robot(self, name: str, condition: str) -> None:
        """`condition` is JavaScript over x, y, up, speed."""
        words = f"(document.querySelector('[data-row={name}]')?.innerText ?? '')"  # empty until its first message
        self.until(f"(([x, y, up, speed]) => {condition})(({words}.match(/-?\\d+\\.\\d+/g) ?? []).map(Number))")

    def strangers(self) -> list[str]:
        """Requests that went anywhere but to this machine."""
        inside = ("127.0.0.1", "localhost")
        return [
            url
            for url in self.requests
            if urlsplit(url).scheme not in ("data", "blob", "file") and urlsplit(url).hostname not in inside
        ]

    def close(self) -> None:
        self.context.close()
        assert self.strangers() == []
        assert self.complaints == [], self.complaints


class Run:
    """`microsim …` with a page, in a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.errors = folder / "stderr.txt"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*forked_python(), "-m", "microsim", *arguments, "--view-port", "0"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                cwd=folder,
            )
        self.address = self._address()

    def _address(self) -> str:
        for _ in range(3600):  # kernels may have to be compiled first
            found = re.search(r"the page is at (\S+)", self.errors.read_text())
            if found:
                return found[1]
            assert self.process.poll() is None, self.errors.read_text()
            time.sleep(0.05)  # there is no event for a line in a file
        raise AssertionError(self.errors.read_text())

    def output(self, timeout_s: float = 120.0) -> str:
        """Of a run that ends by itself."""
        text, _ = self.process.communicate(timeout=timeout_s)
        assert self.process.returncode == 0, self.errors.read_text()
        return text

    def stop(self) -> str:
        died = self.process.poll()
        if died is None:
            self.process.terminate()
        text, _ = self.process.communicate(timeout=120)
        errors = self.errors.read_text()
        assert not died, f"the run ended with {died} by itself:\n{errors}"
        assert "the page is gone" not in errors, errors
        assert "could not draw" not in errors, errors
        return text


class Unmoved(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def front_door(address: str, **headers: str) -> tuple[int, str]:
    """Status and where it leads."""
    try:
        with build_opener(Unmoved).open(Request(address, headers=headers), timeout=120) as answer:
            return answer.status, ""
    except HTTPError as answer:
        return answer.code, answer.headers.get("Location", "")


def open_panels(address: str, origin: str | None = None) -> Any:
    parts = urlsplit(address)
    status, page = front_door(address)
    assert status == 303
    site = f"{parts.hostname}:{parts.port}"
    return connect(
        f"ws://{site}{page}panels",
        origin=origin or f"http://{site}",
        open_timeout=120,
        close_timeout=0.2,
        ping_interval=None,
    )
