"""Inputs of plug-ins in a node: whatever is wrong in one, the run ends with one sentence, with file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from microsim import messages as wire
from microsim.errors import PluginError
from microsim.messages.topics import Qos
from tests.parts.ros2.test_node import Stage
from tests.support import bare

SOURCE = """
from microsim.messages.inputs import InputKind
from microsim.messages.topics import Qos

def take(sim, robot, message):
    return sim.command_twist(robot, (message.data, 0.0, 0.0), 0.0)

def meant_for(sim, robot):
    return True

INPUT = InputKind("kick", "/{robot}/kick", "std_msgs/msg/Float64", Qos(3), "any", "a kick", take, meant_for=meant_for)
"""
# what is written otherwise, how, what the sentence says, text in the line that it names
CASES = [
    ("return sim.command", "1 / 0; sim.command", "input kick: ZeroDivisionError: division by zero", "1 / 0"),
    ("message.data", "message.dato", "input kick: AttributeError: .* no attribute 'dato'", "message.dato"),
    ("sim, robot, message", "sim, robot", "input kick: TypeError: take.. takes 2 positional arguments", "INPUT ="),
    ("sim.command_twist", "sim.comand_twist", "input kick: AttributeError: .*'comand_twist'", "comand_twist"),
    ("return True", "return robot.model", "input kick: AttributeError: 'str' object has no attribute 'model'", "model"),
    ("Float64", "Float65", "input kick: there is no message type 'std_msgs/msg/Float65'", "INPUT ="),
    ("/{robot}/kick", "kick", "topic: expected one such as /{robot}/kick, found 'kick'", "INPUT ="),
    ("Qos(3)", "3", "qos: expected a Qos, found 3", "INPUT ="),
    ('"a kick", take', '"a kick", "take"', "take: expected a function, found 'take'", "INPUT ="),
    ("meant_for=meant_for", "makes='pse'", "there is no 'pse'; did you mean 'pose'", "INPUT ="),
]


def write(folder: Path, text: str) -> dict[str, object]:
    folder.mkdir()
    (folder / "kick.py").write_text(text)
    return {"plugins": [str(folder)], "robots": {"rover": bare(start={"map_pose": {"x": 9, "y": 9}})}}


def send(stage: Stage) -> None:
    cdr = wire.encode("std_msgs/msg/Float64", wire.new("std_msgs/msg/Float64", data=1.0))
    stage.controller.send("/rover/kick", "std_msgs/msg/Float64", Qos(3), cdr)
    stage.tick()


def test_a_right_input_moves_the_robot(tmp_path: Path) -> None:
    stage = Stage(write(tmp_path / "plugins", SOURCE))
    send(stage)
    assert stage.node.sim.state("rover").v > 0.1
    assert stage.node.malformed == 0


@pytest.mark.parametrize(("old", "new", "sentence", "line"), CASES)
def test_a_fault_in_an_input_ends_the_run_with_one_sentence(
    tmp_path: Path, old: str, new: str, sentence: str, line: str
) -> None:
    text = SOURCE.replace(old, new)
    assert text != SOURCE
    with pytest.raises(PluginError) as raised:
        send(Stage(write(tmp_path / "plugins", text)))
    found = re.fullmatch(rf"{re.escape(str(tmp_path))}/plugins/kick\.py:(\d+): (.*)", str(raised.value))
    assert found is not None, raised.value
    assert line in text.splitlines()[int(found[1]) - 1], raised.value
    assert re.search(sentence.replace("{", r"\{"), found[2]), raised.value


def test_a_message_that_is_malformed_does_not_end_the_run(tmp_path: Path) -> None:
    stage = Stage(write(tmp_path / "plugins", SOURCE))
    stage.controller.send("/rover/kick", "std_msgs/msg/Float64", Qos(3), b"\x00\x01\x00\x00\x01")
    stage.tick()
    assert stage.node.malformed == 1
