"""Where a run is shown: on a web page, or on the dashboard in the terminal."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from microsim.attachment import Attachment, Hint, Plan, Run, shell_command
from microsim.errors import UsageError
from microsim.options import flag, option

if TYPE_CHECKING:
    from microsim.cli.commands.replay import ReplayOptions
    from microsim.parts.view.web import RunControls, SliderTimeline

_HOST = "Serve the page on another address, such as 0.0.0.0; it then requires the token in the printed address."
_PORT = "First port to try; 0: any free port."
OpenOption = Annotated[bool, flag("--open", "Show it and open it in a browser.")]
HostOption = Annotated[str | None, option("--view-host HOST", _HOST, show_default="127.0.0.1")]
PortOption = Annotated[int | None, option("--view-port N", _PORT, min=0, max=65535, show_default="8080")]


class PageOptions(NamedTuple):
    """Any of them asks for the page."""

    view: Annotated[bool, flag("--view", "Show the run on a web page, served on this machine only.")] = False
    open: OpenOption = False
    view_host: HostOption = None
    view_port: PortOption = None


class DemoPageOptions(NamedTuple):
    no_view: Annotated[bool, flag("--no-view", "Without the web viewer.")] = False
    open: OpenOption = False
    view_host: HostOption = None
    view_port: PortOption = None


class Page(Attachment):
    """The web viewer."""

    name, always, position = "page", ("demo",), 50
    options: ClassVar[Any] = {"run": PageOptions, "replay": PageOptions, "demo": DemoPageOptions}

    @property
    def is_requested(self) -> bool:
        return not getattr(self.given, "no_view", False)

    @property
    def given_names(self) -> list[str]:
        """They all ask for the same."""
        return ["--view"] if self.is_requested else []

    def prepare(self, plan: Plan) -> None:
        plan.moves_in_time = plan.moves_in_time or self.is_requested

    @contextmanager
    def attach(self, run: Run) -> Iterator[None]:
        """Serve the page until the end of the run, and print its address."""
        if not self.is_requested:
            yield
            return
        from microsim.parts.view.web import Viewer
        from microsim.parts.view.web.interface import PageOptions as Place

        given = self.given
        if given.view_host == "":
            raise UsageError("--view-host needs an address, for example 0.0.0.0")
        place = Place(given.view_host or "127.0.0.1", 8080 if given.view_port is None else given.view_port)
        stage, timeline, scene = _controls(run)
        run.display = "page"
        with Viewer(run.runner, place, stage, timeline, **scene) as viewer:
            print(f"the page is at {viewer.address}", file=sys.stderr, flush=True)
            if given.open:
                webbrowser.open(viewer.address)
            if timeline is not None and run.plan.first_tick:
                timeline.seek(run.plan.first_tick)
            if not run.can_branch:
                viewer.forbid_branches()
            yield


def _controls(run: Run) -> tuple[RunControls, SliderTimeline | None, dict[str, Any]]:
    """What the page may do to the run: of a replay, move in time."""
    from microsim.parts.view.web import ReplayTimeline, RunControls

    if run.timeline is None:
        return RunControls(run.runner.reset, run.load, lambda: dict(run.about()), loops=True), None, {}
    timeline = ReplayTimeline(run.runner, run.timeline)
    timeline.wait_for_page()
    return RunControls(), timeline, {"mode": "replay", "title": run.title}


class FileOptions(NamedTuple):
    html: Annotated[
        Path | None, option("--html FILE", "Write the run as one HTML page with a time slider, for offline viewing.")
    ] = None


class PageFile(Attachment):
    """A replay as a file, in place of its run."""

    name, position = "page in a file", 7
    options: ClassVar[Any] = {"replay": FileOptions}

    def instead(self, plan: Plan, options: ReplayOptions) -> int:
        from microsim.cli.commands.replay import opened
        from microsim.cli.terminal import ExitCode, ShareProgress
        from microsim.parts.view.artefacts import write_page

        with opened(options) as again:
            progress, path = ShareProgress(), self.given.html
            size = write_page(again, path, progress.tell)
            progress.end()
            print(f"{path}: {size / 1e6:.1f} MB, {again.sim.time_ns / 1e9:.1f} s")
        return ExitCode.GOOD


class DashboardOptions(NamedTuple):
    headless: Annotated[bool, flag("--headless", "No dashboard; progress on one line.")] = False


class LiveDashboard(Attachment):
    """The dashboard, if there is a terminal for it and no page."""

    name, options, position = "dashboard", {"run": DashboardOptions}, 60
    always = ("run",)

    @contextmanager
    def attach(self, run: Run) -> Iterator[None]:
        console = run.console
        is_wanted = not (self.given.headless or console.is_json or console.is_quiet or run.display or run.end == 0)
        if is_wanted and console.is_terminal:
            yield from self._shown(run)
        else:
            yield
        if not (self.given.headless or run.hints or run.runner.pilots) and sys.stdout.isatty():
            again = run.plan.again
            run.hints.append(Hint("let a pilot move the robots", shell_command(*again, "--autopilot")))
            run.hints.append(Hint("watch and drive in the browser", shell_command(*again, "--open")))

    def _shown(self, run: Run) -> Iterator[None]:
        from microsim.parts.view.dashboard import Dashboard

        run.display = "terminal"
        with Dashboard(run.runner, run.end, reset=run.runner.reset) as dashboard:
            yield
        if dashboard.error is not None:
            run.console.warn(f"the dashboard stopped: {dashboard.error!r}; use --headless to go without")


ATTACHMENT = (Page, PageFile, LiveDashboard)
