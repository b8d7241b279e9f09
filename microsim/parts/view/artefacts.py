"""What is made of a recording: a plot, and one HTML page that plays anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from microsim.recording.bag_io import open_bag
from microsim.recording.bag_plot import plot
from microsim.recording.bag_replay import Replay, ReplayTimeline


def write_plot(recording: Path, target: Path, plugins: Sequence[str | Path] = ()) -> None:
    plot(open_bag(recording), target)


def write_page(again: Replay, target: Path, progress: Callable[[float], None] = lambda share: None) -> int:
    """Runs the recording again; returns the size in bytes."""
    from microsim.parts.view.web.interface import need_extra

    need_extra("a page")
    from microsim.parts.view.web.export import ExportedRun, write_html

    bag, sim = again.bag, again.sim
    ignored = f"{again.ignored} inputs ignored" if again.ignored else ""
    exported = ExportedRun(sim.scenario.name, sim.seed, bag.path.name, bag.run_info.end.get("digest", ""), ignored)
    return write_html(target, sim, ReplayTimeline(again, sim), exported, progress)


def page_of(recording: Path, target: Path, plugins: Sequence[str | Path] = ()) -> int:
    """`write_page` of a recording's folder; `plugins`: folders whose code may run."""
    with Replay(open_bag(recording), plugin_folders=[Path(each) for each in plugins]) as again:
        return write_page(again, target)
