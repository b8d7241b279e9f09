"""The MCP server: tools one at a time, each bounded in time and size, errors as structured answers."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import logging
import os
import socket
import sys
import threading
from asyncio import CancelledError
from base64 import b64encode
from collections.abc import Callable
from types import FrameType
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, ImageContent, TextContent
from pydantic import ValidationError

from microsim.errors import MicroSimError, UsageError, unknown
from microsim.parts.agents.agent_folder import AgentFolder
from microsim.parts.agents.agent_tools import AgentTools, Answer, PngPicture, problems, short
from microsim.version import __version__

ANSWER_S = 60.0  # after which a call is answered, whatever it still does
_GRACE_S = 1  # for requests under way when the server is ended
_LONGEST_END_S = 2.5  # after SIGTERM or Ctrl-C
_MOST_CHARACTERS = 40_000  # of an answer

_INSTRUCTIONS = (
    "MicroSim is a deterministic robot simulator. list_available shows scenarios and missions; start begins a run, "
    "command and step drive it, read_state, read_topic and render_scene show it. fly_mission runs a mission and judges "
    "it. Times are simulated seconds, positions metres in the map frame, angles radians. Every answer has a `next`."
)


class AgentServer(MCPServer[Any]):
    def __init__(self, folder: AgentFolder) -> None:
        super().__init__("microsim", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")
        self._root = f"{folder.root}/"
        self._busy = threading.Lock()
        self._busy_with = ""
        tools = AgentTools(folder)
        for name, method in inspect.getmembers(tools, inspect.ismethod):
            if not name.startswith("_"):
                self.add_tool(self._bounded(name, method), name=name, structured_output=False)

    def _bounded(self, name: str, method: Callable[..., Answer]) -> Callable[..., Any]:
        """On a thread. A call that takes too long is answered; it ends by itself, and no other runs before."""

        @functools.wraps(method)
        async def call(**arguments: Any) -> Answer:
            with anyio.move_on_after(ANSWER_S):
                work = functools.partial(self._alone, name, method, arguments)
                return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
            raise UsageError(f"{name} has not ended within {ANSWER_S:g} s; it may still be working")

        return call

    def _alone(self, name: str, method: Callable[..., Answer], arguments: dict[str, Any]) -> Answer:
        if not self._busy.acquire(timeout=ANSWER_S / 2):
            raise UsageError(f"busy: {self._busy_with} is still working; try again later")
        try:
            self._busy_with = name
            with contextlib.redirect_stdout(sys.stderr):  # stdout carries the protocol
                return method(**arguments)
        finally:
            self._busy.release()

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult:
        """An answer of ours, also where the SDK has refused the arguments. Paths in it are relative to the folder."""
        answer, picture = await self._answer(name, arguments, context)
        is_error = "error" in answer
        text = json.dumps(short(answer), ensure_ascii=False).replace(self._root, "")
        if len(text) > _MOST_CHARACTERS:
            answer = refusal("too_long", f"the answer has {len(text):,} characters", [], "request less at a time")
            text, is_error = json.dumps(answer), True
        content: list[Any] = [TextContent(type="text", text=text)]
        if isinstance(picture, PngPicture):
            content.append(ImageContent(type="image", data=b64encode(picture).decode(), mime_type="image/png"))
        return CallToolResult(content=content, structured_content=json.loads(text), is_error=is_error)

    async def _answer(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None
    ) -> tuple[Answer, object]:
        names = [tool.name for tool in self._tool_manager.list_tools()]
        if name not in names:
            return refusal("unknown_tool", unknown("no tool", repr(name), name, names), [], "call one of them"), None
        try:
            strange = [each for each in arguments if each not in self._parameters(name)]
            if strange:
                message = unknown(f"{name} has no argument", repr(strange[0]), strange[0], self._parameters(name))
                return refusal("wrong_arguments", message, [{"path": strange[0]}], "leave it out"), None
            answer = await self._tool_manager.call_tool(name, arguments, context or Context(mcp_server=self))
            return answer, answer.pop("picture", None)
        except ToolError as error:
            return _explained(name, error.__cause__ or error), None

    def _parameters(self, name: str) -> list[str]:
        tool = self._tool_manager.get_tool(name)
        return [] if tool is None else list(tool.parameters.get("properties", ()))


def refusal(kind: str, message: str, found: list[Answer], hint: str) -> Answer:
    return {"error": {"kind": kind, "message": message, "problems": found}, "next": hint}


def _explained(name: str, cause: BaseException) -> Answer:
    if isinstance(cause, ValidationError):
        found = [{"path": ".".join(map(str, each["loc"])), "message": each["msg"]} for each in cause.errors()]
        return refusal("wrong_arguments", f"{name}: {len(found)} wrong arguments", found, "correct them")
    if isinstance(cause, MicroSimError):
        listed = problems(cause)
        hint = "correct them; validate checks a file" if listed else "read_state or list_available shows what there is"
        return refusal(type(cause).__name__, str(cause), listed, hint)
    if isinstance(cause, (OSError, MemoryError)):
        return refusal(
            type(cause).__name__, str(cause) or "out of memory", [], "try something smaller, or another file"
        )
    return refusal("internal", f"{name} failed: {type(cause).__name__}", [], "this is a mistake in MicroSim: report it")


# ---- transports ------------------------------------------------------------------------------------------------------


def listening(host: str, port: int) -> socket.socket:
    """A socket for `serve_http`; port 0: any free one."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}; choose another port") from None


def serve_http(server: AgentServer, listener: socket.socket) -> None:
    """Until Ctrl-C or SIGTERM. Requests for other host names or from other pages are refused (DNS rebinding)."""
    import uvicorn

    app = server.streamable_http_app(host=listener.getsockname()[0])
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_GRACE_S)
    http = uvicorn.Server(config)
    end = http.handle_exit

    def end_in_time(number: int, frame: FrameType | None) -> None:
        """A request that never ends, or a tool that still works, does not keep the process alive."""
        last = threading.Timer(_LONGEST_END_S, os._exit, (128 + number,))
        last.daemon = True
        last.start()
        end(number, frame)

    http.handle_exit = end_in_time  # type: ignore[assignment, method-assign]
    for name in ("uvicorn.error", "mcp.server.streamable_http"):
        logging.getLogger(name).addFilter(_is_news)
    http.run(sockets=[listener])


def _is_news(record: logging.LogRecord) -> bool:
    """Not that a client has gone, or that its request ended with the server, with a traceback for each."""
    from starlette.requests import ClientDisconnect

    error = record.exc_info[1] if record.exc_info else None
    is_cut_off = record.msg == "ASGI callable returned without completing response."
    return not (is_cut_off or isinstance(error, (ClientDisconnect, CancelledError)))
