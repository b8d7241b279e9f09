"""What a command is, how commands are found, and how their options are declared and read.

A command is one file in `microsim/cli/commands/`, or in the folder `commands` of a part, with its options, its help and
its work, and one constant:

    COMMAND = Command(diff, panel="Recordings", position=220)

The file's name is the command's name: `sim_rover.py` is `microsim sim-rover`. A file with
`COMMAND = renamed("policy train")` is a name of the version before: it works, with a hint. Other packages add a command
through the entry point group `microsim.commands`: the entry point's name is the command's name, its object a `Command`.

`microsim --help` imports every command, so a command imports what is heavy inside its functions.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce, wraps
from operator import or_
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from microsim.cli.terminal import guarded_output, set_quiet, warnings_as_sentences
from microsim.errors import PluginError, UsageError
from microsim.options import Option, Parser, argument, flag, given, option, options_in, simulated_time
from microsim.registry import Registry, code_only_from, trust

if TYPE_CHECKING:
    from microsim.attachment import Attachment


class Command(NamedTuple):
    """`work` is a function, or a `typer.Typer` with several: `microsim bag info`, `microsim bag repair`.

    A function's parameters are the options, its docstring is the help, and it returns the exit code (None: 0). One with
    many options takes them as one `NamedTuple`, see `with_options`. One that attachments join takes them as its second
    parameter.
    """

    work: Callable[..., int | None] | typer.Typer
    panel: str = "Other commands"  # heading in `microsim --help`
    position: int = 1000  # place among all commands; a panel stands where its first command does
    is_joined: bool = False  # by attachments, see `microsim.attachment`
    json: Any = None  # what `--json` prints (`json_schemas`), or gives it; of a group, by the names of its commands
    now: str = ""  # of a former name: the words that are typed instead

    @property
    def summary(self) -> str:
        """The first sentence of the help: what `microsim --help` shows."""
        help_of = self.work.info.help if isinstance(self.work, typer.Typer) else self.work.__doc__
        text = inspect.cleandoc(help_of or "")
        return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")

    def outputs(self, name: str) -> dict[str, Any]:
        """Each command that has `--json`, such as `bag info`, and what it prints."""
        if self.json is None:
            return {}
        if isinstance(self.json, dict):
            return {f"{name} {each}": kind for each, kind in self.json.items()}
        return {name: self.json() if isinstance(self.json, FunctionType) else self.json}

    def add_to(self, app: typer.Typer, name: str) -> None:
        if isinstance(self.work, typer.Typer):
            for each in self.work.registered_commands:
                assert each.callback is not None
                each.callback = with_options(each.callback)
            app.add_typer(self.work, name=name)
            return
        if self.is_joined:
            work, known = joined_by(self.work, attachments(), name)
        else:
            work, known = with_options(self.work), options_of(self.work)
        app.command(name, cls=type("CommandWithOptions", (OptionsAsTyped,), {"known": known}))(work)


def renamed(now: str) -> Command:
    """A former name of a command. It is in no list."""

    def work() -> None:
        """Not called: see `Commands.resolve_command`."""

    return Command(work, now=now)


def say_new_name(former: str, now: str) -> None:
    typer.echo(f"microsim: {former} is now {now}; the old name will not work in the next version", err=True)


class OptionsAsTyped(TyperCommand):
    """What typer cannot: options whose value may be left out (`--foxglove --seed 3`), and former names of options.

    A number that follows is the value.
    """

    known: ClassVar[Mapping[str, Option]] = {}  # by each of their names

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        former = {name: each.names[0] for each in self.known.values() for name in each.former}
        values = {name: each.without_value for name, each in self.known.items() if each.without_value is not None}
        complete = []
        for word, after in zip(args, [*args[1:], ""], strict=False):
            if word in former:
                say_new_name(word, former[word])
            has_value = word not in values or after.isdecimal()
            complete.append(former.get(word, word) if has_value else f"{word}={values[word]}")
        return super().parse_args(ctx, complete)


# ---- finding commands ------------------------------------------------------------------------------------------------


class Commands(TyperGroup):
    """Every command, in order. A command's file is imported when the command is used, all of them for `--help`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._is_complete = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and not self._is_complete:
            shipped = COMMANDS.find(cmd_name) if cmd_name in COMMANDS.built_in_names else None
            if shipped is not None:
                self.commands.update(_built({cmd_name: shipped}))
            else:
                self.list_commands(ctx)
        return self.commands.get(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        if not self._is_complete:
            self.commands = _built(_listed())
            self._is_complete = True
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, as_named_now(args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """All commands on one screen: without building their options, which takes a tenth of a second."""
        print_overview(_listed())

    def invoke(self, ctx: Any) -> None:
        # no code but installed plug-ins, and what options name, which are read in there
        with guarded_output(), warnings_as_sentences(), code_only_from(()):
            code = super().invoke(ctx)
        raise typer.Exit(code or 0)


def _listed() -> dict[str, Command]:
    """All but former names, in order."""
    return {name: each for name, each in COMMANDS.loadable(_report).items() if not each.now}


def as_named_now(words: list[str]) -> list[str]:
    """With the name that the command has now, and a hint if another was typed."""
    named = COMMANDS.find(words[0]) if words and words[0] in COMMANDS.built_in_names else None
    if named is None or not named.now:
        return words
    say_new_name(f"`microsim {words[0]}`", f"`microsim {named.now}`")
    return [*named.now.split(), *words[1:]]


_ABOUT = """\
MicroSim: a deterministic robot simulator that speaks ROS 2. The same scenario,
seed and commands give the same messages, byte for byte, on every machine."""


def print_overview(commands: Mapping[str, Command]) -> None:
    """`microsim --help`: a line for each command, in groups."""
    width = max(map(len, commands)) + 2
    lines = [_ABOUT]
    for panel in dict.fromkeys(each.panel for each in commands.values()):
        lines.append(typer.style(panel, bold=True))
        lines += [f"  {name:<{width}}{each.summary}" for name, each in commands.items() if each.panel == panel]
    lines.append("New here? Try: microsim demo oval --open. Help on a command: microsim run --help")
    typer.echo("\n".join(lines))


def _built(found: Mapping[str, Command]) -> dict[str, Any]:
    """As typer builds them, in order."""
    app = typer.Typer(add_completion=False)
    app.callback()(lambda: None)  # makes it a group, also of a single command
    for name, command in found.items():
        command.add_to(app, name)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    _take_negative_numbers(group)
    return {name: group.commands[name] for name in found}


_NEGATIVE = re.compile(r"-\.?(\d|inf\b|nan\b)", re.IGNORECASE)


def _take_negative_numbers(command: Any) -> None:
    """`-18,-8` and `-1` are arguments of a command and of all below it: no option begins with a digit."""
    for each in getattr(command, "commands", {}).values():
        _take_negative_numbers(each)
    if isinstance(command, TyperGroup):
        return
    make_parser = command.make_parser

    def parser_of(ctx: Any) -> Any:
        parser = make_parser(ctx)
        as_option = parser._process_opts

        def process(argument: str, state: Any) -> None:
            if _NEGATIVE.match(argument):
                state.largs.append(argument)
            else:
                as_option(argument, state)

        parser._process_opts = process
        return parser

    command.make_parser = parser_of


COMMANDS: Registry[Command] = Registry(
    constant="COMMAND", package="microsim", in_folders="commands", group="microsim.commands", is_named_by_file=True,
    expected="a microsim.cli.command.Command", is_one=lambda declared: isinstance(declared, Command),
    order=lambda declared: declared.position,
)  # fmt: skip


def json_outputs() -> dict[str, Any]:
    """What every command that ships prints with `--json`, in the order of the commands."""
    found = COMMANDS.built_in
    ordered = sorted(found, key=lambda name: (found[name].position, name))
    return {each: kind for name in ordered for each, kind in _output(found[name], name).items()}


def _output(command: Command, name: str) -> dict[str, Any]:
    """With what attachments add, and print instead."""
    if not command.is_joined:
        return command.outputs(name)
    from microsim.attachment import ATTACHMENTS
    from microsim.cli.json_schemas import with_fields

    added, instead = (
        [declared[name] for each in ATTACHMENTS.built_in.values() if name in (declared := getattr(each, field))]
        for field in ("json", "json_instead")
    )
    return {each: reduce(or_, [with_fields(kind, *added), *instead]) for each, kind in command.outputs(name).items()}


def _report(error: PluginError) -> None:
    typer.echo(f"microsim: {error}", err=True)


def attachments() -> list[type[Attachment]]:
    """Every one that can be loaded; a package's that cannot be is named, and harms no other."""
    from microsim.attachment import ATTACHMENTS

    return [*ATTACHMENTS.loadable(_report).values()]


# ---- options ---------------------------------------------------------------------------------------------------------


def with_options(work: Callable[..., Any]) -> Any:
    """A function as typer takes it, with its options translated.

    A first parameter that is a `NamedTuple` becomes a parameter for each of its fields; a field whose default is a
    `NamedTuple` is a group of further options. Attachments, where the second parameter takes them, add theirs.
    """
    hints = get_type_hints(work, include_extras=True)
    kind = _options_kind(work, hints)
    if kind is None:
        return _translated(work, hints)

    def call(**given: Any) -> Any:
        return work(_filled(kind, given))

    return _named_like(work, call, _parameters(kind))


def _options_kind(work: Callable[..., Any], hints: Mapping[str, Any]) -> Any:
    """The `NamedTuple` that a function takes its options as, if it does."""
    kind = hints.get(next(iter(inspect.signature(work).parameters), ""))
    return kind if hasattr(kind, "_fields") else None


def options_of(work: Callable[..., Any]) -> dict[str, Option]:
    """Every option of a function, by each of its names."""
    hints = get_type_hints(work, include_extras=True)
    kind = _options_kind(work, hints)
    if kind is not None:
        return options_in(kind)
    notes = [note for each in hints.values() for note in getattr(each, "__metadata__", ())]
    found = [each for each in notes if isinstance(each, Option) and not each.is_argument]
    return {name: each for each in found for name in each.names}


def joined_by(
    work: Callable[..., Any], kinds: Sequence[type[Attachment]], name: str
) -> tuple[Callable[..., Any], dict[str, Option]]:
    """As `with_options`, for a command that attachments join: their options are parameters too.

    Also gives all options by name.
    """
    kind = get_type_hints(work)[next(iter(inspect.signature(work).parameters))]
    found = [(each, group) for each in kinds if (group := each.options_for(name)) is not None]
    groups = {f"joined{index}_": pair for index, pair in enumerate(found)}  # fields of several may have the same name
    parameters, known = list(_parameters(kind)), options_in(kind)
    for prefix, (each, group) in groups.items():
        more = options_in(group)
        for clash in sorted(known.keys() & more.keys()):
            raise PluginError(
                f"the attachment {each.name!r} has the option {clash}, which `microsim {name}` already has"
            )
        known |= more
        parameters += [parameter.replace(name=prefix + parameter.name) for parameter in _parameters(group)]

    def call(**values: Any) -> Any:
        joined = []
        for prefix, (each, group) in groups.items():
            own = {field[len(prefix) :]: value for field, value in values.items() if field.startswith(prefix)}
            options = _filled(group, own)
            if name in each.always or not options or given(options):
                joined.append(each(options))
        return work(_filled(kind, values), tuple(joined))

    return _named_like(work, call, parameters), known


def _translated(work: Callable[..., Any], hints: Mapping[str, Any]) -> Any:
    parameters = inspect.signature(work).parameters.values()
    own = [each.replace(annotation=_for_typer(hints.get(each.name, each.annotation))) for each in parameters]

    @wraps(work)
    def call(*args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)

    return _named_like(work, call, own)


def _named_like(work: Any, call: Any, parameters: Iterable[inspect.Parameter]) -> Any:
    ordered = list(parameters)
    call.__name__, call.__doc__ = work.__name__, work.__doc__
    call.__annotations__ = {each.name: each.annotation for each in ordered}
    call.__signature__ = inspect.Signature(ordered)
    return call


def _parameters(kind: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for name in kind._fields:
        default = kind._field_defaults.get(name, inspect.Parameter.empty)
        if hasattr(default, "_fields"):
            yield from _parameters(type(default))
        else:
            annotation = _for_typer(hints[name])
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _for_typer(annotation: Any) -> Any:
    notes = getattr(annotation, "__metadata__", ())
    if not (notes and isinstance(notes[0], Option)):
        return annotation
    made, settings = notes[0], dict(notes[0].settings)
    if "parser" in settings:
        settings["parser"] = _refusing(settings["parser"])
    if made.is_argument:
        info: Any = typer.Argument(metavar=made.value, help=made.text, **settings)
    else:
        info = typer.Option(*made.names, metavar=made.value, help=made.text, rich_help_panel=made.panel, **settings)
    return Annotated[annotation.__origin__, info]


def _refusing(parser: Parser) -> Parser:
    """What a parser refuses is a wrong value of its option."""

    @wraps(parser)
    def parse(text: str) -> Any:
        try:
            return parser(text)
        except UsageError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


def _filled(kind: Any, given: Mapping[str, Any]) -> Any:
    groups = {name: each for name, each in kind._field_defaults.items() if hasattr(each, "_fields")}
    own = {name: given[name] for name in kind._fields if name not in groups}
    return kind(**own, **{name: _filled(type(group), given) for name, group in groups.items()})


# ---- their values: a wrong one is refused with what is expected ------------------------------------------------------

ROS_ARGS: list[str] = []  # of this call: `--ros-args …`, which is not for typer to parse

LONGEST_S = 2**31 - 1  # what the seconds of a ROS 2 stamp can hold


def _number(text: str, least: float, most: float, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise typer.BadParameter(f"expected {what}, found {text!r}.")
    return number


def seconds(text: str | float) -> float:
    """As `simulated_time`, also written as 1e3; a number where it is an option's default."""
    text = str(text)
    with suppress(UsageError):
        text = str(float(simulated_time(text)))
    return _number(text, 0.0, LONGEST_S, f"simulated seconds from 0 to {LONGEST_S:,}, such as 60, 2min or 500ms")


def real_time_factor(text: str) -> float:
    expected = "0 (as fast as possible) or a factor from 0.001 to 100,000"
    return _number(text, 0.001, 100_000.0, expected) if _number(text, 0.0, 100_000.0, expected) else 0.0


def seed_value(text: str) -> int:
    with suppress(ValueError):
        seed = int(text.strip(), 10)
        if -(2**63) <= seed < 2**63:
            return seed
    raise typer.BadParameter(f"expected a 64-bit integer, found {text!r}.")


# ---- options of several commands -------------------------------------------------------------------------------------

JsonOption = Annotated[bool, flag("--json", "Print one line of JSON.")]
ResultJsonOption = Annotated[bool, flag("--json", "Print the result as one line of JSON, and nothing else on stdout.")]
_QUIET = "Print no progress and no summary: only --json, --digest and errors."
QuietOption = Annotated[bool, flag("--quiet -q", _QUIET, callback=set_quiet)]
_PLUGINS = "A folder of plug-ins whose code may run; repeatable."


def _trusted(folders: list[Path] | None) -> list[Path] | None:
    trust(folders or ())
    return folders


PluginsOption = Annotated[list[Path] | None, option("--plugins FOLDER", _PLUGINS, callback=_trusted)]
_CONTROLLER = (
    "Let a file command a robot: Python code with `control(seen)` or a class `Controller`. With several robots, "
    "`rover=FILE` says which, and `*=FILE` is one controller of all. Repeatable."
)


def _trusted_files(texts: list[str] | None) -> list[str] | None:
    """A file that the user names may run, and what it imports from its folder."""
    for text in texts or ():
        trust([Path(text).parent, Path(text.partition("=")[2] or text).parent])
    return texts


ControllerOption = Annotated[list[str] | None, option("--controller FILE", _CONTROLLER, callback=_trusted_files)]
PolicyArgument = Annotated[str, argument("POLICY", "The file of a policy, or a task that has a shipped one.")]
WorldThreadsOption = Annotated[int, option("--threads N", "Share the worlds, and torch's work, among threads.", min=1)]
WORLD_THREADS = min(os.cpu_count() or 1, 2)  # by default
TimeoutOption = Annotated[float, option("--timeout S", "Longest wall time of one run.", min=0.1)]
BagArgument = Annotated[Path, argument("BAG", "A recording: its folder, or one of its files.")]


def words_of(values: list[str] | None) -> tuple[str, ...]:
    """`a,b` and `a` `b` alike; a file may have a comma in its name."""
    split = [[value] if Path(value).exists() else value.split(",") for value in values or ()]
    return tuple(word for words in split for word in words if word)
