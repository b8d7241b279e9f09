"""`microsim policy train`: a policy for a task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typing_extensions import TypedDict

from microsim.cli.command import (
    WORLD_THREADS,
    PluginsOption,
    QuietOption,
    ResultJsonOption,
    WorldThreadsOption,
    seed_value,
)
from microsim.cli.precompile import compiling
from microsim.cli.terminal import ExitCode, Interrupts, interrupts_end_the_run, note, print_json, tell
from microsim.errors import UsageError
from microsim.options import argument, check_can_write, option
from microsim.registry import trust

if TYPE_CHECKING:
    from microsim.parts.learning.learning_curve import Progress

_SHOWN_EVERY = 10  # updates


class TrainOptions(NamedTuple):
    task: Annotated[str, argument("TASK", "The task: a shipped one such as RoverAvoid, or a file my_task.py.")]
    out: Annotated[
        Path | None, option("--out -o FILE", "The policy; its learning curve is written next to it as .json and .html.")
    ] = None
    seed: Annotated[
        int | None, option("--seed N", "Seed of weights, exploration and worlds.", parser=seed_value, show_default="0")
    ] = None
    threads: WorldThreadsOption = WORLD_THREADS
    device: Annotated[str, option("--device DEVICE", "Device of worlds and network: cpu, cuda or auto.")] = "cpu"
    settings: Annotated[
        list[str] | None, option("--set NAME=VALUE", "A setting of the training, such as steps=1e6; repeatable.")
    ] = None
    worlds: Annotated[int, option("--worlds N", "Unseen worlds for the final evaluation.", min=1)] = 1000
    plot: Annotated[Path | None, option("--plot FILE", "Learning curve as .png, .svg or .pdf.")] = None
    onnx: Annotated[Path | None, option("--onnx FILE", "Also write the policy as ONNX for other runtimes.")] = None
    plugins: PluginsOption = None
    json: ResultJsonOption = False
    quiet: QuietOption = False


class TrainOutput(TypedDict):
    task: str
    seed: int
    steps: Annotated[int, "Environment steps of all worlds together."]
    seconds: Annotated[float, "From the first step to the last update."]
    success: Annotated[float, "Share of unseen worlds."]
    collision: Annotated[float, "Share of unseen worlds."]
    reward: Annotated[float, "Mean of their episodes."]
    policy: Annotated[str, "The file."]


def train(options: TrainOptions) -> int:
    """Train a policy for a task with PPO, and evaluate it in unseen worlds.

    Writes the policy (.npz), and next to it the learning curve (.json, .html).
    On the CPU, the same seed, settings, threads, machine and torch give the
    same weights. Needs the extra `train`.

    \b
    Examples:
      microsim policy train RoverAvoid --out rover.npz
      microsim policy train Hover --seed 3 --plot hover.png --onnx hover.onnx
      microsim policy train my_task.py --set worlds=1024 --set steps=5e6
      microsim policy train RoverAvoid --device cuda --set worlds=4096
    """
    out = options.out or Path(f"{Path(options.task).stem}.npz")
    trust([Path(options.task).parent] if options.task.endswith(".py") else ())  # named on the command line
    _check_files(options, out)
    with interrupts_end_the_run() as interrupts:
        return _train(options, out, interrupts)


def _check_files(options: TrainOptions, out: Path) -> None:
    """Refuse what could not be written after the training."""
    from microsim.parts.learning.policy import import_onnx
    from microsim.plotting import check_name, matplotlib

    if out.suffix != ".npz":
        raise UsageError(f"--out {out}: expected a name that ends with .npz")
    if options.plot is not None:
        check_name(options.plot)
        matplotlib("matplotlib")
    if options.onnx is not None:
        import_onnx()
    for name, file in (("--out", out), ("--plot", options.plot), ("--onnx", options.onnx)):
        check_can_write(name, file)


def _train(options: TrainOptions, out: Path, interrupts: Interrupts) -> int:
    from microsim.parts.learning.evaluation import evaluate
    from microsim.parts.learning.ppo import Trainer

    settings = dict(map(_setting, options.settings or ()))
    with compiling():
        trainer = Trainer(options.task, options.seed or 0, options.threads, options.device, settings)
    curve: list[Progress] = []

    def report(progress: Progress) -> None:
        curve.append(progress)
        if not options.json and (progress.update % _SHOWN_EVERY == 0 or progress.checked is not None):
            tell(_line(progress))

    interrupts.runner = trainer
    policy = trainer.run(report)
    if trainer.is_stopping:
        note("stopped: what was learned is evaluated and written; Ctrl-C again ends this too")
    found = evaluate(policy, options.worlds, threads=options.threads)
    figures = found.figures()
    policy.about["unseen"] = {"worlds": options.worlds, **figures}
    policy.save(out)
    if options.onnx is not None:
        policy.export_onnx(options.onnx)
    result = {
        "task": policy.task, "seed": (options.seed or 0), "steps": curve[-1].steps, "seconds": trainer.seconds,
        **figures, "policy": str(out),
    }  # fmt: skip
    _write_curve(options, out, curve, result, policy.about["settings"])
    if options.json:
        print_json(result)
    else:
        _tell_result(options, result, curve)
    return ExitCode.GOOD


def _setting(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise UsageError(f"--set: expected NAME=NUMBER such as steps=1e6, found {text!r}") from None


def _line(progress: Progress) -> str:
    checked = "" if progress.checked is None else f"   checked {100 * progress.checked:5.1f} %"
    harder = "" if progress.difficulty == 1.0 else f"   difficulty {progress.difficulty:.1f}"
    return (
        f"{progress.steps:>12,} steps  {progress.seconds:7.1f} s   reward {progress.reward:8.2f}   "
        f"success {100 * progress.success:5.1f} %   collision {100 * progress.collision:5.1f} %{harder}{checked}"
    )


def _write_curve(
    options: TrainOptions, out: Path, curve: list[Progress], result: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    from microsim.parts.learning.learning_curve import draw, write_json, write_page

    title = f"{result['task']}, seed {(options.seed or 0)}"
    text = f"{100 * result['success']:.1f} % of {options.worlds} unseen worlds after {result['steps']:,} steps"
    write_json(curve, {**result, "settings": settings, "threads": options.threads}, out.with_suffix(".json"))
    write_page(curve, title, text, out.with_suffix(".html"))
    if options.plot is not None:
        draw({f"seed {(options.seed or 0)}": curve}, f"{result['task']}: {text}", options.plot)


def _tell_result(options: TrainOptions, result: Mapping[str, Any], curve: list[Progress]) -> None:
    from microsim.parts.learning.learning_curve import sparkline

    tell(f"success  {sparkline(curve)}  in {result['seconds']:.1f} s")
    tell(
        f"{options.worlds} unseen worlds: success {100 * result['success']:.1f} %, collision "
        f"{100 * result['collision']:.1f} %, reward {result['reward']:.2f}"
    )
    tell(f"wrote {result['policy']}; next: microsim policy evaluate {result['policy']}")
