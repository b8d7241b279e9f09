"""The verbs that topics, services and actions have in common: `list`, `type`, `find` and `info`, in one shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typing_extensions import TypedDict

from microsim.cli.command import JsonOption, with_options
from microsim.cli.terminal import print_json
from microsim.options import argument, flag
from microsim.parts.live_tools.live import (
    CountOption,
    FindOptions,
    ListOptions,
    NameOptions,
    Ros2Names,
    Ros2Options,
    connected,
    list_names,
    print_names_with,
    print_type,
)

if TYPE_CHECKING:
    from microsim.parts.live_tools.client.client_node import ClientNode

_TYPES = flag("--show-types -t", "The types are shown in any case.", hidden=True)


class SidesOptions(NamedTuple):
    """Of `info` about a service or an action."""

    name: Annotated[str, argument("NAME", "Its name.")]
    only_count: CountOption = False
    json: JsonOption = False
    show_types: Annotated[bool, _TYPES] = False
    ros2: Ros2Options = Ros2Options()
    names: Ros2Names = Ros2Names()


class Sides(TypedDict):
    types: list[str]
    servers: Annotated[list[str], "Names of nodes."]
    clients: list[str]


@dataclass(frozen=True)
class Named:
    """What has names and types on a ROS 2 network."""

    word: str  # in sentences, and the key of its name in JSON
    folder: str  # of its types: msg, srv, action
    example: str
    example_type: str
    names: Callable[[ClientNode], Mapping[str, Sequence[str]]]
    types_of: Callable[[ClientNode, str], Sequence[str]]
    request: str = ""  # topic of requests to {name}, of those that have servers
    has_hidden: bool = False  # its lists contain hidden names

    def add_list(self, app: typer.Typer) -> None:
        def work(options: ListOptions) -> None:
            list_names(self.names, options._replace(show_all=True) if self.has_hidden else options)

        self._add(app, "list", work, f"List the {self.word}s.", f"list\n{self._command('list -t')}")

    def add_type_and_find(self, app: typer.Typer) -> None:
        def type_(options: NameOptions) -> None:
            print_type(self.types_of, options)

        def find(options: FindOptions) -> None:
            print_names_with(self.names, self.folder, options)

        article = "an" if self.word[0] in "aeiou" else "a"
        self._add(app, "type", type_, f"Print the type of {article} {self.word}.", f"type {self.example}")
        self._add(app, "find", find, f"List the {self.word}s of a type.", f"find {self.example_type}")

    def add_info(self, app: typer.Typer, about: str) -> None:
        """`info` about who serves it and who calls it."""

        def info(options: SidesOptions) -> None:
            with connected(None) as node:
                types = self.types_of(node, options.name)
                name = node.absolute(options.name, self.word)
                node.settle()
                request = f"rq{self.request.format(name=name)}Request"
                sides = {side: node.owners(request, side == "clients") for side in ("servers", "clients")}
            if options.json:
                print_json({self.word: name, "types": types, **sides})
                return
            print(f"{name}\n  type     {', '.join(types)}")
            for side, owners in sides.items():
                listed = [] if options.only_count else [f"    {owner}" for owner in owners]
                print("\n".join([f"  {side}  {len(owners)}", *listed]))

        self._add(app, "info", info, about, f"info {self.example}")

    def _command(self, words: str) -> str:
        return f"  microsim {self.word} {words}"

    def _add(self, app: typer.Typer, verb: str, work: Callable[..., Any], about: str, example: str) -> None:
        work.__doc__ = f"{about}\n\n\b\nExamples:\n{self._command(example)}\n"
        app.command(verb)(with_options(work))
