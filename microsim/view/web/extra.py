"""The libraries of the extra `view`, and what is said where they are missing."""

from __future__ import annotations

from importlib.util import find_spec

from microsim.errors import MicroSimError, install_hint

NAMES = ("viser", "trimesh", "yourdfpy", "xacrodoc", "PIL", "websockets")


class ViewerError(MicroSimError):
    """The page cannot be served, or a picture not be drawn."""


def need_extra(what: str) -> None:
    missing = [name for name in NAMES if find_spec(name) is None]
    if missing:
        raise ViewerError(f"{what} needs {missing[0]}, which is not installed: {install_hint('view')}")
