"""`microsim diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from microsim.cli.command import Command
from microsim.cli.options import QuietOption, flag
from microsim.cli.terminal import FAILED, GOOD, print_json, tell


def diff(
    one: Annotated[Path, typer.Argument(metavar="A", help="A recording.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another recording.")],
    as_json: Annotated[bool, flag("--json", "Print what was found as one line of JSON.")] = False,
    quiet: QuietOption = False,
) -> int:
    """Compare two recordings, message by message.

    Exit codes: 0 identical, 1 different, 2 a bag cannot be read.

    \b
    Examples:
      microsim diff flight flight2            identical, or the first difference
      microsim diff yesterday/flight today/flight --json
    """
    from microsim.recording.bag_io import open_bag
    from microsim.recording.compare import diff as compare

    found = compare(open_bag(one), open_bag(other))
    if as_json:
        print_json(found.to_dict())
    elif found.is_identical:
        tell(str(found))
    else:
        print(found)
    return GOOD if found.is_identical else FAILED


COMMAND = Command(diff, panel="Recordings", position=220)
