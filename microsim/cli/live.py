"""What the commands for a ROS 2 network have in common: options, the connection, values in and out."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from microsim.cli.command import ROS_ARGS, JsonOption
from microsim.cli.terminal import FAILED, GOOD, has_unicode, interruptible, note, print_json, warn
from microsim.options import argument, flag, option

if TYPE_CHECKING:
    from microsim.ros2.client.client_node import ClientNode
    from microsim.ros2.client.subscription import Subscription

PANEL = "ROS 2 network (no ROS 2 needed)"
EXPLAIN_S = 2.0  # of silence, until it is explained
LONGEST = 128  # elements of a list that are shown as text

_TYPES = "Folder with .msg, .srv, .action or .idl files that define further types; may be repeated."
TypesOption = Annotated[list[Path] | None, option("--types DIR", _TYPES)]
AllOption = Annotated[bool, flag("--all -a", "Also show hidden names, such as the parts of actions.")]
ShowTypesOption = Annotated[bool, flag("--show-types -t", "Show the types too.")]
CountOption = Annotated[bool, flag("--count -c", "Print only how many there are.")]
OnceOption = Annotated[bool, flag("--once", "Print once and exit.")]
ValuesArgument = Annotated[str, argument("VALUES", "Fields as YAML or JSON; those left out keep their defaults.")]
WithinOption = Annotated[
    float | None, option("--timeout S", "Exit with code 1 after this time without a result.", min=0.1)
]
AnswerOption = Annotated[float, option("--timeout S", "How long to wait for an answer.", min=0.1)]


@contextmanager
def connected(types: Sequence[Path] | None) -> Iterator[ClientNode]:
    """A node for one command. Ctrl-C ends it quietly; a timeout is a failure."""
    from microsim.ros2.client import connect

    with interruptible(), connect(types=types or (), ros_args=ROS_ARGS) as node:
        try:
            yield node
        except TimeoutError as error:
            warn(error)
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(GOOD) from None


def read_values(text: str) -> dict[str, Any]:
    """VALUES of a message or request."""
    from microsim.documents.yaml_text import read_yaml
    from microsim.errors import UsageError, show

    data = read_yaml(text, "VALUES").data
    if not isinstance(data, Mapping):
        raise UsageError(f"VALUES: expected fields such as '{{data: 1}}', found {show(data)}")
    return dict(data)


def messages_of(subscription: Subscription, timeout_s: float | None) -> Iterator[Any]:
    """Every message; silence is explained on stderr, and ends after `timeout_s`."""
    begun, told = time.monotonic(), ""
    while True:
        message = subscription.wait(EXPLAIN_S if timeout_s is None else min(EXPLAIN_S, timeout_s))
        if message is not None:
            begun, told = time.monotonic(), ""
            yield message
            continue
        reasons = "; ".join(subscription.why_silent())
        if timeout_s is not None and time.monotonic() - begun >= timeout_s:
            raise TimeoutError(f"nothing arrived on {subscription.topic} within {timeout_s:g} s: {reasons}")
        if reasons != told:
            note(f"waiting for {subscription.topic}: {reasons}")
            told = reasons


class ListOptions(NamedTuple):
    show_types: ShowTypesOption = False
    show_all: AllOption = False
    only_count: CountOption = False
    json: JsonOption = False


def list_names(names: Callable[[ClientNode], Mapping[str, Sequence[str]]], options: ListOptions) -> None:
    """Topics, services or actions, with their types."""
    from microsim.ros2.transport.graph_view import is_hidden

    with connected(None) as node:
        found = names(node)
        shown = {name: list(types) for name, types in found.items() if options.show_all or not is_hidden(name)}
        if options.json:
            print_json(shown)
        elif options.only_count:
            print(len(shown))
        else:
            for name, types in shown.items():
                print(f"{name} [{', '.join(types)}]" if options.show_types else name)
        explain_nothing(node, not found)


def explain_nothing(node: ClientNode, is_empty: bool) -> None:
    """On stderr, when no other node was found."""
    if is_empty and not node.do(node.view.others):
        from microsim.ros2.client.reasons import nobody_there

        note("; ".join(nobody_there()))


# ---- values as text --------------------------------------------------------------------------------------------------

_PLAIN_TEXT = re.compile(r"[A-Za-z_/][\w/ .-]*(?<! )", re.ASCII)
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "nan", "inf", "y", "n"}


def yaml_text(value: Any, indent: str = "") -> str:
    """Plain data as YAML: mappings in lines, lists of numbers in one."""
    if isinstance(value, Mapping):
        return (
            "\n".join(_entry(f"{indent}{key}:", each, f"{indent}  ") for key, each in value.items()) or f"{indent}{{}}"
        )
    if _is_nested(value):
        return "\n".join(_item(each, indent) for each in value)
    return indent + _one_line(value)


def _is_nested(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(each, (Mapping, list)) for each in value)


def _entry(start: str, value: Any, indent: str) -> str:
    is_long = _is_nested(value) or (isinstance(value, Mapping) and value)
    return f"{start}\n{yaml_text(value, indent)}" if is_long else f"{start} {_one_line(value)}"


def _item(value: Any, indent: str) -> str:
    text = yaml_text(value, f"{indent}  ")
    return f"{indent}- {text[len(indent) + 2 :]}"


def _one_line(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_one_line, value))}]"
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, str):
        is_plain = _PLAIN_TEXT.fullmatch(value) and value.lower() not in _WORDS
        if is_plain:
            return value
        return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(value, ensure_ascii=False))
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return repr(value) if isinstance(value, float) else str(value)


def json_text(value: Any) -> str:
    """On one line; numbers that JSON lacks become text."""
    try:
        return json.dumps(value, ensure_ascii=not has_unicode(), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=not has_unicode())


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def print_message(message: Any, field: str, as_json: bool, full: bool) -> None:
    """A message, or a field of it."""
    from microsim.messages.mappings import field_at, to_plain

    value = field_at(message, field) if field else message
    if as_json:
        print(json_text(to_plain(value, in_base64=True)), flush=True)
    else:
        print(yaml_text(to_plain(value, None if full else LONGEST)), flush=True)
