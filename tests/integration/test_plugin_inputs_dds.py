"""An input of a plug-in that fails ends the command with one sentence, over a real network too."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

import microsim

pytest.importorskip("cyclonedds")

from tests.forked_python import forked_python
from tests.parts.ros2.test_plugin_inputs import SOURCE, write

from .conftest import PATIENCE_S, ROOT


@pytest.mark.parametrize("more", [[], ["--lockstep", "auto"]], ids=["free", "lockstep"])
def test_a_fault_in_an_input_ends_the_command(tmp_path: Path, more: list[str]) -> None:
    scenario = write(tmp_path / "plugins", SOURCE.replace("return sim.command", "1 / 0; sim.command"))
    (tmp_path / "yard.yaml").write_text(json.dumps(scenario))
    words = ["run", str(tmp_path / "yard.yaml"), "--plugins", str(tmp_path / "plugins"), "--headless", *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [*forked_python(), "-m", "microsim", *words, "--transport", "dds"]
    run = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    ended = threading.Thread(target=run.wait)
    try:
        with microsim.connect("kicker") as node:
            publisher = node.publisher("/rover/kick", "std_msgs/msg/Float64")
            assert publisher.wait_for_subscriber(PATIENCE_S)
            ended.start()
            while ended.is_alive():
                publisher.publish({"data": 1.0})
                ended.join(0.1)
        assert run.stderr is not None
        text = run.stderr.read()
    finally:
        run.kill()
    assert run.returncode == 2, text
    assert f"microsim: {tmp_path}/plugins/kick.py:6: input kick: ZeroDivisionError: division by zero" in text
    assert "Traceback" not in text
