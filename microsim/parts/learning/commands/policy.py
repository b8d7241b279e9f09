"""`microsim policy`: train a policy, evaluate it, export it, run it as a ROS 2 node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from microsim.cli.command import (
    ROS_ARGS,
    Command,
    PluginsOption,
    PolicyArgument,
    say_new_name,
    seed_value,
    with_options,
)
from microsim.cli.precompile import compiling
from microsim.cli.terminal import ExitCode, interrupts_end_the_run, tell
from microsim.errors import UsageError, os_errors
from microsim.options import option
from microsim.parts.learning.evaluate_command import EvaluateOutput, evaluate
from microsim.parts.learning.train_command import TrainOutput, train
from microsim.parts.ros2.transports import AUTO, transport_option


class PolicyCommands(TyperGroup):
    """Takes `microsim policy POLICY --node` too, which was one command in the version before."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and any(self._is_former(word) for word in args):
            name = "run" if "--node" in args else "export" if {"--onnx", "--scenario"} & {*args} else "info"
            say_new_name("`microsim policy POLICY`", f"`microsim policy {name} POLICY`")
            args = [name, *(word for word in args if word != "--node")]
        return super().resolve_command(ctx, args)

    @staticmethod
    def _is_former(word: str) -> bool:
        return word in ("--node", "--onnx", "--scenario") or word.endswith(".npz")


policy = typer.Typer(cls=PolicyCommands, no_args_is_help=True, help="Train, evaluate, export and run policies.")
policy.command()(with_options(train))
policy.command()(with_options(evaluate))
SeedOption = Annotated[
    int | None,
    option("--seed N", "Seed of the world, which determines where goals are.", parser=seed_value, show_default="0"),
]


@policy.command()
def info(policy: PolicyArgument, plugins: PluginsOption = None) -> None:
    """Describe a trained policy: its task, training, results and network.

    \b
    Examples:
      microsim policy info RoverAvoid
      microsim policy info rover.npz
    """
    from microsim.parts.learning.policy import load_policy

    found = load_policy(policy)
    for name in ("task", "seed", "steps", "unseen", "microsim", "torch"):
        if name in found.about:
            value = found.about[name]
            shown = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
            print(f"{name:<10} {shown}")
    print(f"{'network':<10} {found.shape}")


class ExportOptions(NamedTuple):
    policy: PolicyArgument
    seed: SeedOption = None
    scenario: Annotated[
        Path | None, option("--scenario FILE", "Write the scenario of its task, with the gates of lockstep.")
    ] = None
    onnx: Annotated[Path | None, option("--onnx FILE", "Write the policy as ONNX for other runtimes.")] = None
    plugins: PluginsOption = None


def export(options: ExportOptions) -> None:
    """Write a policy as ONNX, or the scenario in which its node runs.

    \b
    Examples:
      microsim policy export rover.npz --onnx rover.onnx
      microsim policy export RoverAvoid --scenario avoid.yaml --seed 7
    """
    if options.scenario is None and options.onnx is None:
        raise UsageError("name what to write: --onnx FILE, --scenario FILE or both")
    from microsim.parts.learning.policy import load_policy

    found, seed = load_policy(options.policy), options.seed or 0
    if options.scenario is not None:
        from microsim.parts.learning.policy_node import scenario_for

        with os_errors(f"{options.scenario}: cannot be written"):
            options.scenario.write_text(scenario_for(found, seed).to_yaml(), encoding="utf-8")
        tell(f"wrote {options.scenario}; next: microsim policy run {options.policy} --seed {seed}")
    if options.onnx is not None:
        found.export_onnx(options.onnx)
        tell(f"wrote {options.onnx}")


class RunOptions(NamedTuple):
    policy: PolicyArgument
    seed: SeedOption = None
    transport: Annotated[str, transport_option("How the node joins ROS 2: auto, dds, rclpy or memory.")] = AUTO
    plugins: PluginsOption = None


def run(options: RunOptions) -> int:
    """Run a policy as a ROS 2 node, until Ctrl-C.

    The node reads odometry and the sensors of the task and publishes cmd_vel.
    With `microsim run` and the scenario that `policy export` writes, it runs
    in lockstep, and the run is byte for byte that of the policy in a batch.

    \b
    Examples:
      microsim policy run RoverAvoid --seed 7      then, in another terminal:
      microsim run avoid.yaml --digest
    """
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


policy.command()(with_options(export))
policy.command()(with_options(run))

COMMAND = Command(policy, panel="Train", position=510, json={"train": TrainOutput, "evaluate": EvaluateOutput})
