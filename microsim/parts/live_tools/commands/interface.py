"""`microsim interface`: definitions of messages, services and actions, without ROS 2."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from microsim.cli.command import Command, with_options
from microsim.cli.terminal import ExitCode, note
from microsim.options import argument, flag
from microsim.parts.live_tools.live import PANEL, TypesOption, yaml_text

interface = typer.Typer(no_args_is_help=True, help="Show the definitions of messages, services and actions.")
COMMAND = Command(interface, panel=PANEL, position=660)

_PARTS = {"msg": ("",), "srv": ("_Request", "_Response"), "action": ("_Goal", "_Result", "_Feedback")}
_TITLES = {"msg": "Messages", "srv": "Services", "action": "Actions"}

TypeArgument = Annotated[str, argument("TYPE", "Name of a type, such as geometry_msgs/msg/Twist; - reads it.")]


class KindOptions(NamedTuple):
    """Which kinds are listed; without any of them, all."""

    messages: Annotated[bool, flag("--only-msgs -m", "List the messages.")] = False
    services: Annotated[bool, flag("--only-srvs -s", "List the services.")] = False
    actions: Annotated[bool, flag("--only-actions -a", "List the actions.")] = False
    types: TypesOption = None

    @property
    def kinds(self) -> list[str]:
        chosen = {"msg": self.messages, "srv": self.services, "action": self.actions}
        return [kind for kind, is_chosen in chosen.items() if is_chosen or not any(chosen.values())]


class ShowOptions(NamedTuple):
    type: TypeArgument
    all_comments: Annotated[bool, flag("--all-comments", "Definitions are shown without comments.", hidden=True)] = (
        False
    )
    no_comments: Annotated[bool, flag("--no-comments", "Definitions are shown without comments.", hidden=True)] = False
    types: TypesOption = None


@interface.command()
@with_options
def show(options: ShowOptions) -> None:
    """Print the fields and constants of a type, with those of the types in it.

    \b
    Examples:
      microsim interface show geometry_msgs/msg/Twist
      microsim topic type /rover/odom | microsim interface show -
      microsim interface show dock_msgs/action/Dock --types ~/ws/src/dock_msgs
    """
    name = _found(options.type, options.types)
    parts = [list(_lines(f"{name}{part}", "")) for part in _PARTS[name.split("/")[1]]]
    print("\n---\n".join("\n".join(lines) for lines in parts).replace("\n\n", "\n").strip("\n"))


class ProtoOptions(NamedTuple):
    type: TypeArgument
    no_quotes: Annotated[bool, flag("--no-quotes", "Leave out the quotes around it.")] = False
    types: TypesOption = None


@interface.command()
@with_options
def proto(options: ProtoOptions) -> None:
    """Print a message, request or goal with every field at its default, to be filled in.

    \b
    Examples:
      microsim interface proto geometry_msgs/msg/Twist
      microsim interface proto std_srvs/srv/SetBool --no-quotes
    """
    from microsim.messages import from_mapping
    from microsim.messages.mappings import to_plain

    name = _found(options.type, options.types)
    made = from_mapping(f"{name}{_PARTS[name.split('/')[1]][0]}", {}, defaults=True)
    quote = "" if options.no_quotes else '"'
    print(f"{quote}{yaml_text(to_plain(made))}\n{quote}")


@interface.command("list")
@with_options
def list_interfaces(options: KindOptions) -> None:
    """List all types that are known here: messages, services and actions.

    \b
    Examples:
      microsim interface list
      microsim interface list --only-srvs
    """
    known = _known(options.types)
    for kind in options.kinds:
        print("\n    ".join([f"{_TITLES[kind]}:", *(name for name in known if name.split("/")[1] == kind)]))


class PackageOptions(NamedTuple):
    package: Annotated[str, argument("PACKAGE", "Name of a package, such as geometry_msgs.")]
    kinds: KindOptions = KindOptions()


@interface.command()
@with_options
def package(options: PackageOptions) -> int:
    """List the types of a package.

    \b
    Examples:
      microsim interface package geometry_msgs
    """
    from microsim.errors import UsageError, did_you_mean

    known = [name.split("/") for name in _known(options.kinds.types)]
    packages = sorted({parts[0] for parts in known})
    if options.package not in packages:
        guess = did_you_mean(options.package, packages)
        raise UsageError(
            f"unknown package {options.package!r}{guess or ';'} `microsim interface packages` lists all of them"
        )
    found = ["/".join(parts) for parts in known if parts[0] == options.package and parts[1] in options.kinds.kinds]
    if not found:
        note(f"{options.package} has none")
    print("\n".join(found), end="\n" if found else "")
    return ExitCode.GOOD if found else ExitCode.FAILED


@interface.command()
@with_options
def packages(options: KindOptions) -> None:
    """List the packages that define types.

    \b
    Examples:
      microsim interface packages
    """
    known = [name.split("/") for name in _known(options.types)]
    print("\n".join(sorted({parts[0] for parts in known if parts[1] in options.kinds})))


def _known(folders: Sequence[Path] | None) -> list[str]:
    """Names of types: those that ship with MicroSim, of these folders, and of an installed ROS 2."""
    from microsim.messages.type_files import add_types, installed_types, known_types

    for folder in folders or ():
        add_types(folder)
    return sorted({*known_types(), *installed_types()})


def _found(type_name: str, folders: Sequence[Path] | None) -> str:
    """The full name of a type; UsageError where it is not known."""
    from microsim.errors import UsageError
    from microsim.messages.type_files import add_types, find_type, no_type

    name = sys.stdin.readline().strip() if type_name == "-" else type_name
    if not name:
        raise UsageError("expected the name of a type on standard input, found nothing")
    for folder in folders or ():
        add_types(folder)
    parts = name.split("/")
    choices = [f"{parts[0]}/{kind}/{parts[1]}" for kind in _PARTS] if len(parts) == 2 else [name]
    for each in choices:
        if each.split("/")[1:2] and each.split("/")[1] in _PARTS and find_type(each):
            return each
    raise no_type(name)


def _lines(type_name: str, indent: str) -> Iterator[str]:
    """Constants and fields, as in a .msg file; below a field, indented, those of its type."""
    from microsim.messages.definition_text import constant_lines, field_lines

    yield from (f"{indent}{line}" for line in constant_lines(type_name))
    for line, within in field_lines(type_name):
        yield f"{indent}{line}"
        if within:
            yield from _lines(within, f"{indent}\t")
