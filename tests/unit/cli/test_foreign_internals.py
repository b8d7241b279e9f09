"""What we change in other libraries, or use of their internals: these tests fail when a library offers it itself.

Then take the workaround out that the test names, and the test with it.
"""

import inspect
import subprocess
import sys

import pytest


def test_typer_still_imports_markdown_to_show_help() -> None:
    """Else `microsim.cli._import_help` can go."""
    program = "import sys, typer.rich_utils; print({'rich.markdown', 'rich.traceback'} <= {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_viser_still_lets_nobody_look_at_requests() -> None:
    """Else `AccessCheck.in_front` can go."""
    viser = pytest.importorskip("viser")
    given = set(inspect.signature(viser.ViserServer.__init__).parameters)
    assert given == {"self", "host", "port", "label", "verbose", "_deprecated_kwargs"}


def test_viser_still_does_not_say_which_address_a_client_requested() -> None:
    """Else `Cameras._greet` can ask it."""
    viser = pytest.importorskip("viser")
    assert not [name for name in dir(viser.ClientHandle) if "request" in name or "path" in name or "url" in name]


def test_viser_still_hides_nodes_from_all_clients_or_none() -> None:
    """Else `Cameras._hide_frustums` needs no message of its own."""
    viser = pytest.importorskip("viser")
    names = {*dir(viser.SceneApi), *dir(viser.SceneNodeHandle)}
    assert {name for name in names if "visib" in name} == {"set_global_visibility", "visible"}
