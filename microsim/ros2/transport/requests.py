"""Serving one request, the same way on every transport of ours."""

from __future__ import annotations

from typing import Any

from microsim import messages as wire
from microsim.ros2.transport import MissingTypeError, OnRequest

Outcome = tuple[bytes, str]  # encoded response, and what went wrong in the handler or ""


class NotYet(Exception):  # noqa: N818 - not an error: a handler raises it to be asked again at the next poll
    """The handler cannot answer yet; the request is kept and its handler asked again at the next poll."""


def answer(type_name: str, on_request: OnRequest, request: Any) -> Outcome:
    """A handler that fails still answers, with `success` false where the response has it: nobody waits for ever."""
    response, problem = wire.new(f"{type_name}_Response"), ""
    try:
        on_request(request, response)
        return wire.encode(f"{type_name}_Response", response), ""
    except NotYet:
        raise
    except Exception as error:  # of any kind: the client waits for an answer
        problem = f"{type(error).__name__}: {error}"
    response = wire.new(f"{type_name}_Response")
    if hasattr(response, "message"):
        response.message = problem
    return wire.encode(f"{type_name}_Response", response), problem


def known_type(type_name: str) -> str:
    """`type_name`, or MissingTypeError."""
    if not wire.is_known(type_name):
        package = type_name.partition("/")[0]
        raise MissingTypeError(type_name, f"not among the types MicroSim carries (package {package})")
    return type_name


def known_service(type_name: str) -> str:
    known_type(f"{type_name}_Request")
    return type_name
