"""`microsim plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from microsim.cli.command import BagArgument, Command
from microsim.options import option
from microsim.paths import with_name_of_its_own


def plot(
    path: BagArgument,
    output: Annotated[Path | None, option("--out -o --output FILE", "PNG, SVG or PDF; default: BAG.png.")] = None,
) -> None:
    """Plot a recording: paths on the map, speeds, ranges, radio.

    \b
    Examples:
      microsim plot flight                       writes flight.png
      microsim plot flight -o flight.svg
    """
    from microsim.recording.bag_io import open_bag
    from microsim.recording.bag_plot import plot as draw

    bag, folder = open_bag(path), with_name_of_its_own(path)
    target = output or folder.with_name(f"{folder.name}.png")
    draw(bag, target)
    print(target)


COMMAND = Command(plot, panel="Recordings", position=330)
