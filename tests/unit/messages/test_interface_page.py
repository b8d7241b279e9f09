"""docs/lookup/interface.md is what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_the_interface_page_is_current() -> None:
    page = runpy.run_path(str(DOCS / "make_interface.py"))["page"]()
    assert (DOCS / "lookup/interface.md").read_text(encoding="utf-8") == page, "run: python docs/make_interface.py"
