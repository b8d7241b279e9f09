"""Outputs of commands against their published schemas."""

import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).resolve().parents[1] / "docs" / "schemas"


def assert_published(command: str, output: Any) -> None:
    """Fits the schema; and nothing is printed that the schema does not list."""
    schema = json.loads((SCHEMAS / f"{command.replace(' ', '_')}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(output)
    jsonschema.Draft202012Validator(_closed(schema)).validate(output)


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **closed} if "properties" in closed and "required" in closed else closed
