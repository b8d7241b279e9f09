"""Where the pages of the documentation are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
ROOMS = ("learn", "do", "lookup", "understand", "maintain")
PAGES = [DOCS / "index.md", *(page for room in ROOMS for page in sorted((DOCS / room).glob("*.md")))]
