"""What joins a run: a recorder, the ROS 2 node, the web page, a mission. The run knows none of them by name.

An attachment is one class in the module `attachment` of its part's folder, named by the constant `ATTACHMENT`:

    class Trace(Attachment):
        name, options = "trace", TraceOptions

        @contextmanager
        def attach(self, run: Run) -> Iterator[None]:
            run.runner.listen(messages=self._write)
            yield

Other packages add one through the entry point group `microsim.attachments`. `microsim run`, `replay` and `demo` offer
the options of all attachments, let each prepare the plan, make the simulation, and attach each in the same order.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

from microsim.errors import UsageError
from microsim.options import given
from microsim.registry import Registry, is_subclass
from microsim.shipped import Chosen

if TYPE_CHECKING:
    from microsim.messages.outbox import Message
    from microsim.runner import Runner
    from microsim.scenario import Scenario
    from microsim.simulation import Simulation

Kind = TypeVar("Kind", bound="Attachment")


class NoOptions(NamedTuple):
    """Of an attachment that always joins a command."""


class Attachment:
    """Something that joins a run, with the options that the user gave.

    It joins a run where one of its options was given; where its command is among `always`, or it has no options there,
    in any case. `attach` is what most of them write.
    """

    name: ClassVar[str]
    options: ClassVar[type[Any] | Mapping[str, type[Any]]] = NoOptions  # a `NamedTuple`, or one for each command
    commands: ClassVar[tuple[str, ...]] = ("run", "replay", "demo")  # that it joins, if `options` does not name them
    always: ClassVar[tuple[str, ...]] = ()  # commands that it joins without any of its options, too
    position: ClassVar[int] = 1000  # prepares and attaches in this order, and leaves in the opposite one
    json: ClassVar[Mapping[str, Any]] = {}  # by command: a `TypedDict` of what it adds to `--json`
    json_instead: ClassVar[Mapping[str, Any]] = {}  # by command: what `--json` prints where `instead` replaced the run
    rehearsal: str = ""  # names what `rehearse` compiles; empty: nothing

    def __init__(self, given: Any = None) -> None:
        self.given: Any = NoOptions() if given is None else given

    @classmethod
    def options_for(cls, command: str) -> type[Any] | None:
        """The options that a command gets from it; None: it does not join that command."""
        if isinstance(cls.options, Mapping):
            return cls.options.get(command)
        return cls.options if command in cls.commands else None

    @property
    def given_names(self) -> list[str]:
        """Its options that the user gave, each by its first name."""
        return given(self.given)

    def prepare(self, plan: Plan) -> None:
        """Look at what is to run, and change it, before there is a simulation; refuse what cannot be."""

    def instead(self, plan: Plan, options: Any) -> int | None:
        """Do something else in place of the run, with the options of the command; the exit code. None: it runs."""
        return None

    def attach(self, run: Run) -> AbstractContextManager[None]:
        """Join the run for as long as the context is open. It is left when the run has ended, also by an error."""
        return nullcontext()

    def rehearse(self, run: Run) -> AbstractContextManager[None]:
        """Join a first second that runs only so that kernels are compiled; nothing may remain of it."""
        return nullcontext()


ATTACHMENTS: Registry[type[Attachment]] = Registry(
    constant="ATTACHMENT", package="microsim", in_folders="attachment", group="microsim.attachments",
    expected="a subclass of Attachment", is_one=lambda declared: is_subclass(declared, Attachment),
    order=lambda declared: declared.position,
)  # fmt: skip


class Seekable(Protocol):
    """A recorded run that can be moved to any of its ticks; as a pilot it commands what was recorded."""

    last: int

    @property
    def ignored(self) -> int: ...  # recorded inputs that were not taken, so far

    @property
    def span(self) -> tuple[int, int]: ...

    @property
    def room(self) -> int: ...  # ticks up to the end

    def __call__(self, messages: Sequence[Message]) -> None: ...

    def move(self, tick: int, publish: Callable[[Sequence[Message]], None]) -> None: ...


class Console(Protocol):
    """Where a run says something to its user."""

    @property
    def is_quiet(self) -> bool: ...

    @property
    def is_json(self) -> bool: ...  # stdout is for the result alone

    @property
    def is_terminal(self) -> bool: ...  # stdout can be drawn on

    def note(self, text: str) -> None: ...  # unless --quiet

    def warn(self, text: object) -> None: ...  # what is wrong

    def tell(self, text: str) -> None: ...  # unless --quiet, on stdout


class SilentConsole:
    """For runs without a user, such as rehearsals."""

    is_quiet, is_json, is_terminal = True, False, False

    def note(self, text: str) -> None:
        pass

    def warn(self, text: object) -> None:
        pass

    def tell(self, text: str) -> None:
        pass


@dataclass
class Plan:
    """What is to run, before there is a simulation. None: not given."""

    command: str  # that runs it
    scenario: Scenario | str | None = None
    seed: int | None = None
    duration: float | None = None  # simulated [s]
    rtf: float | None = None
    given: tuple[str, ...] = ()  # every option that the user gave, by its first name
    plugins: Sequence[Path] = ()  # folders whose code may run
    ros_args: tuple[str, ...] = ()
    attachments: Sequence[Attachment] = ()
    console: Console = field(default_factory=SilentConsole)
    stack: ExitStack = field(default_factory=ExitStack)  # closes what was opened while preparing
    first_tick: int = 0  # from which messages are sent
    takes_inputs: bool = True  # False: everything that is commanded was recorded
    moves_in_time: bool = False  # a replay: a user moves it to any of its moments
    bag: Path | None = None  # that is replayed
    again: tuple[str, ...] = ()  # the words that repeat the command, without the options of attachments

    def find(self, kind: type[Kind]) -> Kind | None:
        """The attachment of that class, for parts that build on each other."""
        return next((each for each in self.attachments if isinstance(each, kind)), None)

    def use_gates(self, gates: Sequence[Any]) -> None:
        """Run the scenario with these gates of lockstep instead of its own."""
        from microsim.scenario import load_scenario

        if self.scenario is None and any("scenario:=" in each for each in self.ros_args):
            raise UsageError("with --lockstep, give the scenario as an argument, not in --ros-args")
        plain = [gate if isinstance(gate, dict) else gate.model_dump(mode="json", exclude_unset=True) for gate in gates]
        data = load_scenario(self.scenario or "default").to_dict()
        self.scenario = load_scenario({**data, "lockstep": plain})


class Hint(NamedTuple):
    """What the user may want to do next."""

    what: str
    command: str  # can be pasted


@dataclass
class Run:
    """What an attachment joins. Everything that can be any number of is a list of `runner`."""

    runner: Runner
    plan: Plan = field(default_factory=lambda: Plan("run"))
    chosen: Chosen = field(default_factory=Chosen)  # what runs, by name
    title: str = ""  # instead of the name of what was chosen
    timeline: Seekable | None = None  # of a replay that moves in time
    display: Literal["", "page", "terminal"] = ""  # where the run is shown
    logs_warnings: bool = True  # on stderr; False: something that joined logs them
    can_branch: bool = True  # the past may be left for another future
    results: dict[str, Any] = field(default_factory=dict)  # for --json, beside the run's own
    lines: list[str] = field(default_factory=list)  # of the summary
    hints: list[Hint] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # why the run failed although it came to its end
    unfinished: list[str] = field(default_factory=list)  # what to do about it where the run is stopped at once
    begin: list[Callable[[], None]] = field(default_factory=list)  # called when all have joined, before the first tick
    has_begun: bool = False  # all have joined
    is_failed: bool = False  # the exit code says so
    error: str = ""  # that ended the run; it was reported

    @property
    def sim(self) -> Simulation:
        return self.runner.sim

    @property
    def console(self) -> Console:
        return self.plan.console

    @property
    def ticks(self) -> int | None:
        """How many are run; None: until Ctrl-C."""
        duration = self.plan.duration
        return None if duration is None else self.sim.clock.ticks_in(Fraction(str(duration)))

    @property
    def end(self) -> int | None:
        """The last tick; 0: nothing but tick 0 is sent."""
        return self.ticks and self.plan.first_tick + self.ticks

    def load(self, choice: str, report: Callable[[str], None]) -> None:
        """Continue with another demo, scenario or world that is shipped."""
        from itertools import count

        from microsim.engine.compiled import watched
        from microsim.shipped import choose

        compiled, (chosen, scenario) = count(1), choose(choice)

        def begun() -> None:
            report(f"Loading {chosen.name}: compiling kernel {next(compiled)}, on this machine for the first time")

        report(f"Loading {chosen.name}: building the world")
        before, self.chosen = (self.chosen, self.title), chosen
        self.title = ""
        try:
            with watched(begun, lambda: None):
                self.runner.load(scenario)
        except BaseException:  # Ctrl-C too: what ran before continues
            self.chosen, self.title = before
            raise

    def about(self) -> Mapping[str, Any]:
        """What runs, and what else could: for a page."""
        from microsim.shipped import choices

        chosen = self.chosen
        return {"choices": choices(), "chosen": chosen.key, "title": self.title or chosen.title, "about": chosen.about}


def shell_command(*words: str) -> str:
    """A call of this program for a shell here: `make run` calls one that is not on the path."""
    called = Path(sys.argv[0])
    if shutil.which("microsim"):
        program = ["microsim"]
    else:
        program = [str(called)] if called.name == "microsim" else [sys.executable, "-m", "microsim"]
    return shlex.join([*program, *words])
