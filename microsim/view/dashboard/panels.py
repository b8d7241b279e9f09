"""Facts to a screenful: header, map, robots, radio, camera; what is shown depends on the room there is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich import box
from rich.align import Align
from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from microsim.view.dashboard.facts import Facts, Robot
from microsim.view.dashboard.lines import radio_lines, robot_lines, sensor_messages, short_line, topic_lines
from microsim.view.dashboard.raster import Image, Pixels, arrow, bar, shrunk
from microsim.view.dashboard.world_map import WorldMap, robot_colour

_WIDE, _VERY_WIDE = 100, 160  # columns from which there is room for two and three columns of panels
_FRAME = 2  # rows or columns that a panel's border takes


class Screen:
    """Draws facts; remembers what need not be drawn again."""

    def __init__(self, world_map: WorldMap) -> None:
        self.map = world_map
        self._thumbnails: dict[str, tuple[object, int, Pixels]] = {}  # by topic: message, width, picture

    def draw(self, facts: Facts, width: int, height: int) -> Layout:
        rows = max(height - 3, 4)
        body = Layout()
        body.split_row(*(self._three_columns if width >= _VERY_WIDE else self._two_columns)(facts, width, rows))
        screen = Layout()
        screen.split_column(Layout(_header(facts, width), size=2), body, Layout(_footer(facts), size=1))
        return screen

    def _two_columns(self, facts: Facts, width: int, rows: int) -> list[Layout]:
        side = _clamped(width * 12 // 25, 34, 56)
        panels = self._text_panels(facts, side, rows)
        if width >= _WIDE:
            panels += self._cameras(facts, side, rows - _height(panels))
        return [Layout(self._map(facts, width - side, rows)), Layout(_stack(panels, rows), size=side)]

    def _three_columns(self, facts: Facts, width: int, rows: int) -> list[Layout]:
        side, cameras = _clamped(width // 4, 46, 56), _clamped(width // 4, 40, 60)
        panels = self._text_panels(facts, side, rows)
        panels += _topics_panel(facts, side - 2 * _FRAME, rows - _height(panels))
        pictures = self._cameras(facts, cameras, rows)
        right = [Layout(_stack(panels, rows), size=side)]
        if pictures:
            right.append(Layout(_stack(pictures, rows), size=cameras))
        return [Layout(self._map(facts, width - sum(part.size or 0 for part in right), rows)), *right]

    def _map(self, facts: Facts, width: int, rows: int) -> RenderableType:
        places = {robot.name: robot.place for robot in facts.robots}
        picture = self.map.draw(max(width - _FRAME, 1), max(rows - _FRAME, 1), places, facts.trails)
        return _panel(picture, "map", f"grid {self.map.grid_m:g} m")

    def _text_panels(self, facts: Facts, width: int, rows: int) -> list[tuple[RenderableType, int]]:
        inner = width - 2 * _FRAME
        radio = _radio_panel(facts, inner, rows)
        left = rows - (radio[1] if radio else 0)
        return [*_robot_panels(facts, inner, left), *([radio] if radio else [])]

    def _cameras(self, facts: Facts, width: int, rows: int) -> list[tuple[RenderableType, int]]:
        """Thumbnails of the newest images, as many as fit."""
        panels: list[tuple[RenderableType, int]] = []
        for robot in facts.robots:
            for sensor, message in sensor_messages(facts, robot.name):
                if message.type != "sensor_msgs/msg/Image":
                    continue
                picture = self._thumbnail(message.topic, message, width - 2 * _FRAME, rows - _FRAME)
                if picture is None:
                    return panels
                age = max(facts.time_ns - message.stamp_ns, 0) / 1e9
                panel = _panel(Align.center(picture), f"{robot.name} {sensor}", f"{age:.2f} s ago")
                panels.append((panel, picture.rows + _FRAME))
                rows -= picture.rows + _FRAME
        return panels

    def _thumbnail(self, topic: str, message: object, columns: int, rows: int) -> Pixels | None:
        seen = self._thumbnails.get(topic)
        if seen is not None and seen[0] is message and seen[1] == columns and seen[2].rows <= rows:
            return seen[2]
        image = _picture(message)
        width = min(columns, int(2 * rows * image.shape[1] / image.shape[0]))
        height = width * image.shape[0] // image.shape[1] // 2 * 2
        if width < 12 or height < 12:
            return None
        picture = Pixels(shrunk(image, width, height))
        self._thumbnails[topic] = (message, columns, picture)
        return picture


def _picture(message: object) -> Image:
    image = message.message  # type: ignore[attr-defined]
    pixels: Image = np.asarray(image.data, np.uint8).reshape(image.height, image.step)[:, : 3 * image.width]
    return pixels.reshape(image.height, image.width, 3)


def _height(panels: Sequence[tuple[RenderableType, int]]) -> int:
    return sum(size for _, size in panels)


def _clamped(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))


def _panel(content: RenderableType, title: RenderableType | str, note: str = "", tight: bool = True) -> Panel:
    return Panel(
        content,
        box=box.ROUNDED,
        title=title if isinstance(title, Text) else Text(str(title), "bold not dim"),
        title_align="left",
        subtitle=Text(note, "dim") if note else None,
        subtitle_align="right",
        border_style="dim",
        padding=0 if tight else (0, 1),
    )


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


def _robot_panels(facts: Facts, width: int, rows: int) -> list[tuple[RenderableType, int]]:
    """Every sensor of every robot where there is room, else a line for each robot."""
    full = [robot_lines(facts, robot, width) for robot in facts.robots]
    for most in range(max(map(len, full), default=0), 2, -1):
        if sum(min(len(lines), most) + _FRAME for lines in full) <= rows:
            shown = [lines[:most] for lines in full]
            return [
                (_panel(_lines(lines), _robot_title(index, robot), _kind(robot), tight=False), len(lines) + _FRAME)
                for index, (robot, lines) in enumerate(zip(facts.robots, shown, strict=True))
            ]
    room = max(rows - _FRAME, 1)
    lines = [
        Text.assemble((arrow(robot.place.yaw), _colour(index)), " ", short_line(robot, width - 2))
        for index, robot in enumerate(facts.robots)
    ]
    if len(lines) > room:
        lines = [*lines[: room - 1], Text(f"… and {len(lines) - room + 1} more", "dim")]
    return [(_panel(_lines(lines), "robots", "x, y, z [m], heading", tight=False), len(lines) + _FRAME)]


def _lines(lines: Sequence[Text]) -> RenderableType:
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


def _kind(robot: Robot) -> str:
    return "" if robot.model == robot.name else robot.model


def _colour(index: int) -> Style:
    return Style.parse("bold not dim rgb({},{},{})".format(*robot_colour(index)))


def _robot_title(index: int, robot: Robot) -> Text:
    return Text.assemble((f"{arrow(robot.place.yaw)} {robot.name}", _colour(index)))


def _radio_panel(facts: Facts, width: int, rows: int) -> tuple[RenderableType, int] | None:
    if not facts.radios:
        return None
    busiest = sorted(facts.radios, key=lambda radio: -radio.sent) if len(facts.radios) > 2 else list(facts.radios)
    shown = busiest[: max((rows - 12) // 3, 1)]
    lines = [line for radio in shown for line in radio_lines(radio, width)]
    if len(busiest) > len(shown):
        lines.append(Text(f"… and {len(busiest) - len(shown)} more", "dim"))
    return _panel(_lines(lines), "radio", "mean latency", tight=False), len(lines) + _FRAME


def _topics_panel(facts: Facts, width: int, rows: int) -> list[tuple[RenderableType, int]]:
    lines = topic_lines(facts, width)
    room = rows - _FRAME
    if room < 4:
        return []
    if len(lines) > room:
        lines = [*lines[: room - 1], Text(f"… and {len(lines) - room + 1} more", "dim")]
    return [(_panel(_lines(lines), "topics", f"{len(facts.latest)}", tight=False), len(lines) + _FRAME)]


def _header(facts: Facts, width: int) -> RenderableType:
    top, bottom = Table.grid(expand=True), Table.grid(expand=True, padding=(0, 1))
    top.add_column(justify="left", no_wrap=True)
    top.add_column(justify="right", no_wrap=True)
    top.add_row(
        Text.assemble(
            (" MicroSim ", "bold reverse"), "  ", (facts.scenario, "bold"), ("  seed ", "dim"), str(facts.seed)
        ),
        Text.assemble(
            ("digest ", "dim"),
            facts.digest[: 64 if width >= 150 else 16 if width >= 90 else 10],
            "…" * (width < 150),
            " ",
        ),
    )
    left = Text.assemble(" ", (_time(facts.sim_s), "bold"), ("  tick ", "dim"), f"{facts.tick:,}")
    right = _pace(facts, width)
    bottom.add_row(left, _progress(facts, width - left.cell_len - right.cell_len - 4), right)
    return Group(top, bottom)


def _progress(facts: Facts, width: int) -> Text:
    if facts.ticks is None or width < 8:
        return Text(" " * max(width, 0))
    part = facts.tick / facts.ticks if facts.ticks else 1.0
    words = f" {100.0 * part:3.0f} %"
    filled, empty = bar(part, width - len(words))
    return Text.assemble((filled, "cyan"), (empty, "dim"), words)


def _pace(facts: Facts, width: int) -> Text:
    is_behind = bool(facts.asked_rtf) and facts.rtf < 0.95 * facts.asked_rtf and facts.wall_s > 2.0
    text = Text.assemble(
        (f"{facts.rtf:.2f}×" if facts.rtf < 100 else f"{facts.rtf:.0f}×", "bold yellow" if is_behind else "bold green")
    )
    if width >= 72:
        text.append(f" of {facts.asked_rtf:g}×" if facts.asked_rtf else " flat out", "dim")
    if facts.asked_rtf:
        text.append_text(Text.assemble(("  late ", "dim"), f"{1e3 * facts.lateness_s:.1f} ms"))
        if width >= 110:
            text.append(f" (worst {1e3 * facts.worst_lateness_s:.1f})", "dim")
    return text.append(" ")


def _time(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60.0)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:06.3f}" if hours else f"{minutes:02d}:{rest:06.3f}"


def _footer(facts: Facts) -> RenderableType:
    if facts.ignored:
        text = ", ".join(f"{count} {reason}" for reason, count in facts.ignored.items())
        ignored = Text.assemble((" ignored: ", "yellow"), text)
    else:
        ignored = Text(" no input ignored", "dim")
    ignored.no_wrap, ignored.overflow = True, "ellipsis"
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1, no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(ignored, Text("Ctrl-C ends ", "dim"))
    return grid
