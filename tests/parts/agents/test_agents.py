"""The MCP server, through the SDK's own client: every tool, bad calls in any order and in parallel, and paths."""

import asyncio
import contextlib
import os
import random
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from typer.testing import CliRunner

import microsim
from microsim.cli import app
from microsim.errors import UsageError
from microsim.parts.missions import fly_mission
from tests.forked_python import forked_python
from tests.support import run_apart

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
MISSION = """scenario: obstacles_arena
duration: 35
do:
  - { robot: rover, waypoints: [[13, 10], [13, 19]], speed: 1.5, timeout: 20 }
expect:
  - { robot: rover, value: contacts, equals: 0 }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("agent")


@pytest.fixture(scope="module")
def address(folder):
    """Of one HTTP server for all tests."""
    command = [*forked_python(), "-m", "microsim", "mcp", str(folder), "--http", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/mcp", line)
        assert found, line + server.stderr.read()
        yield found[0]
        server.terminate()


class Agent:
    """A client whose calls give the structured answer."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        self.result = await self.client.call_tool(tool, arguments)
        facts = self.result.structured_content
        assert isinstance(facts, dict)
        assert bool(self.result.is_error) == ("error" in facts)
        assert facts["next"], "every answer suggests a next step"
        assert len(self.result.content[0].text) < 40_000
        return facts

    async def refused(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return (await self(tool, **arguments))["error"]


def talk(address, conversation):
    async def talking():
        async with Client(address) as client:
            return await conversation(Agent(client))

    return run_apart(talking())


def test_an_agent_drives_a_run_and_its_digest_is_that_of_the_same_run_in_python(address):
    async def drive(call):
        await call("start", scenario="obstacles_arena", seed=3)
        await call("command", robot="rover", values={"v": 1.0, "omega": 0.1})
        facts = await call("step", seconds=2)
        await call("set_pose", robot="drone", x=10, y=10, z=5)
        await call("step", seconds=1)
        return facts["robots"]["rover"]["x"], (await call("digest"))["digest"]

    sim = microsim.Simulation("obstacles_arena", 3)
    sim.command("rover", v=1.0, omega=0.1)
    sim.step(120)
    x = sim.state("rover").x
    sim.set_pose("drone", 10, 10, 5)
    sim.step(60)
    assert talk(address, drive) == (pytest.approx(x, rel=1e-8), sim.digest())


def test_snapshots_forks_and_differences(address):
    async def travel(call):
        await call("start", scenario="flat", seed=1, run="a")
        await call("step", seconds=1, run="a")
        await call("snapshot", name="one", run="a")
        await call("fork", run="a", new_run="b")
        same = await call("diff_runs", run="a", other="b")
        await call("command", robot="rover", values={"v": 1}, run="b")
        await call("inject_fault", fault="drone/gps:dropout@1s-2s", run="b")
        await call("step", seconds=1, run="a")
        await call("step", seconds=1, run="b")
        other = await call("diff_runs", run="a", other="b")
        end = await call("digest", run="a")
        back = await call("restore", name="one", run="a")
        await call("step", seconds=1, run="a")
        assert await call("digest", run="a") == end, "bit for bit"
        assert (await call.refused("restore", name="two", run="a"))["message"].startswith("no snapshot 'two'")
        await call("end_run", run="a")
        await call("end_run", run="b")
        return same["identical"], other["identical"], str(other), back["tick"]

    same, other, about, tick = talk(address, travel)
    assert (same, other, tick) == (True, False, 60)
    assert "/tmp" not in about
    assert "at 1.016666667 s" in about


def test_sensors_cameras_and_the_scene_can_be_looked_at(address):
    async def look(call):
        await call("start", scenario="obstacles_arena", run="look")
        await call("step", seconds=1, run="look")
        topics = (await call("read_topic", run="look"))["topics"]
        image = await call("read_topic", topic="/drone/camera/image_raw", run="look")
        assert image["message"]["data"][-1] == "... 49,132 more"
        assert (await call("read_topic", topic="/radio/rover_rx", run="look"))["message"] is None
        pictures = []
        for tool, arguments in (("render_camera", {"robot": "drone"}), ("render_scene", {})):
            await call(tool, run="look", **arguments)
            picture = call.result.content[1]
            pictures.append((picture.type, picture.mime_type, picture.data[:8]))
        state = await call("read_state", run="look")
        await call("end_run", run="look")
        return topics["/rover/range/front"], pictures, state["robots"]["rover"]["touching"]

    topic, pictures, touching = talk(address, look)
    assert topic == "sensor_msgs/msg/Range"
    assert pictures == [("image", "image/png", "iVBORw0K")] * 2
    assert touching == []


def test_a_failing_mission_is_found_explained_and_fixed(address, folder):
    async def repair(call):
        text = MISSION
        assert (await call("write_file", name="go.yaml", text=text))["ok"]
        bad = await call("fly_mission", mission="go.yaml")
        better = text.replace("[[13, 10], [13, 19]]", "[[20, 10], [20, 17], [13, 19]]").replace(
            "timeout: 20", "timeout: 30"
        )
        await call("write_file", name="go.yaml", text=better)
        good = await call("fly_mission", mission="go.yaml")
        swept = await call(
            "sweep", scenario="obstacles_arena", mission="go.yaml", seeds="0..1", asserts=["collisions == 0"]
        )
        for kind, name in (("recording", "out/go"), ("plot", "out/go.png"), ("scenario", "out/go.yaml")):
            await call("export", kind=kind, name=name, run="mission")
        assert (
            "already exists" in (await call.refused("export", kind="plot", name="out/go.png", run="mission"))["message"]
        )
        return bad, good, swept

    bad, good, swept = talk(address, repair)
    assert (bad["passed"], good["passed"], swept["good"], swept["done"]) == (False, True, True, 2)
    assert [each["result"] for each in bad["verdicts"]] == ["failed", "failed"]
    assert bad["verdicts"][1]["problem"].startswith("go.yaml:6:5: contacts of rover was 1")
    assert re.fullmatch(r"\d+\.\d+ s: rover touches obstacle_\d+", bad["all_events"][0])
    assert good["digest"] == fly_mission(folder / "go.yaml").sim.digest()
    assert (folder / "out" / "go" / "metadata.yaml").is_file()
    assert (folder / "out" / "go.png").read_bytes().startswith(b"\x89PNG")
    microsim.load_scenario(folder / "out" / "go.yaml")


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("stepp", {}, "no tool 'stepp'; did you mean 'step'?"),
        ("step", {"seconds": 1, "rum": "x"}, "step has no argument 'rum'; did you mean 'run'?"),
        ("step", {"seconds": "soon"}, "step: 1 wrong arguments"),
        ("step", {"seconds": 1e9}, "step: 1 wrong arguments"),
        ("step", {"seconds": 1, "run": "nobody"}, "no run 'nobody'"),
        ("start", {"scenario": "flatt"}, "no scenario 'flatt'; did you mean 'flat'?"),
        ("start", {"seed": 2**70}, "a seed must be a 64-bit integer"),
        ("start", {"scenario": "/etc/passwd"}, "outside the folder"),
        ("start", {"run": "../x"}, "start: 1 wrong arguments"),
        ("read_file", {"name": "../../etc/passwd"}, "outside the folder"),
        ("read_file", {"name": "link.yaml"}, "outside the folder"),
        ("write_file", {"name": "x.py", "text": "1"}, "expected a name that ends with"),
        ("write_file", {"name": "x.yaml", "text": "a" * 70_000}, "65,536 bytes at most"),
        ("fly_mission", {"mission": "hovr"}, "no mission 'hovr'; did you mean 'hover'?"),
        ("sweep", {"mission": "hover", "seeds": "0..999"}, "64 runs at most"),
        ("sweep", {"mission": "hover", "metrics": ["colisions"]}, "did you mean 'collisions'?"),
    ],
)
def test_a_bad_call_gets_a_structured_error(tool, arguments, words, address, folder):
    if not (folder / "link.yaml").is_symlink():
        (folder / "link.yaml").symlink_to("/etc/passwd")

    async def ask(call):
        return await call.refused(tool, **arguments)

    error = talk(address, ask)
    assert words in error["message"]
    assert error["kind"] != "internal"


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("robots: {rover: {max_v: fast}}", "robots.rover.max_v", "expected a number, found 'fast'"),
        ("plugins: [.]", "plugins", "plug-ins are code; start the server with --allow-plugins"),
        ("map: {elevation: {file: /etc/hostname}}", "map.elevation.file", "is outside the folder of this server"),
        ("map: {elevation: {file: ../../../../../../etc/hostname}}", "map.elevation.file", "is outside the folder"),
        ("world: /", "world", "is outside the folder"),
    ],
)
def test_a_file_that_is_wrong_or_leads_outside_is_refused_with_its_place(text, path, words, address):
    async def write(call):
        return await call("write_file", name="bad.yaml", text=text), await call.refused("start", scenario="bad.yaml")

    written, error = talk(address, write)
    assert (written["ok"], written["problems"][0]["path"], written["problems"][0]["line"]) == (False, path, 1)
    assert words in written["problems"][0]["message"]
    assert error["kind"] == "ScenarioError"


def test_garbage_in_parallel_leaves_the_runs_unharmed(address):
    """Any arguments to any tool, forty at a time, while one run is stepped."""
    dice = random.Random(5)
    values = [None, "", "main", "x" * 5000, -1, 0, 1e308, True, [], {}, ["a"], {"v": "fast"}, "../..", "\x00", 2**80]
    names = [
        "run",
        "robot",
        "values",
        "seconds",
        "topic",
        "name",
        "text",
        "mission",
        "seeds",
        "kind",
        "x",
        "vary",
        "fault",
    ]

    async def storm(call):
        tools = [
            tool.name for tool in (await call.client.list_tools()).tools if tool.name not in ("sweep", "render_scene")
        ]
        await call("start", scenario="flat", seed=9, run="quiet")

        async def garbage():
            arguments = {dice.choice(names): dice.choice(values) for _ in range(dice.randrange(4))}
            try:
                result = await call.client.call_tool(dice.choice(tools), arguments)
            except MCPError:  # refused before it reached us
                return
            assert (
                result.structured_content is None
                or result.structured_content.get("error", {}).get("kind") != "internal"
            )

        async def steps():
            for _ in range(10):
                await call("step", seconds=0.1, run="quiet")

        await asyncio.gather(steps(), *(garbage() for _ in range(40)))
        return await call("digest", run="quiet")

    sim = microsim.Simulation("flat", 9)
    sim.step(60)
    assert talk(address, storm)["digest"] == sim.digest()


def test_runs_are_limited(address):
    async def fill(call):
        errors = []
        for number in range(9):
            facts = await call("start", scenario="flat", run=f"r{number}")
            errors += [facts["error"]["message"]] if "error" in facts else []
        for number in range(9):
            await call("end_run", run=f"r{number}")
        return errors

    assert "there are 8 runs already" in talk(address, fill)[-1]


def test_the_same_over_stdio_and_nothing_else_is_on_stdout(tmp_path):
    python, *words = forked_python(ENVIRONMENT)
    server = StdioServerParameters(
        command=python, args=[*words, "-m", "microsim", "mcp", str(tmp_path)], env=ENVIRONMENT
    )

    async def conversation():
        async with Client(stdio_client(server)) as client:
            call = Agent(client)
            described = {tool.name: tool.description for tool in (await client.list_tools()).tools}
            await call("start", scenario="flat", seed=2)
            await call("export", kind="recording", name="rec")  # which prints, in other circumstances
            return described, await call("digest")

    described, digest = run_apart(conversation())
    assert all(described.values())
    assert len(described) == 22
    assert digest["digest"] == microsim.Simulation("flat", 2).digest()


def test_requests_of_other_web_pages_are_refused(address):
    for header in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        request = Request(address, b"{}", {"Content-Type": "application/json", **header})
        with pytest.raises(HTTPError) as refused:
            urlopen(request)
        assert refused.value.code in (403, 421)
        refused.value.close()


HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nContent-Length: 1000\r\n\r\n"
)


def test_a_server_with_clients_that_never_finish_ends_soon_and_without_tracebacks(tmp_path):
    """Connected only, in the middle of a head, of a body, and gone in the middle of a body."""
    command = [*forked_python(ENVIRONMENT), "-m", "microsim", "mcp", str(tmp_path), "--http", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT) as server:
        assert server.stderr is not None
        port = int(re.search(r":(\d+)/mcp", server.stderr.readline())[1])
        with contextlib.ExitStack() as stack:
            for number in range(200):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                client.sendall((b"", HEAD[:60], HEAD + b"{", HEAD + b"{")[number % 4])
                if number % 4 == 3:
                    client.shutdown(socket.SHUT_WR)
            with pytest.raises(HTTPError):  # answered, so the server has accepted them all
                urlopen(f"http://127.0.0.1:{port}/mcp")
            server.terminate()
            began = time.monotonic()
            server.wait(60)
            seconds = time.monotonic() - began
        assert server.returncode in (143, -15)
        assert "Traceback" not in server.stderr.read()
    assert seconds < 20  # it takes 2.5 s, on a machine that has the time


def test_a_server_that_cannot_start_says_why(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the command goes into its folder
    for arguments, words in (
        (["nowhere"], "expected a folder"),
        ([str(tmp_path), "--http", address.split(":")[2].split("/")[0]], "cannot listen on 127.0.0.1"),
    ):
        with pytest.raises(UsageError, match=words):
            CliRunner().invoke(app, ["mcp", *arguments], catch_exceptions=False)
