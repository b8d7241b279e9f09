"""Writes docs/schemas/*.json: what every command prints with `--json`. Refuses to take a field away."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from microsim.cli.command import json_outputs
from microsim.cli.json_schemas import schema_of

FOLDER = Path(__file__).parent / "schemas"


def schemas() -> dict[str, dict[str, Any]]:
    """By the names of their files."""
    return {
        f"{name.replace(' ', '_')}.json": schema_of(kind, f"microsim {name} --json")
        for name, kind in json_outputs().items()
    }


def lost(before: dict[str, Any], after: dict[str, Any], path: str = "") -> Iterator[str]:
    """Fields that are gone, have another type, or may be missing now: scripts that read them would break."""
    for key in ("type", "enum"):
        if before.get(key) != after.get(key):
            yield f"{path or 'the output'}: {key} was {before.get(key)}, is {after.get(key)}"
    for name, field in before.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        if name not in after.get("properties", {}):
            yield f"{inner}: is gone"
            continue
        if name in before.get("required", ()) and name not in after.get("required", ()):
            yield f"{inner}: may be missing now"
        yield from lost(field, after["properties"][name], inner)
    for key in ("items", "additionalProperties"):
        if isinstance(before.get(key), dict):
            yield from lost(before[key], after.get(key, {}), f"{path}[]")
    choices = after.get("anyOf", [])
    for index, choice in enumerate(before.get("anyOf", ())):
        if not any(not list(lost(choice, each)) for each in choices):
            yield f"{path or 'the output'}: its form {choice.get('description') or index + 1} is gone or has changed"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        file = FOLDER / name
        if file.is_file():
            problems = list(lost(json.loads(file.read_text(encoding="utf-8")), schema))
            if problems:
                sys.exit("\n".join([f"{file}: fields are kept, and these are not:", *problems]))
        file.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
