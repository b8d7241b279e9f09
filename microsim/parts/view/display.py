"""What notebooks and `show()` of simulations, scenarios and batches use."""

from __future__ import annotations

from typing import Any

from microsim.display import Display


def _html_of(subject: Any) -> str:
    from microsim.parts.view.notebook import html_of

    return html_of(subject)


def _show(*arguments: Any) -> Any:
    from microsim.parts.view.live_view import show

    return show(*arguments)


DISPLAY = Display("page", _html_of, _show)
