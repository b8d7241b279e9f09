"""Road maps: OpenDRIVE against closed forms, Lanelet2 against the lanelet2 library, routes, worlds and the way back."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from shapely import Point, Polygon
from typer.testing import CliRunner

from microsim.bundle import load_bundle
from microsim.bundle.road_map import RoadMap, lanes_text, read_lanes
from microsim.cli import app
from microsim.errors import UsageError
from microsim.parts.worlds.roads.road_files import opendrive_text, read_opendrive

RADIUS, WIDTH, STRAIGHT = 30.0, 3.5, 80.0


def lanes_xml(count: int = 1, left: int = 1) -> str:
    lane = '<lane id="{}" type="{}"><width sOffset="0" a="{}" b="0" c="0" d="0"/></lane>'
    lefts = "".join(lane.format(number, "driving", WIDTH) for number in range(left, 0, -1))
    rights = "".join(lane.format(-number, "driving", WIDTH) for number in range(1, count + 1))
    walk = lane.format(-count - 1, "sidewalk", 2.0)
    middle = '<center><lane id="0" type="none"/></center>'
    return f'<laneSection s="0"><left>{lefts}</left>{middle}<right>{rights}{walk}</right></laneSection>'


def road(number: int, pieces: list[tuple[str, float, float, float, float]], lanes: str, rest: str = "") -> str:
    """Pieces: shape, x, y, heading, length."""
    s, out = 0.0, []
    for shape, x, y, heading, length in pieces:
        out.append(f'<geometry s="{s}" x="{x}" y="{y}" hdg="{heading}" length="{length}">{shape}</geometry>')
        s += length
    speed = '<type s="0" type="town"><speed max="50" unit="km/h"/></type>'
    line = f"<planView>{''.join(out)}</planView>"
    return f'<road id="{number}" length="{s}" junction="-1">{speed}{line}{rest}<lanes>{lanes}</lanes></road>'


def oval_xml() -> str:
    """Two straights and two half circles, a lane each way, a hill on the first straight."""
    half = math.pi * RADIUS
    hill = '<elevationProfile><elevation s="0" a="0" b="0" c="0.003" d="-0.0000375"/></elevationProfile>'
    arc = f'<arc curvature="{1 / RADIUS}"/>'
    roads = [
        road(1, [("<line/>", 0.0, 0.0, 0.0, STRAIGHT)], lanes_xml(), hill),
        road(
            2,
            [(arc, STRAIGHT, 0.0, 0.0, half)],
            lanes_xml(),
            '<elevationProfile><elevation s="0" a="0" b="0" c="0" d="0"/></elevationProfile>',
        ),
        road(3, [("<line/>", STRAIGHT, 2 * RADIUS, math.pi, STRAIGHT)], lanes_xml()),
        road(4, [(arc, 0.0, 2 * RADIUS, math.pi, half)], lanes_xml()),
    ]
    place = "<geoReference><![CDATA[+proj=tmerc +lat_0=48.5 +lon_0=9.25 +k=1 +datum=WGS84]]></geoReference>"
    head = f'<header revMajor="1" revMinor="6">{place}</header>'
    return f'<?xml version="1.0"?><OpenDRIVE>{head}{"".join(roads)}</OpenDRIVE>'


@pytest.fixture
def oval(tmp_path: Path) -> Path:
    file = tmp_path / "oval.xodr"
    file.write_text(oval_xml())
    return file


def test_lanes_follow_the_closed_forms_of_lines_and_arcs(oval: Path) -> None:
    roads = read_opendrive(oval)
    assert sorted(roads.lanes) == sorted(f"{number}.0.{lane}" for number in (1, 2, 3, 4) for lane in (1, -1))
    assert roads.origin == (48.5, 9.25, 0.0)
    inner = roads.lanes["2.0.1"]  # against the road's direction: on the left, inside the bend
    middle = np.array([STRAIGHT, RADIUS])
    for line, radius in ((inner.left, RADIUS - 0.0), (inner.right, RADIUS - WIDTH)):
        np.testing.assert_allclose(np.linalg.norm(line[:, :2] - middle, axis=1), radius, atol=1e-6)
    assert inner.centre[0, 1] > inner.centre[-1, 1]
    assert inner.speed_m_per_s == pytest.approx(50 / 3.6)
    s = roads.lanes["1.0.-1"].centre
    np.testing.assert_allclose(s[:, 2], 0.003 * s[:, 0] ** 2 - 0.0000375 * s[:, 0] ** 3, atol=1e-9)
    np.testing.assert_allclose(s[:, 1], -WIDTH / 2, atol=1e-9)


def test_a_left_hand_road_runs_the_other_way(tmp_path: Path, oval: Path) -> None:
    oval.write_text(oval_xml().replace('<road id="1"', '<road rule="LHT" id="1"'))
    lane = read_opendrive(oval).lanes["1.0.-1"]
    assert lane.centre[0, 0] > lane.centre[-1, 0]
    assert (lane.left[:, 1] < lane.right[:, 1]).all()


def test_spirals_and_cubics_follow_the_numbers_of_others(tmp_path: Path) -> None:
    """A clothoid's end by SciPy's Fresnel integrals; a parametric cubic and a plain one by their polynomials."""
    from scipy.special import fresnel

    length, curvature = 40.0, 0.05
    pieces = {
        "spiral": f'<spiral curvStart="0" curvEnd="{curvature}"/>',
        "param": '<paramPoly3 pRange="normalized" aU="0" bU="40" cU="0" dU="0" aV="0" bV="0" cV="6" dV="-2"/>',
        "poly": '<poly3 a="0" b="0" c="0.002" d="-0.00001"/>',
    }
    ends = {}
    for name, shape in pieces.items():
        file = tmp_path / f"{name}.xodr"
        text = road(1, [(shape, 5.0, -3.0, 0.4, length)], lanes_xml(1, 0))
        file.write_text(f"<OpenDRIVE><header/>{text}</OpenDRIVE>")
        ends[name] = read_opendrive(file).lanes["1.0.-1"].left[-1, :2]
    scale = math.sqrt(math.pi * length / curvature)
    sine, cosine = fresnel(length / scale)
    expected = {
        "spiral": (scale * cosine, scale * sine),
        "param": (40.0, 4.0),
        "poly": (40.0, 0.002 * 1600 - 0.00001 * 64000),
    }
    for name, (u, v) in expected.items():
        x, y = 5.0 + math.cos(0.4) * u - math.sin(0.4) * v, -3.0 + math.sin(0.4) * u + math.cos(0.4) * v
        np.testing.assert_allclose(ends[name], (x, y), atol=1e-6, err_msg=name)


def test_lanes_follow_each_other_and_routes_are_shortest(oval: Path) -> None:
    roads = read_opendrive(oval)
    assert roads.lanes["1.0.-1"].next == ("2.0.-1",)
    assert roads.lanes["1.0.1"].next == ("4.0.1",)
    lanes, points = roads.route((10.0, -2.0), (60.0, 2 * RADIUS + 2.0))
    assert lanes == ["1.0.-1", "2.0.-1", "3.0.-1"]
    length = float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())
    assert length == pytest.approx(70.0 + math.pi * (RADIUS + WIDTH / 2) + 20.0, abs=2.0)
    around, _ = roads.route((60.0, -2.0), (10.0, -2.0))  # behind us on the same lane: once around
    assert around == ["1.0.-1", "2.0.-1", "3.0.-1", "4.0.-1", "1.0.-1"]
    with pytest.raises(UsageError, match=r"x 500, y 0 is \d+ m from the nearest lane"):
        roads.route((500.0, 0.0), (0.0, 0.0))


def test_the_drivable_area_is_that_of_the_lanes(oval: Path) -> None:
    roads = read_opendrive(oval)
    area = [Polygon(rings[0], rings[1:]) for rings, _ in roads.polygons()]
    expected = 2 * 2 * WIDTH * STRAIGHT + math.pi * ((RADIUS + WIDTH) ** 2 - (RADIUS - WIDTH) ** 2)
    assert len(area) == 1
    assert area[0].area == pytest.approx(expected, rel=2e-3)
    assert not area[0].contains(Point(STRAIGHT / 2, RADIUS))  # the infield
    assert not area[0].contains(Point(40.0, -WIDTH - 1.0))  # the pavement


def test_opendrive_comes_back_as_it_was(oval: Path, tmp_path: Path) -> None:
    roads = read_opendrive(oval)
    again = tmp_path / "again.xodr"
    again.write_text(opendrive_text(roads, "oval & co"))
    _assert_same_lanes(roads, read_opendrive(again))


def _assert_same_lanes(one: RoadMap, other: RoadMap) -> None:
    """Names may differ; lanes lie where they did, and as many follow each other."""
    assert len(one.lanes) == len(other.lanes)
    assert sum(len(lane.next) for lane in one.lanes.values()) == sum(len(lane.next) for lane in other.lanes.values())
    for lane in one.lanes.values():
        ends = np.stack([lane.centre[0], lane.centre[-1]])
        gaps = [
            float(np.abs(np.stack([each.centre[0], each.centre[-1]]) - ends).max()) for each in other.lanes.values()
        ]
        assert min(gaps) < 0.05
        assert list(other.lanes.values())[int(np.argmin(gaps))].length_m == pytest.approx(lane.length_m, rel=5e-3)


def test_lanelet2_reads_what_we_write_and_agrees_on_what_follows_what(oval: Path, tmp_path: Path) -> None:
    """The library's own reader and routing graph are the judges."""
    import lanelet2.io
    import lanelet2.projection
    import lanelet2.routing
    import lanelet2.traffic_rules

    from microsim.parts.worlds.roads.road_files import read_lanelet2, write_lanelet2

    roads = read_opendrive(oval)
    file = tmp_path / "oval.osm"
    write_lanelet2(roads, file)
    projector = lanelet2.projection.LocalCartesianProjector(lanelet2.io.Origin(48.5, 9.25, 0.0))
    loaded = lanelet2.io.load(str(file), projector)
    rules = lanelet2.traffic_rules.create(
        lanelet2.traffic_rules.Locations.Germany, lanelet2.traffic_rules.Participants.Vehicle
    )
    graph = lanelet2.routing.RoutingGraph(loaded, rules)
    assert not graph.checkValidity()
    assert [len(graph.following(each)) for each in loaded.laneletLayer] == [1] * 8
    limits = {round(rules.speedLimit(each).speedLimit, 1) for each in loaded.laneletLayer}  # [km/h]
    assert limits in ({50.0}, {13.9})
    back = read_lanelet2(file, (48.5, 9.25, 0.0))
    _assert_same_lanes(roads, back)
    assert read_lanelet2(file).origin == pytest.approx((48.5 + RADIUS / 111_200, 9.25 + 40 / 73_800, 0.0), abs=1e-4)


@pytest.mark.parametrize(("east", "north", "turn"), [(-120.0, 45.0, 0.0), (86_695.0, 44_928.0, 0.02)])
def test_local_x_and_local_y_decide_the_frame(
    oval: Path, tmp_path: Path, east: float, north: float, turn: float
) -> None:
    """As Autoware has them, in a grid that may be turned from north: then no place on Earth is at its corner."""
    import xml.etree.ElementTree as ET

    import lanelet2.io
    import lanelet2.projection

    from microsim.parts.worlds.roads.road_files import read_lanelet2, write_lanelet2

    roads = read_opendrive(oval)
    file = tmp_path / "oval.osm"
    write_lanelet2(roads, file)
    projector = lanelet2.projection.LocalCartesianProjector(lanelet2.io.Origin(48.5, 9.25, 0.0))
    nodes = {str(node.id): node for node in lanelet2.io.load(str(file), projector).pointLayer}
    tree = ET.parse(file)
    cos, sin = math.cos(turn), math.sin(turn)
    for element in tree.getroot().iter("node"):
        node = nodes[element.get("id", "")]
        x, y = cos * node.x - sin * node.y + east, sin * node.x + cos * node.y + north
        for key, value in (("local_x", x), ("local_y", y)):
            ET.SubElement(element, "tag", k=key, v=f"{value:.4f}")
    tree.write(file)
    back = read_lanelet2(file)
    rotation, shift = np.array([[cos, -sin], [sin, cos]]), (east, north)
    expected = np.concatenate([lane.centre[:, :2] @ rotation.T + shift for lane in roads.lanes.values()])
    found = np.concatenate([lane.centre[:, :2] for lane in back.lanes.values()])
    for one, other in ((expected, found), (found, expected)):
        gaps = np.linalg.norm(one[:, None] - other[None], axis=2).min(axis=1)
        assert float(gaps.max()) < 0.6  # samples lie a metre apart
    if turn:
        assert back.origin is None
    else:
        assert back.origin == pytest.approx((48.5 - north / 111_200, 9.25 - east / 73_800, 0.0), abs=1e-5)
    _assert_same_lanes(roads, read_lanelet2(file, (48.5, 9.25, 0.0)))  # --origin takes latitude and longitude


def test_a_plain_map_of_openstreetmap_is_named_as_such(tmp_path: Path) -> None:
    from microsim.parts.worlds.roads.road_files import read_lanelet2

    file = tmp_path / "town.osm"
    nodes = "".join(f'<node id="{n}" lat="50.{n:03}" lon="8.0" version="1"/>' for n in (1, 2))
    way = '<way id="3" version="1"><nd ref="1"/><nd ref="2"/><tag k="highway" v="residential"/></way>'
    file.write_text(f'<?xml version="1.0"?><osm version="0.6">{nodes}{way}</osm>')
    with pytest.raises(UsageError, match=r"town\.osm: expected a Lanelet2 map, found a plain map of OpenStreetMap"):
        read_lanelet2(file)


@pytest.mark.parametrize("seed", range(3))  # with 1, corners rounded by themselves make edges cross
def test_polygons_of_crossing_lanes_are_simple(seed: int) -> None:
    from microsim.bundle.road_map import RoadLane

    rng = np.random.default_rng(seed)
    lanes = {}
    for number in range(60):
        start, angle = rng.uniform(-20, 20, 2), rng.normal(0, 1.0)
        along, across = np.array([math.cos(angle), math.sin(angle)]), np.array([-math.sin(angle), math.cos(angle)])
        left = np.array([[*(start + s * along + 1.7 * across), 0.0] for s in (0, 5.0, 10.0)])
        lanes[str(number)] = RoadLane(str(number), left, left - [*(3.4 * across), 0.0], (), None)
    assert all(Polygon(rings[0], rings[1:]).is_valid for rings, _ in RoadMap(lanes).polygons())


def test_marks_are_as_wide_as_marks_and_asphalt_is_beside_them(oval: Path) -> None:
    """Colours of the ground as the Gaussians there mix them, seen from straight above, at the outer borders."""
    from microsim.parts.worlds.roads.road_world import road_world

    roads = read_opendrive(oval)
    rows = road_world("oval", roads, "oval.xodr", 0.5).gaussians.astype(np.float64)
    assert len(rows) < 150_000
    sigmas, colours = np.exp(rows[:, 3:5]), 0.5 + 0.28209479177387814 * rows[:, 11:14]
    x, y, z, w = rows[:, 6:10].T
    turn = np.arctan2(2.0 * (x * y + z * w), 1.0 - 2.0 * (y * y + z * z))  # of its first axis, from above

    def colour(point: np.ndarray) -> np.ndarray:
        off = point - rows[:, :2]
        near = np.linalg.norm(off, axis=1) < 6.0
        cos, sin = np.cos(turn[near]), np.sin(turn[near])
        u, v = off[near, 0] * cos + off[near, 1] * sin, off[near, 1] * cos - off[near, 0] * sin
        weights = np.exp(-0.5 * ((u / sigmas[near, 0]) ** 2 + (v / sigmas[near, 1]) ** 2))
        return (weights[:, None] * colours[near]).sum(axis=0) / weights.sum()

    for lane in roads.lanes.values():
        middle = len(lane.right) // 2
        border = lane.right[middle, :2]
        inwards = lane.left[middle, :2] - border
        inwards /= np.linalg.norm(inwards)
        assert float(colour(border).min()) > 0.5  # white
        for inside in (0.3, 0.8, 1.7):
            assert 0.2 < float(colour(border + inside * inwards).max()) < 0.4  # asphalt
        red, green, blue = colour(border - 1.5 * inwards)
        assert green > 1.2 * red > 1.2 * blue  # grass


def test_a_map_becomes_a_world_with_routes_and_back(
    oval: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from microsim.parts.missions import fly_mission

    monkeypatch.chdir(tmp_path)
    run("from-roads", "oval.xodr", "town", "--resolution", "1")
    bundle = load_bundle("town")
    assert bundle.origin_is_known
    assert not bundle.warnings
    heights = bundle.heightmap
    row, column = int((-1.7 - heights.south) / 1.0), int((53.0 - heights.west) / 1.0)
    assert float(heights.values[row, column]) == pytest.approx(0.003 * 53.5**2 - 0.0000375 * 53.5**3, abs=0.15)
    text = run("route", "town", "5,-2", "30,-2", "-o", "there.yaml", "--speed", "4")
    assert "25 m along 1 lanes: 1.0.-1" in text
    result = fly_mission("there.yaml")
    assert result.violations == ()
    run("export-roads", "town", "back.xodr")
    _assert_same_lanes(read_opendrive(oval), read_opendrive(tmp_path / "back.xodr"))
    run("pack", "town")
    run("unpack", "town.zip", "again")
    assert read_lanes(tmp_path / "again/geometry/lanes.geojson").lanes.keys() == read_opendrive(oval).lanes.keys()


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["bundle", *arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_the_example_town_is_connected_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ways at each junction, and from everywhere to everywhere without a turn on the spot."""
    town = Path(__file__).resolve().parents[3] / "examples" / "roads" / "town.xodr"
    lanes = read_opendrive(town).lanes
    assert len(lanes) == 34
    assert sorted(len(lane.next) for lane in lanes.values()) == [1] * 28 + [2] * 6
    monkeypatch.chdir(tmp_path)
    run("from-roads", str(town), "my_town", "--resolution", "2")
    assert "48 m along 3 lanes: 1.0.-1, 14.0.-1, 13.0.-1" in run("route", "my_town", "20,-2", "42,30")
    assert load_bundle("my_town").drivable.polygon_at(41.75, 30.0) == 0


def test_roads_can_be_put_into_another_world(oval: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("from-roads", "oval.xodr", "mixed", "--like", "minimal_test")
    mixed, like = load_bundle("mixed"), load_bundle("minimal_test")
    assert mixed.gaussians.count == like.gaussians.count
    assert "geometry/lanes.geojson" in mixed.files
    assert mixed.drivable.count == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<a", r":1: not XML"),
        ("<a/>", "expected the element OpenDRIVE, found 'a'"),
        ("<!DOCTYPE x []><OpenDRIVE/>", "expected no document type declaration"),
        ("<OpenDRIVE/>", "it has no lanes for cars"),
        ('<OpenDRIVE><road id="7" length="10"/></OpenDRIVE>', "road '7' has no geometry"),
        ('<OpenDRIVE><road id="7" length="x"/></OpenDRIVE>', "expected a number as 'length' of <road>, found 'x'"),
        (oval_xml().replace("<line/>", "<knot/>", 1), "expected a line, arc, spiral or cubic, found 'knot'"),
        (oval_xml().replace("<line/>", '<arc curvature="1e6"/>', 1), "too long or too curved"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.xodr"
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as error:
        read_opendrive(file)
    assert str(file) in str(error.value)


def test_lanes_survive_their_file(oval: Path, tmp_path: Path) -> None:
    roads = read_opendrive(oval)
    file = tmp_path / "lanes.geojson"
    file.write_text(lanes_text(roads))
    found = read_lanes(file)
    for name, lane in roads.lanes.items():
        np.testing.assert_allclose(found.lanes[name].centre, lane.centre, atol=1e-3)
        assert found.lanes[name].next == lane.next
