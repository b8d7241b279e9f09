"""The page in a real browser: what it shows, what its buttons and keys do, and what it must never do."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import microsim
from microsim.parts.missions.demo_pilot import DemoPilot
from microsim.parts.view.web import PageOptions, Viewer, ViewerError
from microsim.parts.view.web.page import ViewerPage
from microsim.recording.bag_io import open_bag
from microsim.recording.bag_replay import Replay
from microsim.runner import Runner
from tests.browser_support import PROBES, ROOT, SMALL, WORLD, Run, Tab, front_door, open_panels


@pytest.fixture(scope="module")
def run(world: Path, started_once: Callable[..., Run]) -> Run:
    return started_once("run", str(world), "--view", "--transport", "none")


@pytest.fixture(scope="module")
def tab(browser: Any, run: Run) -> Iterator[Tab]:
    opened = Tab(browser, run.address)
    yield opened
    opened.close()  # here too: nothing was fetched from elsewhere, and nothing complained about


def paused(tab: Tab) -> int:
    if tab.text("pill") != "Paused":
        tab.click("play")
        tab.until_status("Paused")
    return tab.tick


def test_pause_stops_time_and_play_lets_it_go_on(tab: Tab) -> None:
    at = paused(tab)
    tab.page.wait_for_timeout(300)
    assert tab.tick == at
    tab.click("play")
    tab.until(f"Number(document.getElementById('ms-tick').textContent.replace(/,/g, '')) > {at + 5}")


@pytest.mark.parametrize("ticks", [1, 10, 60])
def test_a_step_advances_by_exactly_its_ticks(tab: Tab, ticks: int) -> None:
    at = paused(tab)
    tab.click(f"step-{ticks}")
    tab.until_tick(at + ticks)
    tab.page.wait_for_timeout(150)
    assert tab.tick == at + ticks


def test_a_reset_with_a_seed_gives_the_run_of_that_seed(tab: Tab) -> None:
    paused(tab)
    tab.page.evaluate("document.getElementById('ms-seed').value = '77'")
    tab.click("reset")
    tab.until_tick(0)
    assert tab.text("seed-now") == "77"
    tab.click("step-60")
    tab.until_tick(60)
    sim = microsim.Simulation(WORLD, seed=77)
    sim.step(60)
    assert tab.text("digest") == sim.digest()


def test_the_keyboard_drives_the_rover_and_letting_go_stops_it(tab: Tab) -> None:
    paused(tab)
    tab.click("reset")
    tab.until_tick(0)
    tab.click("play")
    start = tab.robot("rover")
    tab.page.keyboard.down("i")
    tab.until_robot("rover", f"speed > 0.5 && x > {start[0]} + 0.3")
    tab.page.keyboard.up("i")
    tab.until_robot("rover", "speed === 0")
    tab.page.keyboard.down("j")  # turns on the spot
    tab.page.wait_for_timeout(400)
    tab.page.keyboard.press("Space")
    tab.page.keyboard.up("j")
    assert tab.robot("rover")[3] == 0.0


def test_a_button_held_flies_the_drone_and_a_frozen_page_lets_it_hover(tab: Tab) -> None:
    tab.page.evaluate("document.querySelector('[data-robot=drone]').click()")
    paused(tab)
    tab.click("play")
    before = tab.robot("drone")[2]
    tab.page.evaluate("""const up = document.querySelector('[data-key=KeyY]');
        up.setPointerCapture = () => {};
        up.dispatchEvent(new PointerEvent('pointerdown', {pointerId: 1, bubbles: true}))""")
    tab.until_robot("drone", f"up > {before} + 0.3")
    tab.page.evaluate(
        "{ const end = Date.now() + 900; while (Date.now() < end); }"
    )  # as a suspended page: no heartbeat
    tab.page.evaluate("document.querySelector('[data-key=KeyY]').dispatchEvent(new PointerEvent('pointerup'))")
    tab.until_robot("drone", "speed < 0.05")


def scrub(tab: Tab, tick: int) -> None:
    tab.page.evaluate(
        """(tick) => { const slider = document.getElementById('ms-scrub'); slider.value = tick;
        for (const kind of ['input', 'change']) slider.dispatchEvent(new Event(kind)); }""",
        tick,
    )


def test_looking_back_changes_nothing_and_a_branch_goes_on_from_there(tab: Tab) -> None:
    paused(tab)
    tab.click("reset")
    tab.until_tick(0)
    for count in range(1, 4):
        tab.click("step-60")
        tab.until_tick(60 * count)
    newest = tab.text("digest")
    scrub(tab, 70)
    tab.until_status("Looking back")
    tab.until_tick(70)  # exactly
    sim = microsim.Simulation(WORLD, seed=int(tab.text("seed-now")))
    sim.step(70)
    assert tab.text("digest") == sim.digest()
    tab.click("back-1")
    tab.until_tick(69)
    tab.page.keyboard.press("Period")
    tab.until_tick(70)
    scrub(tab, 180)  # the newest: nothing has happened
    tab.until_status("Paused")
    assert (tab.tick, tab.text("digest")) == (180, newest)
    scrub(tab, 70)
    tab.until_status("Looking back")
    tab.click("branch")
    tab.until_status("Paused")
    assert (tab.tick, tab.text("digest")) == (70, sim.digest())
    tab.click("step-10")
    tab.until_tick(80)
    sim.step(10)
    assert tab.text("digest") == sim.digest()
    tab.until("document.getElementById('ms-lines').innerText.includes('branched at tick 70')")


def test_the_log_tells_every_warning_and_counts_repeats(tab: Tab, run: Run) -> None:
    with open_panels(run.address) as hand:
        for _ in range(3):
            hand.send('{"kind": "speed", "value": -1}')
    tab.until("/real-time factor must be .*; found -1\\s*×3/.test(document.getElementById('ms-lines').innerText)")
    assert "warning" in tab.text("log-count")


FALLS_SILENT = """
import threading
import microsim
with microsim.connect("controller") as node:
    commands = node.publisher("/rover/cmd_vel", "geometry_msgs/msg/Twist")
    def reply(message):
        if message.header.stamp.sec < 1:
            commands.publish({"linear": {"x": 0.2}})
    node.subscribe("/rover/odom", reply, type="nav_msgs/msg/Odometry")
    threading.Event().wait()
"""


def test_a_run_that_waits_for_a_node_says_so(browser: Any, started: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "node.py").write_text(FALLS_SILENT)
    gate = ("--lockstep", "after: /rover/odom, expect: /rover/cmd_vel")
    node = ("--with", f"{sys.executable} {tmp_path / 'node.py'}")
    run = started("run", "flat", "--robots", "rover", "--view", "--transport", "dds", *gate, *node)
    tab = Tab(browser, run.address)
    told = "no reply from /controller, which was sent /rover/odom at 1.000 s"
    tab.until(f"document.getElementById('ms-lines').innerText.includes({told!r})")
    assert tab.tick == 60
    tab.close()


def test_every_text_is_readable_in_light_and_dark(tab: Tab) -> None:
    paused(tab)
    for theme in ("light", "dark"):
        tab.page.evaluate(f"document.documentElement.dataset.theme = {theme!r}")
        tab.page.wait_for_timeout(200)  # of fading
        assert tab.page.evaluate(f"{PROBES}.pale()") == []


SCREENS = {"phone": (390, 844), "tablet": (820, 1180), "laptop": (1280, 720)}


@pytest.mark.parametrize("screen", list(SCREENS))
def test_everything_fits_on(tab: Tab, screen: str) -> None:
    """No control is cut off at the sides or lies on another, and the scene has its place."""
    width, height = SCREENS[screen]
    paused(tab)
    tab.page.set_viewport_size({"width": width, "height": height})
    try:
        box = "document.getElementById('root').getBoundingClientRect()"
        tab.until(f"innerWidth === {width} && {box}.right <= {width} && {box}.bottom <= {height}")
        tab.until(f"{box}.width >= {min(width, 550)} && {box}.height >= {0.35 * height}")
        assert tab.page.evaluate(f"{PROBES}.outside()") == []
        assert tab.page.evaluate(f"{PROBES}.overlapping()") == []
        assert tab.page.evaluate(f"{PROBES}.small()") == []
        tab.page.evaluate("document.getElementById('ms-play').textContent = 'Pause'")  # the longest word it has
        lows = "[...document.querySelectorAll('#ms-transport *')].map((each) => each.getBoundingClientRect().bottom)"
        assert max(tab.page.evaluate(lows)) <= height
        for name in ("camera", "plot-box", "state", "log"):  # wherever it stands, it is there
            assert tab.page.evaluate(f"document.getElementById('ms-{name}').getClientRects().length") == 1
    finally:
        tab.page.set_viewport_size(dict(SMALL))


def test_keys_reach_everything(tab: Tab) -> None:
    """Tab goes to the controls in the order in which they stand, and space presses what it has reached."""
    paused(tab)
    tab.page.evaluate("document.getElementById('ms-theme').focus()")
    seen = []
    for _ in range(60):
        tab.page.keyboard.press("Tab")
        seen.append(tab.page.evaluate("document.activeElement.id"))
        if seen[-1] == "ms-step-1":
            break
    assert "ms-play" in seen
    at = tab.tick
    tab.page.keyboard.press("Space")
    tab.until_tick(at + 1)


def test_everything_that_can_be_clicked_has_a_tooltip(tab: Tab) -> None:
    bare = tab.page.evaluate("""[...document.querySelectorAll('button, select, input, a, [role=button], [role=tab]')]
        .filter((node) => node.getClientRects().length && !node.title && !node.closest('label[title]'))
        .map((node) => node.outerHTML)""")
    assert bare == []


def test_the_scene_is_drawn(tab: Tab) -> None:
    """The canvas holds more than sky: ground, things, robots."""
    paused(tab)
    tab.page.wait_for_timeout(500)
    from io import BytesIO

    import numpy as np
    from PIL import Image

    box = tab.page.evaluate(
        "(({x, y, width, height}) => ({x, y, width, height}))(document.getElementById('root').getBoundingClientRect())"
    )
    image = np.asarray(Image.open(BytesIO(tab.page.screenshot(clip=box))).convert("RGB")).astype(int)
    colours = {tuple(colour) for colour in (image.reshape(-1, 3) // 24)}
    assert len(colours) > 12


SCENES = """window.scenes = []; window.__THREE_DEVTOOLS__ = new EventTarget();
__THREE_DEVTOOLS__.addEventListener('observe', ({ detail }) => { if (detail.isScene) scenes.push(detail); });
window.splats = () => {
  let found = null;
  const look = ({ geometry }) => { if (geometry?.attributes.position?.itemSize === 2) found = geometry; };
  for (const scene of scenes) scene.traverse(look);
  return found;
};
window.shadows = () => {
  const found = [];
  const look = (each) => { if (each.geometry?.type === 'PlaneGeometry' && each.material?.map) found.push(each); };
  for (const scene of scenes) scene.traverse(look);
  return found;
};
window.loudly = console.error;"""


def test_splats_are_drawn_without_a_word_in_the_console(
    browser: Any, started: Callable[..., Run], tmp_path: Path
) -> None:
    """Errors and warnings are those of the browser: the page hides none."""
    scenario = tmp_path / "splats.yaml"  # with a rover, whose run costs little: a car would draw splats for its cameras
    scenario.write_text(json.dumps({"world": str(ROOT / "worlds" / "minimal_test"), "robots": {"rover": {}}}))
    run = started("run", str(scenario), "--view", "--transport", "none")
    tab = Tab(browser, run.address, script=SCENES)
    tab.until("splats()?.boundingSphere")  # three.js has asked how far they reach
    tab.until("shadows().length === 1")  # of the rover; it lies on the splats and cuts nothing out of them
    tab.until("shadows().every((each) => !each.material.depthWrite && each.renderOrder > 10000)")
    tab.page.evaluate("window.first = splats()")
    tab.page.evaluate("""const slider = document.getElementById('ms-scale'); slider.value = 2;
        slider.dispatchEvent(new Event('change'))""")  # the scene is built again
    tab.until("splats() && splats() !== first && splats().boundingSphere")
    assert tab.page.evaluate("console.error === loudly")
    tab.close()


def test_another_scenario_can_be_chosen(browser: Any, started: Callable[..., Run]) -> None:
    run = started("run", "flat", "--view", "--transport", "none", "--autopilot")
    tab = Tab(browser, run.address)
    try:
        before = [tab.robot("drone"), tab.robot("rover")]
        tab.until_robot("drone", f"Math.hypot(x - {before[0][0]}, y - {before[0][1]}) > 1")  # both robots move
        tab.until_robot("rover", f"Math.hypot(x - {before[1][0]}, y - {before[1][1]}) > 0.5")
        tab.until("document.getElementById('ms-image').src.startsWith('data:image/png')")
        tab.until("document.getElementById('ms-links').innerText.includes('drone → rover')")
        tick = "Number(document.getElementById('ms-tick').textContent.replace(/,/g, ''))"
        tab.until(f"{tick} > 600")
        tab.page.evaluate(  # noted as it is shown: this process may look too late
            "window.lowest = Infinity; new MutationObserver(() => {"
            f" if (document.title.startsWith('obstacles_arena')) window.lowest = Math.min(window.lowest, {tick});"
            "}).observe(document.getElementById('ms-tick'), {childList: true, characterData: true, subtree: true})"
        )
        tab.page.select_option("#ms-scenario", "scenario:obstacles_arena")
        tab.until("document.title.startsWith('obstacles_arena')")
        tab.until("window.lowest < 600")
        tab.until("document.getElementById('ms-lines').innerText.includes('scenario obstacles_arena')")
    finally:
        tab.close()


# ---- what a page cannot do -------------------------------------------------------------------------------------------


def test_pages_leave_no_trace_in_the_messages(browser: Any, world: Path, started: Callable[..., Run]) -> None:
    """Of ten pages one looks on, one closes, one pauses, others are never read: the digest is that of a run alone."""
    arguments = ("run", str(world), "--autopilot", "--duration", "20", "--transport", "none", "--json")
    run = started(*arguments)
    deaf, hand = open_panels(run.address), open_panels(run.address)
    hand.send('{"kind": "pause", "value": true}')
    looking, leaving = Tab(browser, run.address), Tab(browser, run.address)
    others = [open_panels(run.address) for _ in range(6)]  # ten in all
    hand.send('{"kind": "pause", "value": false}')
    looking.until_status("Running")
    leaving.close()
    hand.send('{"kind": "speed", "value": 0}')
    seen = json.loads(run.output())
    looking.until_status("The run has ended")
    looking.until("document.getElementById('ms-veil').innerText.includes('The run has ended at 20.00 s')")
    assert looking.text("digest") == seen["digest"]
    looking.context.close()
    for socket in (deaf, *others):
        socket.close()
    sim = microsim.Simulation(WORLD)
    runner = Runner(sim, 0.0, DemoPilot(sim))
    runner.run(20 * 60)
    assert seen["digest"] == sim.digest()


def test_a_page_of_another_site_cannot_connect(run: Run) -> None:
    for origin in ("http://evil.example", "http://localhost:1", "null"):
        with pytest.raises(InvalidStatus) as refused:
            open_panels(run.address, origin)
        assert refused.value.response.status_code == 403
    open_panels(run.address).close()


def test_without_the_address_of_a_page_nobody_connects(run: Run) -> None:
    parts = urlsplit(run.address)
    site = f"{parts.hostname}:{parts.port}"
    for path in ("", "p/guess/panels", "p/guess"):
        with pytest.raises(InvalidStatus):
            connect(f"ws://{site}/{path}", origin=f"http://{site}", open_timeout=120)


def test_a_foreign_name_that_leads_here_is_refused(run: Run) -> None:
    assert front_door(run.address, Host="evil.example")[0] == 403
    assert front_door(run.address, Host=f"localhost:{urlsplit(run.address).port}")[0] == 303


def test_garbage_from_a_page_is_ignored(run: Run) -> None:
    with open_panels(run.address) as socket:
        for text in (
            "{",
            "[]",
            '{"kind": 3}',
            '{"kind": "drive", "value": ["rover", {"v": "x"}]}',
            "null",
            '"x"',
            '{"kind": "drive", "value": ["nobody", {}]}',
            '{"kind": "step", "value": 1e30}',
            '{"kind": "view"}',
            '{"kind": "layer", "value": 3}',
            '{"kind": "speed", "value": -1}',
            '{"kind": "load", "value": "/etc/passwd"}',
        ):
            socket.send(text)
        socket.send('{"kind": "pause", "value": false}')
        before = None
        end = time.monotonic() + 300
        while time.monotonic() < end:  # it runs on, and tells so
            message = json.loads(socket.recv(timeout=120))
            if message["type"] == "state":
                before = message["tick"] if before is None else before
                if message["tick"] > before + 30:
                    return
    raise AssertionError("the run no longer advances")


def test_another_address_needs_the_token() -> None:
    ours, theirs = Pipe()
    page = ViewerPage(theirs, PageOptions(host="0.0.0.0", port=0))
    try:
        address = page.address.replace("0.0.0.0", "127.0.0.1")
        bare = address.split("?")[0]
        assert "?token=" in address
        assert front_door(bare)[0] == front_door(f"{bare}?token=wrong")[0] == 403
        status, place = front_door(address)
        assert status == 303
        assert "token" not in place
        with pytest.raises(InvalidStatus):
            open_panels(address, "http://evil.example")
    finally:
        page.server.stop()
        ours.close()


def test_an_address_that_is_not_ours_is_refused_at_once() -> None:
    runner = Runner(microsim.Simulation(WORLD))
    with pytest.raises(ViewerError, match=r"cannot be served on 203\.0\.113\.7"):
        Viewer(runner, PageOptions(host="203.0.113.7"))


def test_what_a_page_drives_is_recorded_and_replayed_to_the_byte(
    world: Path, tmp_path: Path, started: Callable[..., Run]
) -> None:
    bag = tmp_path / "flight"
    run = started(
        "run", str(world), "--view", "--transport", "none", "--autopilot", "--duration", "8", "--record", str(bag)
    )
    with open_panels(run.address) as hand:
        for share in range(12):
            hand.send(json.dumps({"kind": "drive", "value": ["rover", {"v": 0.1 * share, "omega": 0.3}]}))
            time.sleep(0.1)  # as fast as a page speaks while a key is held
        hand.send(json.dumps({"kind": "branch"}))
        hand.send(json.dumps({"kind": "speed", "value": 0}))
    run.output()
    with Replay(open_bag(bag)) as again:
        assert again.verify().is_identical
    with Replay(open_bag(bag)) as again:
        assert sum(channel.topic == "/rover/cmd_vel" for _, channel, _ in again.inputs()) > 12


def test_small_windows_keep_the_buttons(tab: Tab) -> None:
    assert SMALL["width"] < 500
    assert tab.page.evaluate("document.getElementById('ms-play').getClientRects().length") == 1
