"""The page's server against whoever means no good, without a browser: the run hears nothing of it."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

import pytest
import viser
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

import microsim
from microsim.parts.view.web import Viewer
from microsim.parts.view.web.controls import Controls, RewindBuffer, RunControls
from microsim.parts.view.web.interface import Control, FrameCollector, PageOptions, PageTrouble
from microsim.parts.view.web.page import ViewerPage, access
from microsim.runner import Runner
from tests.browser_support import front_door, open_panels

BARE: dict[str, Any] = {
    "map": {"size_xy_cells": [20, 20]},
    "robots": {"drone": {"camera": None, "start": {"map_pose": {"x": 5, "y": 5, "z": 2}}}, "rover": {}},
}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[ViewerPage, Connection]]:
    ours, theirs = Pipe()
    page = ViewerPage(theirs, PageOptions(port=0))
    yield page, ours
    page.server.stop()


def heard(run: Connection) -> list[Control]:
    found = []
    while run.poll(0.3 if found else 20.0):
        found.append(run.recv())
    return [each for each in found if each.kind != "watched"]  # the first page has opened


def raw(page: ViewerPage, request: bytes) -> bytes:
    """What is answered to that."""
    with socket.create_connection(("127.0.0.1", page.server.get_port()), timeout=60) as wire:
        wire.sendall(request)
        answer = b""
        with suppress(ConnectionResetError):
            while part := wire.recv(65536):
                answer += part
    return answer


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/p/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/p/x/..%2f..%2fetc/passwd",
        "/index.html",
        "/p//",
        "/p/x/assets/index.js",
        "http://127.0.0.1/etc/passwd",
    ],
)
def test_no_path_leads_to_a_file(served: tuple[ViewerPage, Connection], path: str) -> None:
    page, _ = served
    answer = raw(page, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"404", b"303")
    assert b"root:" not in answer
    assert len(answer) < 400


@pytest.mark.parametrize(
    "request_",
    [
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
        b"\x00\x01\x02" * 100 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 2000 + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["another method", "noise", "many headers", "a long path"],
)
def test_what_is_no_request_of_a_page_gets_no_page(served: tuple[ViewerPage, Connection], request_: bytes) -> None:
    page, _ = served
    answer = raw(page, request_)
    assert not answer.startswith(b"HTTP/1.1 2")
    assert front_door(page.address)[0] == 303


def test_an_address_of_an_older_run_leads_to_a_page_of_this_one(served: tuple[ViewerPage, Connection]) -> None:
    """The scene's own socket is in the address of an open page: kept, it would lead to the run that is gone."""
    page, _ = served
    status, place = front_door(f"{page.address}?light=&websocket=ws://127.0.0.1:1/p/old")
    assert (status, place.endswith("/?light=")) == (303, True)
    assert front_door(f"{page.address}p/old/?light=") == (303, "/")


def test_a_huge_message_cuts_off_its_sender_only(served: tuple[ViewerPage, Connection]) -> None:
    page, run = served
    with open_panels(page.address) as good, open_panels(page.address) as bad:
        with suppress(ConnectionClosed):
            bad.send(json.dumps({"kind": "load", "value": "x" * 200_000}))
        with pytest.raises(ConnectionClosed):
            bad.recv(timeout=60)
        good.send('{"kind": "pause", "value": true}')
        assert heard(run) == [Control("pause", True)]


def test_what_no_page_of_ours_sends_never_reaches_the_run(served: tuple[ViewerPage, Connection]) -> None:
    page, run = served
    with open_panels(page.address) as socket_:
        for text in (
            "[" * 30_000,
            '{"kind": ' * 6000,
            '{"kind": "quit"}',
            '{"kind": ["pause"]}',
            '{"kind": 7}',
            b"\xff\xfe",
        ):
            socket_.send(text)
        socket_.send('{"kind": "branch"}')
        assert heard(run) == [Control("branch", None)]


def test_a_flood_from_one_page_is_cut_off_and_others_are_heard(served: tuple[ViewerPage, Connection]) -> None:
    page, run = served
    with open_panels(page.address) as loud, open_panels(page.address) as calm:
        began = time.monotonic()
        with suppress(ConnectionClosed):
            for number in range(20_000):
                loud.send(f'{{"kind": "seek", "value": {number}}}')
            loud.recv(timeout=60)
        calm.send('{"kind": "pause", "value": true}')
        found = heard(run)
        took = time.monotonic() - began
    assert found[-1] == Control("pause", True)
    assert loud.close_code == 1008
    assert len(found) <= 121 * (1 + int(took))


def test_only_so_many_may_be_connected_at_once(
    served: tuple[ViewerPage, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    page, _ = served
    monkeypatch.setattr(access, "_MOST_SOCKETS", 3)
    with ExitStack() as stack:
        until(lambda: _can_open(page, stack), True)
        until(lambda: _can_open(page, stack), False)
    until(lambda: _can_open(page, ExitStack()), True)  # when they have gone, others may


def _can_open(page: ViewerPage, stack: ExitStack) -> bool:
    try:
        stack.enter_context(open_panels(page.address))
    except InvalidStatus as refused:
        return refused.response.status_code != 503
    return True


def until(question: Callable[[], bool], wanted: bool) -> None:
    end = time.monotonic() + 60.0
    while question() is not wanted:
        assert time.monotonic() < end
        time.sleep(0.05)  # a connection's end has no event on our side


def test_noise_on_the_way_to_the_scene_harms_nobody(
    served: tuple[ViewerPage, Connection], caplog: pytest.LogCaptureFixture
) -> None:
    page, run = served
    parts = urlsplit(page.address)
    site = f"{parts.hostname}:{parts.port}"
    _, place = front_door(page.address)
    version = Subprotocol(f"viser-v{viser.__version__}")
    for noise in (b"\xc1" * 1000, b"", b"\x80", "a text"):
        with (
            suppress(ConnectionClosed),
            connect(f"ws://{site}{place}", origin=f"http://{site}", subprotocols=[version], open_timeout=60) as bad,
        ):
            bad.send(noise)
            bad.send(noise)
            bad.ping().wait(1)
    with open_panels(page.address) as good:
        good.send('{"kind": "branch"}')
        assert heard(run) == [Control("branch", None)]
    assert "connection handler failed" not in caplog.text  # nothing is printed in the run's terminal


def test_fifty_pages_half_of_them_deaf_all_see_the_newest(served: tuple[ViewerPage, Connection]) -> None:
    page, run = served
    runner = Runner(microsim.Simulation(BARE), 0.0)
    collector = FrameCollector(runner)
    runner.listen(messages=collector.on_messages)
    with ExitStack() as stack:
        run.send(collector.scene())
        page._take()
        pages = [stack.enter_context(open_panels(page.address)) for _ in range(50)]
        slowest = 0.0
        for _ in range(30):
            runner.step(6)
            run.send(collector.frame())
            began = time.monotonic()
            page._take()
            slowest = max(slowest, time.monotonic() - began)
        for reader in pages[::2]:
            while json.loads(reader.recv(timeout=60)).get("tick") != 180:
                pass
    assert slowest < 10.0  # nobody is waited for; a busy machine takes its time


def test_what_cannot_be_drawn_is_reported_and_drawing_continues(
    served: tuple[ViewerPage, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    page, run = served
    runner = Runner(microsim.Simulation(BARE), 0.0)
    collector = FrameCollector(runner)
    runner.listen(messages=collector.on_messages)
    run.send(collector.scene())
    page._take()
    stage, calls = page._stage, []
    draw = stage.draw

    def fails_once(frame: Any) -> None:
        calls.append(frame)
        if len(calls) == 1:
            raise OSError("no memory")
        draw(frame)
        run.send(None)  # the end

    monkeypatch.setattr(stage, "draw", fails_once)
    monkeypatch.setattr(page, "_is_over", False)
    runner.step(6)
    run.send(collector.frame())
    page.run()
    sent = []
    while run.poll():
        sent.append(run.recv())
    (trouble,) = [each for each in sent if isinstance(each, PageTrouble)]
    assert trouble.text.startswith("OSError: no memory (test_page_server.py, line ")
    assert len(calls) == 2


def test_a_page_whose_process_ended_is_reported_and_the_run_continues() -> None:
    runner = Runner(microsim.Simulation(BARE), 0.0)
    heard_of: list[str] = []
    runner.listen(warnings=heard_of.append)
    with Viewer(runner, PageOptions(port=0)) as viewer:
        viewer._page._process.kill()

        def is_reported() -> bool:
            runner.step(1)
            for watcher in runner.watchers:
                watcher.look()
            return bool(heard_of)

        until(is_reported, True)
    assert heard_of == ["the page is gone, the run continues: the process ended by SIGKILL"]


def test_many_wishes_to_seek_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(microsim.Simulation(BARE), 0.0)
    collector = FrameCollector(runner)
    collector.scene()
    rewind = RewindBuffer(runner, collector)
    runner.listen(messages=collector.on_messages)
    runner.listen(messages=rewind.on_messages)
    runner.publish(runner.sim.step(0))
    runner.step(50)
    asked: list[int] = []
    seek = rewind.seek
    monkeypatch.setattr(rewind, "seek", lambda tick: (asked.append(tick), seek(tick))[1])
    controls = Controls(runner, collector, RunControls(), rewind)
    controls.take([Control("seek", tick) for tick in range(40)])
    assert asked == [39]
    assert controls.shown is not None
    assert controls.shown.tick == 39


def test_a_page_cannot_drive_what_takes_no_commands() -> None:
    walker = {"model": "actor", "path": [[0, 5, 5], [9, 9, 5]]}
    runner = Runner(microsim.Simulation({**BARE, "robots": {"walker": walker}}), 0.0)
    collector = FrameCollector(runner)
    controls = Controls(runner, collector, RunControls(), RewindBuffer(runner, collector))
    controls.take([Control("drive", ("walker", {}))])
    assert collector.driven == ""
    assert not runner.sim.waiting
