"""viser's page with our own panels in it: one file, nothing to fetch."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path


def own(name: str) -> str:
    """A file of ours."""
    return (files("microsim.view.web.page") / name).read_text(encoding="utf-8")


def viser_html() -> str:
    import viser

    return (Path(viser.__file__).parent / "client" / "build" / "index.html").read_text(encoding="utf-8")


def page_html(is_dark: bool | None) -> bytes:
    config = {"dark": is_dark}
    head = (
        f"<style>{own('page.css')}</style><script>window.MICROSIM={json.dumps(config)};</script>"
        f"<script>{own('plots.js')}</script><script>{own('page.js')}</script>"
    )
    return with_head(viser_html(), "MicroSim", head).encode()


def with_head(html: str, title: str, head: str) -> str:
    """Our title, icon and scripts, before viser's own."""
    html = html.replace("<title>Viser</title>", f"<title>{title}</title>", 1)
    at = html.index('<meta charset="utf-8" />') + len('<meta charset="utf-8" />')
    return html[:at] + head + html[at:]
