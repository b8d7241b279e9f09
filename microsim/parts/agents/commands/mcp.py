"""`microsim mcp`: a server for coding agents."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from microsim.cli.command import Command
from microsim.errors import MissingExtraError, UsageError, install_hint
from microsim.options import argument, flag, option
from microsim.registry import code_only_from

_HTTP = "Serve HTTP on this port of this machine instead of stdio; 0: any free port."
_PLUGINS = "Let scenarios load plug-ins, which are code, from the folder."


def mcp(
    folder: Annotated[Path, argument("FOLDER", "Where the agent may read and write files; nowhere else.")],
    http: Annotated[int | None, option("--http PORT", _HTTP, min=0, max=65535)] = None,
    allow_plugins: Annotated[bool, flag("--allow-plugins", _PLUGINS)] = False,
) -> None:
    """Let a coding agent drive simulations.

    A server of the Model Context Protocol. Its tools write and validate
    scenarios, start, step and command runs, read states and topics, render
    cameras and the scene, inject faults, fork and restore, run missions, sweep,
    compare and export.

    \b
    Examples:
      microsim mcp my_project                      stdio, as agents start it
      microsim mcp my_project --http 8765          http://127.0.0.1:8765/mcp
    """
    if find_spec("mcp") is None:
        raise MissingExtraError(f"the server for agents needs the package mcp: {install_hint('mcp')}")
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder for the agent's files")
    os.chdir(folder)  # so that names in files mean those of the folder
    from microsim.parts.agents.agent_folder import AgentFolder
    from microsim.parts.agents.agent_server import AgentServer, listening, serve_http

    server = AgentServer(AgentFolder(Path.cwd(), allow_plugins))
    with code_only_from(None if allow_plugins else ()):
        if http is None:
            server.run("stdio")
            return
        with listening("127.0.0.1", http) as listener:
            print(f"the MCP server is at http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
            serve_http(server, listener)


COMMAND = Command(mcp, panel="Run and watch", position=140)
