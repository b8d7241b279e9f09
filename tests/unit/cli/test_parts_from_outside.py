"""A package adds an attachment, a command, a transport or a whole part: one file each, found by an entry point."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli_support import ROOT, environment
from tests.forked_python import forked_python

COUNTER = '''
"""Counts the messages of a run."""

from contextlib import contextmanager
from typing import Annotated, NamedTuple

from microsim import Attachment, option


class CountOptions(NamedTuple):
    count: Annotated[str | None, option("--count NAME", "Count messages under this name.")] = None


class Count(Attachment):
    name, options = "count", CountOptions

    @contextmanager
    def attach(self, run):
        run.results[self.given.count] = 0

        def more(messages):
            run.results[self.given.count] += len(messages)

        run.runner.listen(messages=more)
        yield


ATTACHMENT = Count
'''

GREETING = '''
from microsim import Command


def greet() -> int:
    """Greet the robots."""
    print("hello, robots")
    return 0


COMMAND = Command(greet)
'''

PIPE = '''
"""A transport that writes down what the node opens."""

from pathlib import Path

from microsim import TransportKind


def opened(node_name, ros_args):
    from microsim import MemoryTransport

    class Pipe(MemoryTransport):
        def publisher(self, topic, type_name, qos):
            with Path(__file__).with_suffix(".txt").open("a") as file:
                print(self.node_name, topic, file=file)
            return super().publisher(topic, type_name, qos)

    return Pipe(node_name, list(ros_args))


TRANSPORT = TransportKind("pipe", opened)
'''


def installed(folder: Path, group: str, name: str, text: str) -> dict[str, str]:
    """The environment in which a package with one module and one entry point to it is installed."""
    facts = folder / "outside-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        f"[{group}]\n{name} = outside_module{':COMMAND' * (group[-8:] == 'commands')}\n"
    )
    (folder / "outside_module.py").write_text(text)
    return environment(PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")


def run(variables: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    command = [*forked_python(variables), "-m", "microsim", *words]
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=240, check=False)


QUICK = ("run", "flat", "--duration", "0.5", "--rtf", "0", "--json", "--headless")


def assert_counts(variables: dict[str, str]) -> None:
    done = run(variables, *QUICK, "--count", "heard")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["heard"] == facts["messages"] > 30


def assert_pipes(variables: dict[str, str], where: str = "outside_module.txt") -> None:
    done = run(variables, *QUICK, "--transport", "pipe")
    assert done.returncode == 0, done.stderr
    lines = (Path(variables["PYTHONPATH"].split(os.pathsep)[0]) / where).read_text().splitlines()
    assert "/microsim /rover/odom" in lines
    refused = run(variables, *QUICK, "--transport", "pip")
    assert refused.returncode == 2
    assert "no transport 'pip'; did you mean 'pipe'" in " ".join(refused.stderr.replace("│", "").split())


@pytest.mark.parametrize("group", ["microsim.attachments", "microsim.parts"])
def test_an_attachment_is_one_file(group: str, tmp_path: Path) -> None:
    assert_counts(installed(tmp_path, group, "count", COUNTER))


@pytest.mark.parametrize("group", ["microsim.commands", "microsim.parts"])
def test_a_command_is_one_file(group: str, tmp_path: Path) -> None:
    variables = installed(tmp_path, group, "greet", GREETING)
    done = run(variables, "greet")
    assert (done.returncode, done.stdout) == (0, "hello, robots\n")
    assert "Greet the robots" in run(variables, "--help").stdout


@pytest.mark.parametrize("group", ["microsim.transports", "microsim.parts"])
def test_a_transport_is_one_file(group: str, tmp_path: Path) -> None:
    assert_pipes(installed(tmp_path, group, "pipe", PIPE))


def test_a_part_with_all_of_them_is_one_file_or_a_folder(tmp_path: Path) -> None:
    variables = installed(tmp_path, "microsim.parts", "greet", COUNTER + GREETING + PIPE)
    assert_counts(variables)
    assert_pipes(variables)
    assert run(variables, "greet").stdout == "hello, robots\n"

    (tmp_path / "outside_module.py").unlink()
    folder = tmp_path / "outside_module"
    (folder / "commands").mkdir(parents=True)
    for file, text in {
        "__init__": "", "attachment": COUNTER, "transports": PIPE, "commands/say_hello": GREETING
    }.items():  # fmt: skip
        (folder / f"{file}.py").write_text(text)
    assert_counts(variables)
    assert_pipes(variables)
    assert run(variables, "say-hello").stdout == "hello, robots\n"


def test_a_part_that_cannot_be_loaded_is_named_and_harms_nothing(tmp_path: Path) -> None:
    variables = installed(tmp_path, "microsim.parts", "broken", "import no_such_library\n")
    done = run(variables, *QUICK)
    assert done.returncode == 0
    assert "plug-in 'broken' (entry point microsim.parts, outside_module) could not be loaded" in done.stderr
    assert "No module named 'no_such_library'" in done.stderr
