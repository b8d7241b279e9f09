"""`microsim diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typing_extensions import NotRequired

from microsim.cli.command import Command, QuietOption
from microsim.cli.json_schemas import ComparisonOutput
from microsim.cli.terminal import print_comparison
from microsim.options import argument, flag


def diff(
    one: Annotated[Path, argument("A", "A recording.")],
    other: Annotated[Path, argument("B", "Another recording.")],
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
    return print_comparison(found, as_json)


class DiffOutput(ComparisonOutput):
    notes: Annotated[list[str], "What else differs: version, scenario, seed, digest."]
    culprit: NotRequired[Annotated[str, "In lockstep, the node that replied differently, and when; else empty."]]
    doubt: NotRequired[Annotated[str, "In lockstep, why no node is named although a reply is the first difference."]]
    summary: Annotated[str, "One sentence: whether they differ, why, and in which message first."]


COMMAND = Command(diff, panel="Recordings", position=320, json=DiffOutput)
