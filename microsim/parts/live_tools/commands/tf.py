"""`microsim tf`: transforms of any ROS 2 network."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typing_extensions import TypedDict

from microsim.cli.command import Command, JsonOption
from microsim.cli.terminal import print_json
from microsim.errors import UsageError
from microsim.options import argument, option
from microsim.parts.live_tools.live import PANEL, OnceOption, connected, json_text

if TYPE_CHECKING:
    from microsim.parts.live_tools.client.transform_buffer import Transform

tf = typer.Typer(no_args_is_help=True, help="Show transforms.")


class TransformOutput(TypedDict):
    """One line for each."""

    target: str
    source: str
    time_ns: Annotated[int, "0: it is static."]
    is_static: bool
    translation: Annotated[list[float], "x, y, z [m]."]
    rotation_xyzw: list[float]


class FrameOutput(TypedDict):
    parent: str
    is_static: bool


COMMAND = Command(tf, panel=PANEL, position=670, json={"echo": TransformOutput, "tree": dict[str, FrameOutput]})

LISTEN_S = 1.0  # for the frames that move


@tf.command()
def echo(
    target: Annotated[str, argument("TARGET", "The frame in which it is expressed, such as map.")],
    source: Annotated[str, argument("SOURCE", "The frame whose pose is printed, such as rover/base_link.")],
    given_rate: Annotated[
        float | None, argument("[RATE]", "How many times per second to print, as --rate.", min=0.001, max=1000.0)
    ] = None,
    once: OnceOption = False,
    rate: Annotated[float, option("--rate -r HZ", "How often to print.", min=0.001, max=1000.0)] = 1.0,
    as_json: JsonOption = False,
    timeout: Annotated[float, option("--timeout S", "How long to wait for the frames.", min=0.1)] = 3.0,
) -> None:
    """Print where a frame is in another one.

    \b
    Examples:
      microsim tf echo map rover/base_link
      microsim tf echo map drone/camera_link --once --json
    """
    rate = rate if given_rate is None else given_rate
    with connected(None) as node:
        start, count, last = time.monotonic(), 0, None
        while True:
            found = node.lookup_transform(target, source, timeout=timeout)
            if found != last:
                _print(found, as_json)
            last, count = found, count + 1
            if once:
                return
            time.sleep(max(0.0, start + count / rate - time.monotonic()))


def _print(found: Transform, as_json: bool) -> None:
    if as_json:
        answer: dict[str, Any] = {"target": found.target, "source": found.source, "time_ns": max(found.time_ns, 0)}
        answer |= {"is_static": found.time_ns < 0, "translation": list(found.translation)}
        print(json_text({**answer, "rotation_xyzw": list(found.rotation)}), flush=True)
        return
    when = "static" if found.time_ns < 0 else f"at {found.time_ns / 1e9:.3f} s"
    x, y, z, w = found.rotation
    turned = ", ".join(f"{math.degrees(each):.2f}" for each in found.rpy)
    print(f"{found.source} in {found.target}, {when}")
    print("  translation  [{:.4f}, {:.4f}, {:.4f}] m".format(*found.translation))
    print(f"  rotation     [{x:.4f}, {y:.4f}, {z:.4f}, {w:.4f}] (x, y, z, w)")
    print(f"  rpy          [{turned}] deg", flush=True)


@tf.command()
def tree(as_json: JsonOption = False) -> None:
    """Show all frames as a tree, after listening for a second.

    \b
    Examples:
      microsim tf tree
      microsim tf tree --json
    """
    with connected(None) as node:
        buffer = node.transforms
        time.sleep(LISTEN_S)
        parents = buffer.parents()
        if not parents:
            from microsim.parts.live_tools.client.transform_buffer import TF_TYPE

            with node.subscribe("/tf", type=TF_TYPE) as subscription:
                raise UsageError(f"no transforms: {'; '.join(subscription.why_silent())}")
    if as_json:
        print_json(
            {name: {"parent": parent, "is_static": static} for name, (parent, static) in sorted(parents.items())}
        )
        return
    for root in sorted({parent for parent, _ in parents.values()} - {*parents}):
        print(root)
        _print_children(root, parents, "", {root})


def _print_children(frame: str, parents: Mapping[str, tuple[str, bool]], indent: str, seen: set[str]) -> None:
    children = sorted(name for name, (parent, _) in parents.items() if parent == frame and name not in seen)
    for index, name in enumerate(children):
        is_last = index == len(children) - 1
        print(f"{indent}{'└─' if is_last else '├─'} {name}{'  (static)' if parents[name][1] else ''}")
        _print_children(name, parents, indent + ("   " if is_last else "│  "), {*seen, name})
