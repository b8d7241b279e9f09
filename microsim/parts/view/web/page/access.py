"""Who may open a page. viser answers everybody, so these checks come first.

A page has an address of its own, `/p/<secret>/`, which the front door `/` gives to those who may have one: on this
machine any browser that calls us by a loopback name, from elsewhere only one that brings the token. Both its
websockets (viser's, and ours for panels and keys) run under that address, and only with this site as their origin, so
that a page of another site can neither guess nor use it. No page may fetch anything from anywhere else.
"""

from __future__ import annotations

import hmac
import http
import ipaddress
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

import websockets.asyncio.server
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

PANELS = "panels"  # last part of the address of our own websocket
_POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:; "
    "style-src 'self' 'unsafe-inline'; connect-src 'self' data: blob: ws://{host}; worker-src 'self' blob: data:; "
    "frame-ancestors {frames}; form-action 'none'; base-uri 'none'"
)
_NOTEBOOKS = "http://localhost:* http://127.0.0.1:* vscode-webview:"  # that may show the page inline, where allowed
_MOST_PAGES = 1000  # addresses given out; the oldest are forgotten
_MOST_SOCKETS = 200  # open at once: two for each page
_MOST_BYTES = 64 * 1024  # of a message from a page; the connection of a larger one is closed
_MOST_REQUESTS, _FLOOD = 120, 1000  # of a page in a second: more are ignored, even more close its connection

Handler: TypeAlias = Callable[[ServerConnection], Awaitable[None]]


class AccessCheck:
    """`token`: what must be in the address of the front door; None: nothing, on this machine only."""

    def __init__(
        self,
        html: bytes,
        token: str | None,
        panels: Callable[[str, ServerConnection], Awaitable[None]],
        is_framed: bool = False,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self.token, self._frames = token, _NOTEBOOKS if is_framed else "'none'"
        self._html = html
        self._panels, self._most_bytes = panels, most_bytes
        self._pages: dict[str, None] = {}
        self._sockets: set[ServerConnection] = set()

    @contextmanager
    def in_front(self) -> Iterator[None]:
        """viser's server, started meanwhile, is behind these checks.

        viser 1.1 takes no function that looks at a request; `test_foreign_internals` notices when a version does.
        """
        serve = websockets.asyncio.server.serve

        def guarded(handler: Handler, *arguments: Any, **options: Any) -> Any:
            options["process_request"] = self._answer
            options["max_size"] = self._most_bytes
            return serve(self._sorted(handler), *arguments, **options)

        websockets.asyncio.server.serve = guarded
        try:
            yield
        finally:
            websockets.asyncio.server.serve = serve

    def _sorted(self, viser: Handler) -> Handler:
        async def handle(connection: ServerConnection) -> None:
            page, rest = split(connection.request.path if connection.request is not None else "")
            self._sockets.add(connection)
            try:
                await (self._panels(page, connection) if rest == PANELS else viser(connection))
            except (
                Exception
            ):  # viser asserts what a frame must be: without this, garbage prints a traceback in the terminal
                await connection.close(1003, "malformed frame")
            finally:
                self._sockets.discard(connection)

        return handle

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """None: continue as a websocket."""
        host = request.headers.get("Host", "")
        if not self._is_our_name(host):
            return _refusal("the page is not served under this name")
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return self._refused_socket(request, host)
        address = urlsplit(request.path)
        if address.path == "/":
            return self._front_door(address.query)
        page, rest = split(address.path)
        if page in self._pages and rest == "":
            return self._page(host)
        if page and rest == "":
            return _moved("/")  # an address from before we were started
        return Response(http.HTTPStatus.NOT_FOUND, "Not Found", Headers(), b"not found: the page is at /\n")

    def _refused_socket(self, request: Request, host: str) -> Response | None:
        if request.headers.get("Origin") != f"http://{host}":
            return _refusal("a page of another site may not connect")
        if split(request.path)[0] not in self._pages:
            return _refusal("open the page at / first")
        if len(self._sockets) >= _MOST_SOCKETS:
            return _refusal("too many pages are open: close some of them", http.HTTPStatus.SERVICE_UNAVAILABLE)
        return None

    def _is_our_name(self, host: str) -> bool:
        """A foreign name that leads here (DNS rebinding) is refused where no token protects us."""
        if self.token is not None:
            return True
        name = urlsplit(f"//{host}").hostname or ""
        return is_loopback(name)

    def _front_door(self, query: str) -> Response:
        given = parse_qs(query).get("token", [""])[0]
        if self.token is not None and not hmac.compare_digest(given.encode(), self.token.encode()):
            return _refusal("the address needs the token that was printed when the run began")
        page = secrets.token_urlsafe(16)
        self._pages[page] = None
        while len(self._pages) > _MOST_PAGES:
            del self._pages[next(iter(self._pages))]
        rest = [part for part in query.split("&") if part and not part.startswith(("token=", "websocket="))]
        return _moved(f"/p/{page}/" + (f"?{'&'.join(rest)}" if rest else ""))

    def _page(self, host: str) -> Response:
        content = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(self._html))}
        policy = {
            "Content-Security-Policy": _POLICY.format(host=host, frames=self._frames),
            "Referrer-Policy": "no-referrer",
        }
        headers = Headers({**content, **policy, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})
        return Response(http.HTTPStatus.OK, "OK", headers, self._html)


async def bounded_requests(connection: ServerConnection) -> AsyncIterator[str | bytes]:
    """The messages of a page, until it goes away or sends too many."""
    count, since = 0, time.monotonic()
    try:
        async for text in connection:
            count += 1
            if count <= _MOST_REQUESTS:
                yield text
            elif count > _FLOOD:
                await connection.close(1008, "too many messages")
                return
            if time.monotonic() > since + 1.0:
                count, since = 0, time.monotonic()
    except ConnectionClosed:
        return


def split(path: str) -> tuple[str, str]:
    """(page, rest) of `/p/<page>/<rest>`."""
    parts = urlsplit(path).path.strip("/").split("/")
    return (parts[1], "/".join(parts[2:])) if len(parts) >= 2 and parts[0] == "p" else ("", "")


def is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _moved(to: str) -> Response:
    headers = Headers({"Location": to, "Content-Length": "0", "Cache-Control": "no-store"})
    return Response(http.HTTPStatus.SEE_OTHER, "See Other", headers, b"")


def _refusal(reason: str, status: http.HTTPStatus = http.HTTPStatus.FORBIDDEN) -> Response:
    body = f"refused: {reason}\n".encode()
    headers = Headers({"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))})
    return Response(status, status.phrase, headers, body)
