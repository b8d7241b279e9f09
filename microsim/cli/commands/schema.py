"""`microsim schema`."""

from __future__ import annotations

from typing import Annotated

from microsim.cli.command import Command, as_named_now, json_outputs
from microsim.errors import UsageError, unknown
from microsim.options import argument


def schema(
    command: Annotated[
        list[str] | None,
        argument("COMMAND", "A command, for the schema of what its --json prints.", show_default="scenarios"),
    ] = None,
) -> None:
    """Print JSON schemas, for editors and scripts.

    Of scenarios, or of what a command prints with --json. In VS Code, with the
    YAML extension: save it and name it in the first line of a scenario. Keys are
    then completed, explained and checked while you type.

    \b
    Examples:
      microsim schema > microsim.schema.json
      # yaml-language-server: $schema=./microsim.schema.json     (in line 1)
      microsim schema run                    what `microsim run --json` prints
      microsim schema bag info
    """
    import json

    if not command:
        from microsim.scenario import json_schema

        found = json_schema()
    else:
        from microsim.cli.json_schemas import schema_of

        name, outputs = " ".join(as_named_now(command)), json_outputs()
        if name not in outputs:
            raise UsageError(unknown("no command with --json", repr(name), name, outputs))
        found = schema_of(outputs[name], f"microsim {name} --json")
    print(json.dumps(found, indent=2, ensure_ascii=False))


COMMAND = Command(schema, panel="Scenarios and worlds", position=430)
