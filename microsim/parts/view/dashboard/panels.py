"""The state of a run to a screenful: header, map, robots, radio, camera; what is shown depends on the room there is.

How a sensor's line reads is in its declaration (`microsim.sensors.sensor.Display`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from string import Formatter
from typing import TYPE_CHECKING, Any

from rich import box
from rich.align import Align
from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from microsim.messages.outbox import Message
from microsim.parts.view.dashboard.keyboard import HELP
from microsim.parts.view.dashboard.world_map import Pixels, WorldMap, arrow, robot_colour, shrunk
from microsim.parts.view.run_state import LinkState, RobotState, ShownSensor, numbers, picture
from microsim.sensors.sensor import Display, LinePart

if TYPE_CHECKING:
    from microsim.parts.view.dashboard import DashboardState

SPARKS = "▁▂▃▄▅▆▇█"
_WIDE, _VERY_WIDE = 100, 160  # columns from which there is room for two and three columns of panels
_FRAME = 2  # rows or columns that a panel's border takes
_LABEL, _WIDE_LABEL, _WIDE = 7, 19, 46  # characters of a sensor's name; in panels at least this wide
_LEAST_GRAPH, _MOST_GRAPH = 3, 8  # rows of a graph
_ROOMY = 40  # characters from which numbers are given more room


class Screen:
    """Draws state; remembers what need not be drawn again."""

    def __init__(self, world_map: WorldMap) -> None:
        self.map = world_map
        self._thumbnails: dict[str, tuple[object, int, Pixels]] = {}  # by topic: message, width, picture

    def draw(self, state: DashboardState, width: int, height: int) -> Layout:
        rows = max(height - 3, 4)
        body = Layout()
        body.split_row(*(self._three_columns if width >= _VERY_WIDE else self._two_columns)(state, width, rows))
        screen = Layout()
        if state.keys.is_helping:
            body = Layout(Align.center(_help_panel(), vertical="middle"))
        screen.split_column(Layout(_header(state, width), size=2), body, Layout(_footer(state, width), size=1))
        return screen

    def _two_columns(self, state: DashboardState, width: int, rows: int) -> list[Layout]:
        side = _clamped(width * 12 // 25, 34, 56)
        panels = self._text_panels(state, side, rows)
        if width >= _WIDE:
            panels += self._cameras(state, side, rows - _height(panels))
        return [Layout(self._map(state, width - side, rows)), Layout(_stack(panels, rows), size=side)]

    def _three_columns(self, state: DashboardState, width: int, rows: int) -> list[Layout]:
        side, cameras = _clamped(width // 4, 46, 56), _clamped(width // 4, 40, 60)
        panels = self._text_panels(state, side, rows)
        panels += _topics_panel(state, side - 2 * _FRAME, rows - _height(panels))
        graphs = _graph_panels(state, side - 2 * _FRAME, rows - _height(panels))
        panels += graphs
        pictures = self._cameras(state, cameras, rows)
        if pictures:
            pictures += _graph_panels(state, cameras - 2 * _FRAME, rows - _height(pictures), len(graphs))
        right = [Layout(_stack(panels, rows), size=side)]
        if pictures:
            right.append(Layout(_stack(pictures, rows), size=cameras))
        return [Layout(self._map(state, width - sum(part.size or 0 for part in right), rows)), *right]

    def _map(self, state: DashboardState, width: int, rows: int) -> RenderableType:
        drawn = self.map.draw(max(width - _FRAME, 1), max(rows - _FRAME, 1), state.robots, state.trails)
        return _panel(drawn, "map", f"grid {self.map.grid_m:g} m")

    def _text_panels(self, state: DashboardState, width: int, rows: int) -> list[tuple[RenderableType, int]]:
        inner = width - 2 * _FRAME
        radio = _radio_panel(state, inner, rows)
        left = rows - (radio[1] if radio else 0)
        return [*_robot_panels(state, inner, left), *([radio] if radio else [])]

    def _cameras(self, state: DashboardState, width: int, rows: int) -> list[tuple[RenderableType, int]]:
        """Thumbnails of the newest images, as many as fit."""
        panels: list[tuple[RenderableType, int]] = []
        for sensor, message in _shown_messages(state, state.robots):
            if sensor.kind.display.layer != "image":
                continue
            drawn = self._thumbnail(message, width - 2 * _FRAME, rows - _FRAME)
            if drawn is None:
                return panels
            title = f"{sensor.robot} {sensor.name}"
            panels.append((_panel(Align.center(drawn), title, f"{state.age(message):.2f} s ago"), drawn.rows + _FRAME))
            rows -= drawn.rows + _FRAME
        return panels

    def _thumbnail(self, message: Message, columns: int, rows: int) -> Pixels | None:
        seen = self._thumbnails.get(message.topic)
        if seen is not None and seen[0] is message and seen[1] == columns and seen[2].rows <= rows:
            return seen[2]
        image = picture(message.message)
        width = min(columns, int(2 * rows * image.shape[1] / image.shape[0]))
        height = width * image.shape[0] // image.shape[1] // 2 * 2
        if width < 12 or height < 12:
            return None
        drawn = Pixels(shrunk(image, width, height))
        self._thumbnails[message.topic] = (message, columns, drawn)
        return drawn


def _height(panels: Sequence[tuple[RenderableType, int]]) -> int:
    return sum(size for _, size in panels)


def _clamped(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))


def _panel(content: RenderableType, title: Text | str, note: str = "", tight: bool = True) -> Panel:
    return Panel(
        content, box=box.ROUNDED, border_style="dim", padding=0 if tight else (0, 1),
        title=title if isinstance(title, Text) else Text(title, "bold not dim"), title_align="left",
        subtitle=Text(note, "dim") if note else None, subtitle_align="right",
    )  # fmt: skip


def _stack(panels: Sequence[tuple[RenderableType, int]], rows: int) -> RenderableType:
    """Panels below each other; what is left stays empty."""
    shown, left = [], rows
    for panel, size in panels:
        if size <= left:
            shown.append(Layout(panel, size=size))
            left -= size
    if left:
        shown.append(Layout(Text(" ")))  # an empty text would be taken for none
    column = Layout()
    column.split_column(*shown)
    return column


def _robot_panels(state: DashboardState, width: int, rows: int) -> list[tuple[RenderableType, int]]:
    """Every sensor of every robot where there is room, else a line for each robot."""
    full = [_robot_lines(state, name, width) for name in state.robots]
    for most in range(max(map(len, full), default=0), 2, -1):
        if sum(min(len(lines), most) + _FRAME for lines in full) <= rows:
            return [
                (_robot_panel(state, name, index, lines[:most]), min(len(lines), most) + _FRAME)
                for index, (name, lines) in enumerate(zip(state.robots, full, strict=True))
            ]
    lines = [
        Text.assemble((arrow(robot.rpy[2]), _colour(index)), " ", _short_line(name, robot, width - 2))
        for index, (name, robot) in enumerate(state.robots.items())
    ]
    lines = _fitting(lines, max(rows - _FRAME, 1))
    return [(_panel(_lines(lines), "robots", "x, y, z [m], heading", tight=False), len(lines) + _FRAME)]


def _robot_panel(state: DashboardState, name: str, index: int, lines: Sequence[Text]) -> Panel:
    title = Text.assemble((f"{arrow(state.robots[name].rpy[2])} {name}", _colour(index)))
    if state.keys.robot == name:
        title.append(" · driven by keys" if state.keys.is_driven else " · keys", "not dim")
    model = state.models[name]
    return _panel(_lines(lines), title, "" if model == name else model, tight=False)


def _fitting(lines: list[Text], room: int) -> list[Text]:
    """As many as there is room for, with a word about the others."""
    return lines if len(lines) <= room else [*lines[: room - 1], Text(f"… and {len(lines) - room + 1} more", "dim")]


def _lines(lines: Sequence[Text]) -> RenderableType:
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


def _colour(index: int) -> Style:
    return Style.parse("bold not dim rgb({},{},{})".format(*robot_colour(index)))


# ---- lines of robots and sensors -------------------------------------------------------------------------------------


def _robot_lines(state: DashboardState, name: str, width: int) -> list[Text]:
    """Most telling first: where there is little room, the last are left out."""
    robot = state.robots[name]
    lines = [_pose(robot, width), _motion(robot)]
    shown = sorted(_shown_messages(state, [name]), key=lambda item: item[0].kind.display.order)
    longest = max((len(sensor.name) + 1 for sensor, _ in shown), default=0)
    label = max(_LABEL, min(longest, _WIDE_LABEL if width >= _WIDE else _LABEL))
    for sensor, message in shown:
        content = sensor_line(sensor.kind.display, message.message, width - label, state.age(message))
        lines.append(Text.assemble((f"{_label_text(sensor.name, label - 1):{label}}", "dim"), content))
    return lines


def _label_text(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 1]}…"


def _shown_messages(state: DashboardState, robots: Iterable[str]) -> Iterator[tuple[ShownSensor, Message]]:
    """Sensors with their newest messages, robot by robot, in the order in which they first arrived."""
    sensors = {
        topic: sensor
        for sensor in state.sensors
        for topic in sensor.topics_of_type(sensor.main_form.type)
        if not sensor.kind.display.is_hidden
    }
    for robot in robots:
        for topic, message in state.latest.items():
            if topic in sensors and sensors[topic].robot == robot:
                yield sensors[topic], message


def sensor_line(display: Display, message: Any, width: int, age: float) -> Text:
    """A reading in one line, as its sensor declares it; default: the message's first numbers with their names."""
    try:
        if callable(display.line):
            return _assembled(display.line(message), width)
        formats = (display.line,) if isinstance(display.line, str) else display.line
        if not any(formats):
            return _first_numbers(message, width, age)
        texts = [_formatted(each, message, age) for each in formats]
        return next((text for text in texts if text.cell_len <= width), texts[-1])
    except Exception as error:  # a plug-in's display must not end the dashboard
        return Text(f"display: {type(error).__name__}: {error}", "red")


def _formatted(line: str, message: Any, age: float) -> Text:
    """Values in full, the words between them dim."""
    values, formatter, text = _Fields(message, age=age), Formatter(), Text()
    for words, name, style, _ in formatter.parse(line):
        text.append(words, "dim")
        if name is not None:
            text.append(format(formatter.get_field(name, (), values)[0], style or ""))
    return text


class _Fields(dict[str, Any]):
    """The fields of a message and what else a line may show."""

    def __init__(self, message: Any, **others: Any) -> None:
        super().__init__(others)
        self._message = message

    def __missing__(self, name: str) -> Any:
        return getattr(self._message, name)


def _assembled(parts: str | Sequence[LinePart], width: int) -> Text:
    """Text and bars, which share the room that the text leaves."""
    if isinstance(parts, str):
        return Text(parts)
    pieces = [part if isinstance(part, tuple) else (part, "") for part in parts]
    room = max(width - sum(len(value) for value, _ in pieces if isinstance(value, str)), 0)
    text = Text()
    for value, style in pieces:
        if isinstance(value, str):
            text.append(value, style)
        else:
            filled, empty = bar(value, room)
            text.append(filled, style).append(empty, "dim")
    return text


def _first_numbers(message: Any, width: int, age: float) -> Text:
    text = Text()
    for path, value in numbers(message):
        part = Text.assemble((f"{path.split('.')[-1]} ", "dim"), f"{value:.6g}")
        if text and text.cell_len + 2 + part.cell_len > width:
            break
        text = Text("  ").join([text, part]) if text else part
    return text or Text.assemble(f"{age:.2f}", (" s ago", "dim"))


def _pose(robot: RobotState, width: int) -> Text:
    x, y, z = robot.position
    gap = "  " if width >= _ROOMY else " "
    parts = (("x ", f"{x:6.2f}{gap}"), ("y ", f"{y:6.2f}{gap}"), ("z ", f"{z:5.2f}{gap}"))
    heading = f"{math.degrees(robot.rpy[2]):4.0f}°"
    return Text.assemble(*(part for name, number in parts for part in ((name, "dim"), number)), heading)


def _motion(robot: RobotState) -> Text:
    text = Text.assemble(f"{robot.speed:5.2f}", (" m/s   turn ", "dim"), f"{robot.turn:+5.2f}", (" rad/s", "dim"))
    if robot.touching:
        text.append(f"  touches {', '.join(robot.touching)}", "yellow")
    elif robot.contacts:
        text.append(f"  {robot.contacts} contact{'s' if robot.contacts > 1 else ''}", "yellow")
    return text


def _short_line(name: str, robot: RobotState, width: int) -> Text:
    """A robot in one line, where there is no room for more."""
    x, y, z = robot.position
    room = max(width - 27, 4)
    return Text(f"{name[:room]:{room}} {x:6.1f} {y:6.1f} {z:5.1f} {math.degrees(robot.rpy[2]):4.0f}°")


# ---- radio, topics, header -------------------------------------------------------------------------------------------


def _radio_panel(state: DashboardState, width: int, rows: int) -> tuple[RenderableType, int] | None:
    if not state.links:
        return None
    busiest = sorted(state.links, key=lambda link: -link.sent) if len(state.links) > 2 else list(state.links)
    shown = busiest[: max((rows - 12) // 3, 1)]
    lines = [line for link in shown for line in _link_lines(state, link, width)]
    if len(busiest) > len(shown):
        lines.append(Text(f"… and {len(busiest) - len(shown)} more", "dim"))
    return _panel(_lines(lines), "radio", "mean latency", tight=False), len(lines) + _FRAME


def _link_lines(state: DashboardState, link: LinkState, width: int) -> list[Text]:
    who, history = f"{link.sender} → {link.receiver} ", state.latencies.get((link.sender, link.receiver), ())
    latency = f" {link.latency_ms:.0f} ms" if link.delivered else " silent"
    top = max(200.0, *(value for value in history if value is not None), 0.0)
    sparks = Text(spark(history, width - len(who) - len(latency), top), "cyan")
    sparks.highlight_words(["×"], "red")
    gap = " " * (width - len(who) - sparks.cell_len - len(latency))
    counts = (link.sent, " sent  "), (link.delivered, " got  "), (link.lost, " lost  "), (link.queued, " on air")
    return [
        Text.assemble(who, gap, sparks, latency),
        Text.assemble(*(part for number, word in counts for part in (str(number), (word, "dim")))),
    ]


def _topics_panel(state: DashboardState, width: int, rows: int) -> list[tuple[RenderableType, int]]:
    """Every topic, its type and the size of its newest message."""
    if rows - _FRAME < 4:
        return []
    lines = []
    for topic, message in sorted(state.latest.items()):
        kind = f"{message.type.split('/')[-1]} {len(message.cdr):6,} B"
        gap = " " * max(width - len(topic) - len(kind), 1)
        lines.append(Text.assemble(topic, gap, (kind, "dim")))
    lines = _fitting(lines, rows - _FRAME)
    return [(_panel(_lines(lines), "topics", f"{len(state.latest)}", tight=False), len(lines) + _FRAME)]


def _graph_panels(state: DashboardState, width: int, rows: int, first: int = 0) -> list[tuple[RenderableType, int]]:
    """Recent speeds and heights, as many as fit, from the `first` on."""
    titles = list(state.graphs)[first : first + rows // (_FRAME + _LEAST_GRAPH)]
    panels: list[tuple[RenderableType, int]] = []
    for place, title in enumerate(titles):
        high = min((rows - _height(panels)) // (len(titles) - place) - _FRAME, _MOST_GRAPH)
        values = state.graphs[title][-width:]
        top = max(*values, 1.0, 1.0)
        lines = [Text(line, "cyan") for line in graph(values, width, high, top)]
        panels.append(
            (_panel(_lines(lines), title, f"now {values[-1]:.1f}, top {top:.1f}", tight=False), high + _FRAME)
        )
    return panels


def _header(state: DashboardState, width: int) -> RenderableType:
    top, bottom = Table.grid(expand=True), Table.grid(expand=True, padding=(0, 1))
    top.add_column(justify="left", no_wrap=True)
    top.add_column(justify="right", no_wrap=True)
    title = ((" MicroSim ", "bold reverse"), "  ", (state.scenario, "bold"), ("  seed ", "dim"), str(state.seed))
    digest = state.digest[: 64 if width >= 150 else 16 if width >= 90 else 10] + "…" * (width < 150)
    top.add_row(Text.assemble(*title), Text.assemble(("digest ", "dim"), digest, " "))
    left = Text.assemble(" ", (_time(state.time_ns / 1e9), "bold"), ("  tick ", "dim"), f"{state.tick:,}")
    right = _pace(state, width)
    bottom.add_row(left, _progress(state, width - left.cell_len - right.cell_len - 4), right)
    return Group(top, bottom)


def _progress(state: DashboardState, width: int) -> Text:
    if state.ticks is None or width < 8:
        return Text(" " * max(width, 0))
    part = state.tick / state.ticks if state.ticks else 1.0
    words = f" {100.0 * part:3.0f} %"
    filled, empty = bar(part, width - len(words))
    return Text.assemble((filled, "cyan"), (empty, "dim"), words)


def _pace(state: DashboardState, width: int) -> Text:
    if state.keys.is_paused:
        return Text.assemble((" paused ", "bold black on yellow"), " ")
    is_behind = bool(state.asked_rtf) and state.rtf < 0.95 * state.asked_rtf and state.wall_s > 2.0
    rtf = f"{state.rtf:.2f}×" if state.rtf < 100 else f"{state.rtf:.0f}×"
    text = Text.assemble((rtf, "bold yellow" if is_behind else "bold green"))
    if width >= 72:
        text.append(f" of {state.asked_rtf:g}×" if state.asked_rtf else " unlimited", "dim")
    if state.asked_rtf:
        text.append_text(Text.assemble(("  tick lag ", "dim"), f"{state.lateness_ms:.1f} ms"))
        if width >= 110:
            text.append(f" (worst {state.worst_lateness_ms:.1f})", "dim")
    return text.append(" ")


def _time(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60.0)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:06.3f}" if hours else f"{minutes:02d}:{rest:06.3f}"


def _help_panel() -> Panel:
    table = Table.grid(padding=(0, 2))
    for keys, what in HELP:
        table.add_row(Text(keys, "bold"), what)
    return _panel(Align.center(table), "keys", tight=False)


def _key_hints(state: DashboardState, width: int) -> Text:
    """As many as there is room for, most useful first."""
    keys = state.keys
    if not keys.has_keys:
        return Text("Ctrl-C ends ", "dim")
    hints = [("?", "keys"), ("q", "end"), ("Space", "resume" if keys.is_paused else "pause")]
    hints += [("↑↓←→", f"drive {keys.robot}")] if keys.robot else []
    hints += [("Tab", "robot")] if len(state.robots) > 1 else []
    hints += [("p", "pilot")] if keys.is_driven else []
    hints += [("+ -", "speed"), ("r", "reset"), (".", "step")]
    text = Text(no_wrap=True)
    for key, what in hints:
        more = Text.assemble((key, "bold"), (f" {what}  ", "dim"))
        if text.cell_len + more.cell_len > width:
            break
        text.append_text(more)
    return text


def _footer(state: DashboardState, width: int) -> RenderableType:
    ignored = Text(no_wrap=True, overflow="ellipsis")
    if state.keys.note:
        ignored.append(f" {state.keys.note}", "yellow")
    elif state.ignored:
        ignored.append(" ignored: ", "yellow")
        ignored.append(", ".join(f"{count} {reason}" for reason, count in state.ignored.items()))
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1, no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(ignored, _key_hints(state, width - min(ignored.cell_len, width // 2) - 1))
    return grid


def bar(part: float, width: int) -> tuple[str, str]:
    """Its filled and its empty length."""
    filled = round(min(max(part, 0.0), 1.0) * width)
    return "━" * filled, "─" * (width - filled)


def graph(values: Sequence[float], width: int, rows: int, top: float) -> list[str]:
    """The last values as columns from 0 to `top`, in rows of characters, the highest first."""
    shown = [8.0 * rows * min(max(value / top, 0.0), 1.0) for value in values[-width:]] if width > 0 else []
    levels = [[min(max(round(value) - 8 * row, 0), 8) for value in shown] for row in reversed(range(rows))]
    return ["".join(" " if level == 0 else SPARKS[level - 1] for level in line) for line in levels]


def spark(values: Sequence[float | None], width: int, top: float) -> str:
    """The last values as a sparkline from 0 to `top`; None, a loss, as a cross."""
    shown = values[-width:] if width > 0 else ()
    return "".join("×" if value is None else SPARKS[min(int(8.0 * value / top), 7)] for value in shown)
