"""A policy as a node of its own process over DDS, in lockstep."""

import subprocess
from pathlib import Path

from microsim.parts.learning.policy_node import scenario_for
from microsim.parts.ros2.microsim_node import start_node
from microsim.parts.ros2.transport.dds import DdsTransport
from microsim.runner import Watcher
from tests.forked_python import forked_python
from tests.integration.conftest import PATIENCE_S, ROOT
from tests.policy_support import SEED, arbitrary, batch_digest

TICKS = 60


def test_over_dds_in_lockstep_a_policys_run_has_the_digest_of_the_batch(tmp_path: Path, namespace: str) -> None:
    policy, file = arbitrary("RoverAvoid"), tmp_path / "policy.npz"
    policy.save(file)
    command = [
        *forked_python(),
        "-m",
        "microsim",
        "policy",
        "run",
        str(file),
        "--seed",
        str(SEED),
        "--transport",
        "dds",
    ]
    process = subprocess.Popen([*command, "--ros-args", "-r", f"__ns:={namespace}"], cwd=ROOT)
    transport = DdsTransport("microsim", ["--ros-args", "-r", f"__ns:={namespace}"])
    try:
        node = start_node(transport, scenario_for(policy), SEED)
        node.runner.watchers.append(Watcher(PATIENCE_S, node.runner.stop))
        node.runner.run(TICKS)
        assert node.sim.tick == TICKS, [note.text for note in node.runner.notes.take()]
        assert node.sim.digest() == batch_digest(policy, TICKS)
    finally:
        transport.close()
        process.kill()
        process.wait()
