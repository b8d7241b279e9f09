"""Writes the generated parts of the pages: `.venv/bin/python docs/make_reference.py`."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "ext")]

import reference  # noqa: E402

if __name__ == "__main__":
    made = reference.tables()
    for page in reference.files():
        before = page.read_text(encoding="utf-8")
        after = reference.current(before, made)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(HERE.parent))
