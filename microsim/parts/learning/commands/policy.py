"""`microsim policy`: a trained policy as a ROS 2 node, as ONNX, as a scenario to run it in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

from microsim.cli.command import ROS_ARGS, Command, PluginsOption, PolicyArgument, seed_value
from microsim.cli.precompile import compiling
from microsim.cli.terminal import ExitCode, interrupts_end_the_run, tell
from microsim.errors import os_errors
from microsim.options import flag, option
from microsim.parts.ros2.transports import AUTO, transport_option


class PolicyOptions(NamedTuple):
    policy: PolicyArgument
    seed: Annotated[
        int | None,
        option("--seed N", "Seed of the world, which determines where goals are.", parser=seed_value, show_default="0"),
    ] = None
    node: Annotated[bool, flag("--node", "Run it as a ROS 2 node, until Ctrl-C.")] = False
    transport: Annotated[str, transport_option("How the node joins ROS 2: auto, dds, rclpy or memory.")] = AUTO
    scenario: Annotated[
        Path | None, option("--scenario FILE", "Write the scenario of its task, with the gates of lockstep.")
    ] = None
    onnx: Annotated[Path | None, option("--onnx FILE", "Write the policy as ONNX for other runtimes.")] = None
    plugins: PluginsOption = None


def policy(options: PolicyOptions) -> int:
    """Describe a trained policy, export it, or run it as a ROS 2 node.

    The node reads odometry and the sensors of the task and publishes cmd_vel.
    With `microsim run` and the scenario that --scenario writes, it runs in
    lockstep, and the run is byte for byte that of the policy in a batch.

    \b
    Examples:
      microsim policy RoverAvoid
      microsim policy rover.npz --onnx rover.onnx
      microsim policy RoverAvoid --scenario avoid.yaml --seed 7
      microsim policy RoverAvoid --node --seed 7       then, in another terminal:
      microsim run avoid.yaml --digest
    """
    from microsim.parts.learning.policy import load_policy

    found = load_policy(options.policy)
    if options.scenario is not None:
        from microsim.parts.learning.policy_node import scenario_for

        text = scenario_for(found, (options.seed or 0)).to_yaml()
        with os_errors(f"{options.scenario}: cannot be written"):
            options.scenario.write_text(text, encoding="utf-8")
        tell(f"wrote {options.scenario}; next: microsim policy {options.policy} --node --seed {(options.seed or 0)}")
    if options.onnx is not None:
        found.export_onnx(options.onnx)
        tell(f"wrote {options.onnx}")
    if options.node:
        return _run(options)
    if options.scenario is None and options.onnx is None:
        _describe(found.about, str(found.shape))
    return ExitCode.GOOD


COMMAND = Command(policy, panel="Learn", position=164)


def _describe(about: dict[str, object], network: str) -> None:
    for name in ("task", "seed", "steps", "unseen", "microsim", "torch"):
        if name in about:
            value = about[name]
            shown = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
            print(f"{name:<10} {shown}")
    print(f"{'network':<10} {network}")


def _run(options: PolicyOptions) -> int:
    from microsim.parts.learning.policy_node import NODE_NAME, PolicyNode
    from microsim.parts.ros2.transports import open_transport

    with interrupts_end_the_run() as interrupts:
        transport = open_transport(options.transport, NODE_NAME, ROS_ARGS)
        try:
            with compiling():
                node = interrupts.runner = PolicyNode(transport, options.policy, (options.seed or 0))
            transport.log("info", f"{node.policy.task}: waiting for {', '.join(node.topics)}")
            node.run()
        except KeyboardInterrupt:
            return ExitCode.GOOD
        finally:
            transport.close()
    return ExitCode.GOOD
