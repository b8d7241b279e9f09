"""`microsim plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from microsim.cli.command import BagArgument, Command
from microsim.options import option


def plot(
    path: BagArgument,
    output: Annotated[Path | None, option("--out -o --output FILE", "PNG, SVG or PDF; default: BAG.png.")] = None,
) -> None:
    """Plot a recording: trajectory on the map, altitude, speeds, ranges, radio.

    \b
    Examples:
      microsim plot flight                       writes flight.png
      microsim plot flight -o flight.svg
    """
    from microsim.recording.bag_io import open_bag
    from microsim.recording.bag_plot import plot as draw

    target = output or path.with_name(f"{path.name}.png")
    draw(open_bag(path), target)
    print(target)


COMMAND = Command(plot, panel="Recordings", position=230)
