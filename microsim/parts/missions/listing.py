"""The shipped missions, for `microsim list`."""

from __future__ import annotations

from microsim import paths
from microsim.listings import Listing
from microsim.shipped import first_comment

LISTING = Listing(
    "missions", 20, lambda: {name: first_comment(paths.mission_file(name)) for name in paths.mission_names()}
)
