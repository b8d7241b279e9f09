"""The generated parts of the documentation: scenario blocks, commands, topics, and pieces of the code.

A page holds each between `<!-- generated: NAME -->` and `<!-- end -->`, committed, so that it can be read in a clone
and on a forge. `python docs/make_reference.py` rewrites them; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

UNIT = re.compile(r"\s*\[(m|m/s|m/s²|rad|rad/s|s|ms|Hz|px|deg|dBm|dB|bit/s|bytes|m/m|rad/rad)\](?!, longitude)(?=\W|$)")
PLAIN = {"number": "number", "integer": "whole number", "boolean": "true or false", "string": "text", "null": "null"}
LABELS = {"MazeOptions": "random maze", "PluginEntry": "generator", "AnyRobot": "robot", "PluginSensor": "plug-in"}
TARGETS = {"PluginEntry": "generators", "AnyRobot": "robots"}  # not a block: headings of the page


ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED = re.compile(r"<!-- generated: (?P<name>[^\n]+) -->\n(?P<text>.*?)<!-- end -->\n", re.DOTALL)
HEADING_OF_BLOCK = re.compile(
    r"^#+ (?P<title>.+)\n(?:(?!#).*\n)*?<!-- generated: block_(?P<name>\w+) -->", re.MULTILINE
)


def files() -> list[Path]:
    """Every page that has a generated part."""
    pages = [page for page in sorted(DOCS.glob("*/*.md")) if not page.parent.name.startswith("_")]
    return [page for page in pages if GENERATED.search(page.read_text(encoding="utf-8"))]


def current(page: str, made: dict[str, str]) -> str:
    """A page with its generated parts as they should be."""

    def part(found: re.Match[str]) -> str:
        name = found["name"]
        text = piece(name) if name.startswith("file ") else made[name]
        return f"<!-- generated: {name} -->\n\n{text.strip()}\n\n<!-- end -->\n"

    return GENERATED.sub(part, page)


def piece(name: str) -> str:
    """`file PATH`, or `file PATH from FIRST to NEXT`, whose lines begin with these texts."""
    found = re.fullmatch(r"file (?P<path>\S+)(?: from (?P<first>.+) to (?P<next>.+))?", name)
    assert found is not None, name
    text = (ROOT / found["path"]).read_text(encoding="utf-8")
    if found["first"]:
        start = text.index(found["first"].strip('"'))
        text = text[start : text.index(found["next"].strip('"'), start)]
    language = {".py": "text", ".yaml": "yaml"}[Path(found["path"]).suffix]  # Python on a page is run
    return f"```{language}\n{text.strip()}\n```"


def tables() -> dict[str, str]:
    """Name -> Markdown."""
    blocks = {f"block_{name}": block_table(name, schema) for name, schema in scenario_blocks().items()}
    return {
        **blocks,
        "classes": classes(),
        "segments": segments(),
        "mounts": mounts(),
        "topics": topics(),
        "telemetry": telemetry(),
        "agent_tools": agent_tools(),
        "json_fields": json_fields(),
        "metrics": metrics(),
        "bundle_rules": bundle_rules(),
        "soak": (DOCS / "understand/results/soak.md").read_text(encoding="utf-8"),
        **node_parameters(),
        **commands(),
    }


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


# ---- scenarios -----------------------------------------------------------------------------------------------


def scenario_blocks() -> dict[str, Schema]:
    """Every block of a scenario by its name in the schema; the Further… ones repeat a sensor with a `type`."""
    from microsim.scenario import json_schema

    whole = json_schema()
    blocks = {"Scenario": whole, **whole["$defs"]}
    skipped = ("AnyRobot", "PluginEntry")
    return {name: block for name, block in blocks.items() if name not in skipped and not name.startswith("Further")}


def block_table(name: str, schema: Schema) -> str:
    required = schema.get("required", [])
    if "anyOf" in schema:  # `class` may also be written `class_id`
        required = [*required, "class"]
    rows = [_row(key, value, key in required) for key, value in schema["properties"].items() if key != "class_id"]
    about = "" if name == "Scenario" else f"{schema['description']}\n\n"
    return about + table(("Key", "Type", "Default", "Limits", "Meaning"), rows)


def _row(key: str, schema: Schema, is_required: bool) -> tuple[str, ...]:
    text = schema.get("description", "")
    units = UNIT.findall(text)
    unit = units[0] if len(units) == 1 else ""
    if unit:
        text = UNIT.sub("", text)
    kind = _type(schema) + (f", {unit}" if unit else "")
    default = "**required**" if is_required and "const" not in schema else _default(schema)
    return f"`{key}`", kind, default, _limits(schema), text


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return _link(schema["$ref"].rsplit("/", 1)[1])
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "boolean" or len(schema["anyOf"]) == 1]
        return " or ".join(dict.fromkeys(_type(each) for each in kinds))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return (
            "[class](#classes-and-colours)"
            if "water" in schema["enum"]
            else " or ".join(f"`{each}`" for each in schema["enum"])
        )
    if schema.get("type") == "array":
        return _list_type(schema)
    if "patternProperties" in schema:
        names = [_type(each) for each in schema["patternProperties"].values()]
        return "name → " + " or ".join(names)
    if schema.get("type") == "object":
        return "mapping"
    return PLAIN[schema["type"]]


def _list_type(schema: Schema) -> str:
    if "prefixItems" not in schema:
        return f"list of {_type(schema['items'])}"
    kinds = [_type(each) for each in schema["prefixItems"]]
    if "prefixItems" in schema["prefixItems"][0]:
        return f"{len(kinds)} times {kinds[0]}"
    return f"{len(kinds)} {kinds[0]}s" if len(set(kinds)) == 1 else ", ".join(kinds)


def _link(name: str) -> str:
    name = name.removeprefix("Further")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return f"[{LABELS.get(name, words)}](#{TARGETS.get(name) or _headings()[name]})"


@cache
def _headings() -> dict[str, str]:
    """Block -> anchor of the heading above it, as GitHub and MyST make it."""
    page = re.sub(r"^```.*?^```$", "", (DOCS / "lookup/scenario.md").read_text(encoding="utf-8"), flags=re.M | re.S)
    return {found["name"]: anchor(found["title"]) for found in HEADING_OF_BLOCK.finditer(page)}


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def _default(schema: Schema) -> str:
    if "const" in schema or "default" not in schema:
        return ""
    value = schema["default"]
    if isinstance(value, dict) and "patternProperties" in schema:
        return ", ".join(f"`{name}`" for name in value) or "none"
    if isinstance(value, dict):
        return "defaults"
    if isinstance(value, list) and not value:
        return "none"
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_yaml(each) for each in value) + "]"
    if isinstance(value, float):
        return _named().get(value) or f"{value:.10g}"
    return str(value)


def _named() -> dict[float, str]:
    from microsim.engine.exact import PI

    return {PI: "π", -PI: "-π", 2 * PI: "2π", -2 * PI: "-2π", PI / 2: "π/2", -PI / 2: "-π/2"}


def _number(value: float) -> str:
    named = {
        2**63 - 1: "2⁶³ − 1",
        -(2**63): "−2⁶³",
        10**4: "10⁴",
        10**6: "10⁶",
        10**7: "10⁷",
        10**12: "10¹²",
        **_named(),
    }
    return (named.get(value) or f"{value:g}").replace("-", "−")


def _limits(schema: Schema) -> str:
    if "prefixItems" in schema:
        inner = {_limits(each) for each in schema["prefixItems"]}
        return inner.pop() if len(inner) == 1 else ""
    if "anyOf" in schema:
        return next(filter(None, map(_limits, schema["anyOf"])), "")
    low, high, above = schema.get("minimum"), schema.get("maximum"), schema.get("exclusiveMinimum")
    if above is not None and (low is None or low <= above):
        return f"above {_number(above)}" + (f", to {_number(high)}" if high is not None else "")
    if low is not None and high is not None:
        return f"±{_number(high)}" if low == -high else f"{_number(low)} to {_number(high)}"
    if low is not None:
        return f"from {_number(low)}"
    if "maxLength" in schema:
        return f"{schema.get('minLength', 0)} to {schema['maxLength']} characters"
    return ""


def classes() -> str:
    """PRD 4.2.2.1 with a swatch of each colour."""
    from microsim.engine.world import CLASS_NAMES, PALETTE

    usual = ("fill, background", "circle", "triangle", "rectangle", "fill, patch")
    return _colours(CLASS_NAMES, PALETTE, "Usual shape", usual)


def segments() -> str:
    """The classes of segmentation images."""
    from microsim.render.segmentation import SEGMENT_COLOURS, SEGMENT_NAMES

    meanings = (
        "ground that is not drivable", "obstacles and features of that class", "features of that class",
        "features of that class", "features of that class", "the drivable area", "the bundle's static mesh",
        "other robots", "what only the splats show", "nothing else",
    )  # fmt: skip
    return _colours(SEGMENT_NAMES, SEGMENT_COLOURS, "Meaning", meanings)


def _colours(names: Sequence[str], colours: Any, title: str, notes: Sequence[str]) -> str:
    rows = []
    for index, (name, note) in enumerate(zip(names, notes, strict=True)):
        colour = "#" + "".join(f"{int(part):02X}" for part in colours[index])
        swatch = f'<span class="swatch" style="background:{colour}"></span>'
        rows.append((str(index), f"`{name}`", f"{swatch} `{colour}`", note))
    return table(("Class", "Name", "Colour", title), rows)


def _defaults(sensors: Any) -> dict[str, Any]:
    """Sensors that sit elsewhere than at base_link by themselves."""
    found = {name: sensor.mount for name, sensor in sensors.items()}
    return {name: mount for name, mount in found.items() if any(mount.xyz) or any(mount.rpy)}


def mounts() -> str:
    """Where each model carries its sensors unless a scenario says otherwise."""
    from microsim.robots.robot import COMMON_SENSORS, ROBOTS

    rows = [
        (f"`{model}`", f"`{sensor}`", f"`{_yaml(list(mount.xyz))}`", f"`{_yaml(list(mount.rpy))}`")
        for model, kind in ROBOTS.built_in.items()
        for sensor, mount in {**_defaults(COMMON_SENSORS), **kind.mounts}.items()
    ]
    return table(("Robot", "Sensor", "`xyz`, m", "`rpy`, rad"), rows)


# ---- topics ---------------------------------------------------------------------------------------------------


def topics() -> str:
    from microsim.messages.topics import table as topic_table

    parts = []
    for direction, title in (("out", "Published"), ("in", "Subscribed")):
        rows = [
            (
                f"`{_topic_name(each)}`",
                f"`{each.type.replace('/msg/', '/')}`",
                _qos(each.qos),
                _code(each.rate),
                each.about,
            )
            for each in topic_table()
            if each.direction == direction
        ]
        parts.append(f"## {title}\n\n" + table(("Topic", "Type", "QoS", "Rate", "Meaning"), rows))
    return "\n".join(parts)


def _code(rate: str) -> str:
    """A key of the scenario as code, other words as they are."""
    return f"`{rate}`" if re.fullmatch(r"[\w.*]+", rate) and "." in rate else rate


def _topic_name(topic: Any) -> str:
    return str(topic.of("<robot>", topic.sensor))


def _qos(qos: Any) -> str:
    parts = ["reliable" if qos.reliable else "best effort", str(qos.depth), "latched" if qos.latched else ""]
    return ", ".join(filter(None, parts))


# ---- the small nodes ------------------------------------------------------------------------------------------


def node_parameters() -> dict[str, str]:
    """The parameters of each small node, from its settings."""
    from microsim.parts.small_nodes.robot_simulator_settings import RobotSimulatorSettings
    from microsim.parts.small_nodes.rover_node import RoverSettings

    return {
        "parameters_sim_rover": parameter_table(RoverSettings()),
        "parameters_robot_simulator": parameter_table(RobotSimulatorSettings()),
    }


def parameter_table(settings: Any) -> str:
    from microsim.parts.ros2.node_parameters import declarations

    rows = []
    for each in declarations(settings):
        bounds = {}
        if each.minimum is not None and each.maximum is not None:
            bounds = {"minimum": each.minimum, "maximum": each.maximum}
        when = "at the start" if each.read_only else "any time"
        rows.append((f"`{each.name}`", f"`{_yaml(each.value)}`", _limits(bounds), when, each.description))
    return table(("Parameter", "Default", "Limits", "May be set", "Meaning"), rows)


# ---- the command line -----------------------------------------------------------------------------------------


def commands() -> dict[str, str]:
    """What `--help` says, as Markdown: one file per command, and one with all that the page does not describe."""
    import typer

    from microsim.cli import app

    root: Any = typer.main.get_command(app)
    found = {name: _command(name, root.get_command(None, name)) for name in root.list_commands(None)}
    page = GENERATED.sub("", (DOCS / "lookup/command_line.md").read_text(encoding="utf-8"))
    described = {name: text for name, text in found.items() if f"## microsim {name}\n" in page}
    further = [f"## microsim {name}\n\n{found[name]}" for name in found if name not in described]
    files = {f"command_{name.replace('-', '_')}": text for name, text in described.items()}
    return {**files, "further_commands": "\n".join(further)}


def metrics() -> str:
    """What a sweep can take of a run."""
    from microsim.parts.sweep.metrics import METRICS

    words = {float: "number", int: "whole number", bool: "true or false", str: "text"}
    rows = []
    for name, metric in METRICS.items():
        kind = words[metric.kind] + (f", {metric.unit}" if metric.unit else "")
        of_robots = "yes" if metric.of_robots else ""
        rows.append((f"`{name}`", kind, of_robots, " ".join((metric.__doc__ or "").split())))
    return table(("Metric", "Type", "Of robots", "Meaning"), rows)


def bundle_rules() -> str:
    """Every rule that world bundles are held to."""
    from microsim.bundle.rules import RULES, WARNINGS

    rows = [(f"`{name}`", "warning" if name in WARNINGS else "error", words) for name, words in RULES.items()]
    return table(("Rule", "Broken, it is", "Meaning"), rows)


def json_fields() -> str:
    """What every command prints with `--json`: its fields, from its schema."""
    from microsim.cli.command import json_outputs
    from microsim.cli.json_schemas import schema_of

    parts = []
    for name, kind in json_outputs().items():
        schema = schema_of(kind, name)
        link = f"[schema](../schemas/{name.replace(' ', '_')}.json)"
        parts.append(f"## microsim {name} --json\n\n`microsim schema {name}`, {link}")
        for form in schema.get("anyOf", [schema]):
            about = form.get("description", "")
            rows = [(f"`{path}`", kind, text) for path, kind, text in _fields(form, "")]
            parts.append((f"{about}\n\n" if about else "") + table(("Field", "Type", "Meaning"), rows))
    return "\n\n".join(parts)


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    """Each field below a schema: path, type, meaning."""
    below = schema.get("items") or schema.get("additionalProperties")
    if isinstance(below, dict):
        yield from _fields(below, f"{path}[]" if "items" in schema else f"{path}.*")
    for choice in schema.get("anyOf", ()):
        yield from _fields(choice, path)
    for name, field in schema.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        absent = "" if name in schema["required"] else ", may be missing"
        yield inner, _json_type(field) + absent, field.get("description", "")
        yield from _fields(field, inner)


def _json_type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_json_type, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(str(each).lower() for each in schema["enum"])
    return str(schema.get("type", "any"))


def agent_tools() -> str:
    """What `microsim mcp` offers."""
    import inspect

    from microsim.parts.agents.agent_tools import AgentTools

    methods = [(name, each) for name, each in vars(AgentTools).items() if not name.startswith("_")]
    rows = []
    for name, method in methods:
        arguments = ", ".join(f"`{each}`" for each in list(inspect.signature(method).parameters)[1:])
        rows.append((f"`{name}`", arguments, " ".join((method.__doc__ or "").split())))
    return table(("Tool", "Arguments", "What it does"), rows)


def telemetry() -> str:
    """The columns of the CSV that `microsim run --telemetry` writes."""
    from tempfile import TemporaryDirectory

    from microsim.recording.telemetry import Telemetry

    with TemporaryDirectory() as folder:
        file = Path(folder) / "telemetry.csv"
        Telemetry(file)  # opens it and writes the head
        head = file.read_text(encoding="utf-8").splitlines()[0]
    return ", ".join(f"`{column}`" for column in head.split(",")) + "\n"


def _command(name: str, command: Any) -> str:
    about, _, examples = command.help.partition("\b")
    if hasattr(command, "commands"):
        parts = [_command(f"{name} {each}", below) for each, below in command.commands.items()]
        return "\n".join([f"{about.strip()}\n", *parts])
    rows = [_parameter(each) for each in command.params if each.name != "help"]
    arguments = [each[1] for each in rows if not each[0].startswith("`-")]
    usage = " ".join(["microsim", name, "[OPTIONS]", *arguments])
    options = table(("Option", "Value", "Meaning"), [(each[0], each[2], each[3]) for each in rows]) if rows else ""
    lines = [line[2:] if line.startswith("  ") else line for line in examples.splitlines()[2:]]
    shown = "\n".join(lines).strip()
    example = f"\n```text\n{shown}\n```\n" if shown else ""
    return f"```text\n{usage}\n```\n\n{about.strip()}\n\n{options}{example}"


def _parameter(parameter: Any) -> tuple[str, str, str, str]:
    """Name, how it is shown in the usage line, its value, its help."""
    is_option = parameter.param_type_name == "option"
    is_flag = getattr(parameter, "is_flag", False)
    metavar = parameter.metavar or ("" if is_flag else parameter.name.upper())
    name = ", ".join(f"`{each}`" for each in parameter.opts) if is_option else f"`{metavar}`"
    values = _choices(parameter) or ([metavar] if metavar and is_option else [])
    default = _shown_default(parameter)
    text = (parameter.help or "") + (f" Default: `{default}`." if default else "")
    return name, metavar if parameter.required else f"[{metavar}]", " ".join(f"`{each}`" for each in values), text


def _choices(parameter: Any) -> list[str]:
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(each.value) for each in annotation]
    return list(getattr(getattr(parameter, "type", None), "choices", ()))  # typer over click


def _shown_default(parameter: Any) -> str:
    shown, default = getattr(parameter, "show_default", None), parameter.default
    if isinstance(shown, str):
        return shown
    return "" if default in (None, False, ()) or callable(default) else str(default)
