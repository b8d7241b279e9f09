"""`microsim schema`."""

from __future__ import annotations

from microsim.cli.command import Command


def schema() -> None:
    """Print the JSON schema of scenarios, for editors.

    In VS Code, with the YAML extension: save it and name it in the first line of
    a scenario. Keys are then completed, explained and checked while you type.

    \b
    Examples:
      microsim schema > microsim.schema.json
      # yaml-language-server: $schema=./microsim.schema.json     (in line 1)
    """
    import json

    from microsim.scenario import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


COMMAND = Command(schema, panel="Scenarios and worlds", position=330)
