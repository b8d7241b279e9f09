"""What the commands for a ROS 2 network have in common: options, the connection, values in and out."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from microsim.cli.command import ROS_ARGS, JsonOption
from microsim.cli.terminal import ExitCode, has_unicode, interruptible, note, print_json, warn
from microsim.options import argument, flag, option

if TYPE_CHECKING:
    from microsim.parts.live_tools.client.client_node import ClientNode
    from microsim.parts.live_tools.client.subscription import Subscription

NamesOutput = Annotated[dict[str, list[str]], "Types by name."]
MessageOutput = Annotated[Any, "A message as an object of its fields; with --field, the value of that field."]

PANEL = "ROS 2 network, with or without ROS 2"
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


StdinOption = Annotated[bool, flag("--stdin", "Read VALUES from standard input.")]
GivenArgument = Annotated[list[str] | None, argument("[TYPE] [VALUES]", "As with ros2; fields are YAML or JSON.")]


class Ros2Options(NamedTuple):
    """Options of every verb of `ros2` that need nothing here: there is no daemon, and discovery ends by itself."""

    no_daemon: Annotated[bool, flag("--no-daemon", "There is no daemon.", hidden=True)] = False
    spin_time: Annotated[float | None, option("--spin-time S", "Discovery ends by itself.", hidden=True)] = None
    use_sim_time: Annotated[bool, flag("--use-sim-time -s", "Nothing here waits for time.", hidden=True)] = False


class Ros2Names(NamedTuple):
    """How `ros2` calls the options of lists."""

    everything: Annotated[
        bool,
        flag("--include-hidden-topics --include-hidden-services --include-hidden-nodes", "--all", hidden=True),
    ] = False
    number: Annotated[
        bool, flag("--count-topics --count-services --count-actions --count-nodes", "--count", hidden=True)
    ] = False


class NameOptions(NamedTuple):
    """Of a verb about one name."""

    name: Annotated[str, argument("NAME", "Its name.")]
    json: JsonOption = False
    ros2: Ros2Options = Ros2Options()
    names: Ros2Names = Ros2Names()


class FindOptions(NamedTuple):
    type: Annotated[str, argument("TYPE", "Name of a type, such as std_srvs/srv/SetBool.")]
    only_count: CountOption = False
    json: JsonOption = False
    ros2: Ros2Options = Ros2Options()
    names: Ros2Names = Ros2Names()


def not_supported(what: str, instead: str) -> NoReturn:
    from microsim.errors import UsageError

    raise UsageError(f"{what} is not supported: {instead}")


def type_and_values(given: Sequence[str], expected: str, stdin: bool = False) -> tuple[str, str]:
    """Both, or one of them: values begin like a mapping. `stdin`: the values are on standard input."""
    from microsim.errors import UsageError

    if stdin:
        type_name, values = type_and_values(given, expected)
        if values:
            raise UsageError(f"--stdin reads VALUES from standard input; leave out {values!r}")
        return type_name, sys.stdin.read()
    if not given:
        return "", ""
    is_type = ["/" in each and not set(each) & set("{}: \n") for each in given]
    if len(given) > 2 or (len(given) == 2 and not is_type[0]):
        raise UsageError(f"expected {expected} [TYPE] [VALUES], found {' '.join(given)!r}; put quotes around VALUES")
    if len(given) == 2:
        return given[0], given[1]
    return (given[0], "") if is_type[0] else ("", given[0])


@contextmanager
def connected(types: Sequence[Path] | None, name: str = "") -> Iterator[ClientNode]:
    """A node for one command. Ctrl-C ends it quietly; a timeout is a failure."""
    from microsim.parts.live_tools.client import connect

    with interruptible(), connect(name, types=types or (), ros_args=ROS_ARGS) as node:
        try:
            yield node
        except TimeoutError as error:
            warn(error)
            raise typer.Exit(ExitCode.FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.GOOD) from None


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
    ros2: Ros2Options = Ros2Options()
    names: Ros2Names = Ros2Names()

    @property
    def has_hidden(self) -> bool:
        return self.show_all or self.names.everything

    @property
    def has_count(self) -> bool:
        return self.only_count or self.names.number


def print_type(names: Callable[[ClientNode, str], Sequence[str]], options: NameOptions) -> None:
    """The types of one name."""
    with connected(None) as node:
        found = list(names(node, options.name))
        print_json(found) if options.json else print("\n".join(found))


def print_names_with(
    names: Callable[[ClientNode], Mapping[str, Sequence[str]]], kind: str, options: FindOptions
) -> None:
    """The names whose type is a given one. Exit code 1 where there is none, as with grep."""
    parts = options.type.split("/")
    wanted = f"{parts[0]}/{kind}/{parts[1]}" if len(parts) == 2 else options.type
    with connected(None) as node:
        found = [name for name, types in names(node).items() if wanted in types]
        if options.json:
            print_json(found)
        elif options.only_count or options.names.number:
            print(len(found))
        elif found:
            print("\n".join(found))
        else:
            note(f"nothing has the type {wanted}")


def list_names(names: Callable[[ClientNode], Mapping[str, Sequence[str]]], options: ListOptions) -> None:
    """Topics, services or actions, with their types."""
    from microsim.parts.ros2.transport.graph_view import is_hidden

    with connected(None) as node:
        found = names(node)
        shown = {name: list(types) for name, types in found.items() if options.has_hidden or not is_hidden(name)}
        if options.json:
            print_json(shown)
        elif options.has_count:
            print(len(shown))
        else:
            for name, types in shown.items():
                print(f"{name} [{', '.join(types)}]" if options.show_types else name)
        explain_nothing(node, not found)


def explain_nothing(node: ClientNode, is_empty: bool) -> None:
    """On stderr, when no other node was found."""
    if is_empty and not node.do(node.view.others):
        from microsim.parts.live_tools.client.reasons import nobody_there

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


class TextForm(NamedTuple):
    """How messages are printed."""

    is_json: bool = False
    is_csv: bool = False
    is_flow: bool = False
    longest: int | None = LONGEST  # elements of a list, characters of a text in the forms of ros2; None: all
    without_arrays: bool = False
    without_text: bool = False


class FormOptions(NamedTuple):
    """How messages are printed, as in ros2."""

    full: Annotated[bool, flag("--full-length --full -f", "Print long lists and text completely.")] = False
    longest: Annotated[int, option("--truncate-length -l N", "Print so many elements of a list.", min=1)] = LONGEST
    no_arrays: Annotated[bool, flag("--no-arr", "Print the length of a list in place of its elements.")] = False
    no_text: Annotated[bool, flag("--no-str", "Print the length of a text in place of it.")] = False
    csv: Annotated[bool, flag("--csv", "Print the values of a message on one line, with commas between them.")] = False
    flow: Annotated[bool, flag("--flow-style", "Print a message on one line, in braces.")] = False

    def of(self, is_json: bool) -> TextForm:
        longest = None if self.full else self.longest
        return TextForm(is_json, self.csv, self.flow, longest, self.no_arrays, self.no_text)


def print_message(message: Any, field: str, as_json: bool, full: bool) -> None:
    """A message, or a field of it."""
    print_message_as(message, field, TextForm(as_json, longest=None if full else LONGEST))


def print_message_as(message: Any, field: str, form: TextForm) -> None:
    from microsim.messages.mappings import field_at

    print_plain(plain_form(field_at(message, field) if field else message, form), form)


def plain_form(value: Any, form: TextForm) -> Any:
    """A message or a part of one as plain data."""
    from microsim.messages.mappings import to_plain

    return to_plain(value, form.longest if not form.is_json and not form.without_arrays else None, form.is_json)


def print_plain(plain: Any, form: TextForm) -> None:
    if form.without_arrays or form.without_text:
        plain = _shortened(plain, form)
    if form.is_json:
        print(json_text(plain), flush=True)
    elif form.is_csv:
        print(",".join(map(_csv_cell, _leaves(plain))), flush=True)
    else:
        print(_flow_text(plain) if form.is_flow else yaml_text(plain), flush=True)


def _shortened(value: Any, form: TextForm) -> Any:
    if isinstance(value, Mapping):
        return {key: _shortened(each, form) for key, each in value.items()}
    if isinstance(value, list):
        return f"<list of {len(value)}>" if form.without_arrays else [_shortened(each, form) for each in value]
    return f"<text of {len(value)}>" if form.without_text and isinstance(value, str) else value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (Mapping, list)):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(each)
    else:
        yield value


def _csv_cell(value: Any) -> str:
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text


def _flow_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_flow_text(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow_text, value))}]"
    return _one_line(value)
