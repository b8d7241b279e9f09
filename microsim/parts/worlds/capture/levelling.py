"""Which way is up, how large it is, and where on Earth: a capture's frame, found from its content or said by options.

Nothing is guessed silently: what is not certain is an error that names the option which decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.similarity import Similarity, fitted, upright
from microsim.engine.random_layout import mix
from microsim.errors import UsageError
from microsim.parts.worlds.capture.camera_poses import DATA_PARSER_FILE, NO_POSES, CameraPoses
from microsim.parts.worlds.capture.scene_layers import SceneSplats

Floats: TypeAlias = npt.NDArray[np.float64]

SAMPLE = 60_000  # splats that vote on the ground
_PLANES = 400  # planes that are tried
_TRIPLES = 1_500  # planes through three points that are tried where flat splats show none
_AROUND = 2.0  # times the scene's size: what is farther away says nothing about what is below the ground
_ALIKE = math.cos(math.radians(20.0))  # planes closer than this are one direction
_CLEAR = 1.5  # the best plane must have so many times the votes of another direction
_TILT_WARNING_DEG = 6.0  # cameras held by hand and a road agree this well
_VIEW = math.cos(math.radians(50.0))  # half the angle that a wide lens sees
_SEEN = 0.005  # share of the splats that a camera sees at least
_CANDIDATES = 3  # that are shown where it is not clear
_LEAST_VOTES = 0.05  # share of the splats that lie on the ground


class UnclearCaptureError(UsageError):
    """The capture does not tell; the message names the options that decide."""

    scene: SceneSplats | None = None  # what it is about, for pictures
    cameras: CameraPoses | None = None
    ups: tuple[Floats, ...] = ()  # the likeliest, best first


def _unclear(message: str, cameras: CameraPoses | None, ups: Sequence[Floats] = ()) -> UnclearCaptureError:
    """With what else may be the cause: poses that are not in the frame of the Gaussians; and values to paste."""
    if ups:
        message += f"; the likeliest: {' or '.join(up_option(up) for up in ups)}"
    error = UnclearCaptureError(_with_poses(message, cameras))
    error.ups = tuple(ups)
    return error


def up_option(up: Floats) -> str:
    return "--up=" + ",".join(f"{part:.3f}" for part in up.tolist())


def _with_poses(message: str, cameras: CameraPoses | None) -> str:
    if cameras is None:
        return message
    missing = f"; if nerfstudio trained the Gaussians, copy its {DATA_PARSER_FILE} there" if cameras.is_bare else ""
    return f"{message}\nposes: {cameras.words}{missing}; --ignore-cameras leaves them out"


@dataclass(frozen=True)
class Splats:
    """What levelling needs of a sample of a capture's opaque Gaussians, in the capture's frame."""

    points: Floats  # (n, 3)
    normals: Floats  # (n, 3) shortest axes, of either sign
    flatness: Floats  # (n,) 0: a ball, 1: a disc

    @property
    def size(self) -> float:
        """Half of them are within this distance of their middle."""
        return float(np.median(np.linalg.norm(self.points - np.median(self.points, axis=0), axis=1)))


@dataclass(frozen=True)
class Plane:
    """normal · p = offset; the normal points up, where most of the scene is."""

    normal: Floats
    offset: float
    votes: float  # share of the splats on it
    is_of_points: bool = False  # it was found without looking at which way splats are flat

    def heights(self, points: Floats) -> Floats:
        return points @ self.normal - self.offset


@dataclass(frozen=True)
class Level:
    """The ground plane in the frame of the capture, and how it was found."""

    up: Floats
    plane: Plane
    words: str


def check_view(splats: Splats, cameras: CameraPoses) -> None:
    """Cameras that took the photographs look at the Gaussians; poses of another frame often do not."""
    points = splats.points[spread(len(splats.points), 2000)]
    chosen = spread(len(cameras), 200)
    seeing = 0
    for place, forward in zip(cameras.positions[chosen], cameras.rotations[chosen, :, 2], strict=True):
        away = points - place
        ahead = away @ forward > _VIEW * np.linalg.norm(away, axis=1)
        seeing += float(ahead.mean()) > _SEEN
    if seeing < 0.5 * len(chosen):
        share = f"{seeing} of {len(chosen)} cameras look at the Gaussians"
        raise _unclear(f"the poses do not fit the Gaussians: {share}", cameras)


def up_of_cameras(cameras: CameraPoses) -> Floats:
    """The direction to which all cameras' right axes are perpendicular; their own up, if they all look the same way."""
    rights, ups = cameras.rotations[:, :, 0], -cameras.rotations[:, :, 1]
    mean = ups.mean(axis=0)
    values, vectors = np.linalg.eigh(rights.T @ rights / len(rights))
    if values[1] < 0.02:  # one heading: the right axes leave a whole plane open
        return mean / max(float(np.linalg.norm(mean)), 1e-12)
    found: Floats = vectors[:, 0] * (1.0 if float(vectors[:, 0] @ mean) >= 0.0 else -1.0)
    return found


def find_level(splats: Splats, cameras: CameraPoses | None) -> Level:
    """From the ground plane, checked against the cameras if there are any."""
    hint = None if cameras is None else up_of_cameras(cameras)
    planes = _planes(splats, hint, cameras)
    best = planes[0]
    rivals = [each for each in planes[1:] if abs(float(each.normal @ best.normal)) < _ALIKE]
    if best.votes < _LEAST_VOTES:
        share = f"the largest plane has {best.votes:.0%} of the Gaussians"
        raise _unclear(f"no ground to level by: {share}; {_DECIDE}", cameras, _likeliest(splats, planes))
    if rivals and best.votes < _CLEAR * rivals[0].votes:
        between = f"two planes could be the ground, with {best.votes:.0%} and {rivals[0].votes:.0%} of the Gaussians"
        raise _unclear(f"{between}; {_DECIDE}", cameras, _likeliest(splats, planes))
    plane = _refined(splats, best)
    if hint is None:
        return Level(plane.normal, plane, f"ground plane with {plane.votes:.0%} of the Gaussians")
    tilt = math.degrees(math.acos(min(1.0, float(plane.normal @ hint))))
    if tilt > _TILT_WARNING_DEG:
        apart = f"the ground plane and the cameras' upright differ by {tilt:.1f} degrees"
        decide = "decide with --level ground, --level cameras or --up X,Y,Z"
        raise _unclear(f"{apart}; {decide}", cameras, [plane.normal, hint])
    return Level(
        plane.normal,
        plane,
        f"ground plane with {plane.votes:.0%} of the Gaussians, {tilt:.1f} degrees from the cameras' upright",
    )


_DECIDE = (
    "decide with --level ground, --level cameras (if there are poses), --up X,Y,Z, "
    "--level-points, --rotate-deg or --matrix"
)


def _likeliest(splats: Splats, planes: list[Plane]) -> list[Floats]:
    """Up of the best plane of each of the best three directions."""
    kept: list[Plane] = []
    for plane in planes:
        if len(kept) < _CANDIDATES and all(abs(float(plane.normal @ each.normal)) < _ALIKE for each in kept):
            kept.append(plane)
    return [_refined(splats, plane).normal for plane in kept]


def level_by_cameras(splats: Splats, cameras: CameraPoses | None) -> Level:
    if cameras is None:
        raise UsageError(f"--level cameras: {NO_POSES}; or level by --up, --level-points, --rotate-deg or --matrix")
    return level_along(splats, up_of_cameras(cameras), "upright of the cameras")


def level_by_ground(splats: Splats, cameras: CameraPoses | None) -> Level:
    hint = None if cameras is None else up_of_cameras(cameras)
    plane = _refined(splats, _planes(splats, hint, cameras)[0])
    return Level(plane.normal, plane, f"ground plane with {plane.votes:.0%} of the Gaussians, as asked")


def level_along(splats: Splats, up: Floats, words: str) -> Level:
    """Up is known; the ground is the lowest height where many splats are."""
    heights = splats.points @ up
    step = 0.01 * splats.size
    low, high = np.quantile(heights, [0.005, 0.995])
    bins = max(1, int((high - low) / step))
    counts, edges = np.histogram(heights, bins, (low, max(high, low + step)))
    peak = int(np.flatnonzero(counts >= 0.3 * counts.max())[0])
    near = np.abs(heights - 0.5 * (edges[peak] + edges[peak + 1])) < 1.5 * step
    return Level(up, Plane(up, float(np.median(heights[near])), float(near.mean())), words)


# ---- the ground plane ------------------------------------------------------------------------------------------------


def _planes(splats: Splats, hint: Floats | None, cameras: CameraPoses | None) -> list[Plane]:
    """Most votes first: through flat splats, and where these do not show any ground, through three points each."""
    found = _candidates(splats, hint, cameras)
    if not found or found[0].votes < _LEAST_VOTES:
        found = [*found, *_through_points(splats, hint, cameras)]
    if not found:
        raise _unclear(f"no ground to level by: no plane lies below the cameras; {_DECIDE}", cameras)
    return sorted(found, key=lambda plane: -plane.votes)


def _through_points(splats: Splats, hint: Floats | None, cameras: CameraPoses | None) -> list[Plane]:
    """Of balls, and of splats that are flat in any direction: trainers draw a rough square with such."""
    chosen = spread(len(splats.points), 4000)
    points, found = splats.points[chosen], list[Plane]()
    if len(points) < 3:
        return found
    size, tolerance = splats.size, 0.02 * splats.size
    near = points[np.linalg.norm(points - np.median(points, axis=0), axis=1) < _AROUND * size]
    keys = mix(np.arange(3 * _TRIPLES).astype(np.uint64)).reshape(-1, 3)
    for triple in points[(keys % np.uint64(len(points))).astype(np.int64)]:
        normal = np.cross(triple[1] - triple[0], triple[2] - triple[0])
        length = float(np.linalg.norm(normal))
        if length < 1e-3 * size * size or float(np.ptp(triple, axis=0).max()) > 2.0 * _AROUND * size:
            continue
        normal = normal / length
        if hint is not None:
            normal = normal if float(normal @ hint) >= 0.0 else -normal
            if float(normal @ hint) < math.cos(math.radians(35.0)):
                continue
        heights, offset = near @ normal - float(triple[0] @ normal), float(triple[0] @ normal)
        above, below = float((heights > tolerance).mean()), float((heights < -tolerance).mean())
        if hint is None and below > above:
            normal, offset, below = -normal, -offset, above
        share = float((np.abs(points @ normal - offset) < tolerance).mean())
        plane = Plane(normal, offset, share * max(0.0, 1.0 - 2.0 * below), is_of_points=True)
        if cameras is None or float((plane.heights(cameras.positions) > 0.0).mean()) >= 0.9:
            found.append(plane)
    return found


def _candidates(splats: Splats, hint: Floats | None, cameras: CameraPoses | None) -> list[Plane]:
    """Planes through flat splats, most votes first. With cameras: below them, at most 35 degrees from their upright."""
    chosen = spread(len(splats.points), 4000)
    points, normals, flat = splats.points[chosen], splats.normals[chosen], splats.flatness[chosen]
    tolerance = 0.02 * splats.size
    starts = np.flatnonzero(flat > 0.5)
    if not len(starts):
        starts = np.arange(len(points))
    found = []
    for start in starts[spread(len(starts), _PLANES)].tolist():
        normal = normals[start]
        if hint is not None:
            normal = normal if float(normal @ hint) >= 0.0 else -normal
            if float(normal @ hint) < math.cos(math.radians(35.0)):
                continue
        plane = _voted(points, normals, normal, float(points[start] @ normal), tolerance, sided=hint is None)
        if cameras is not None and float((plane.heights(cameras.positions) > 0.0).mean()) < 0.9:
            continue
        found.append(plane)
    return sorted(found, key=lambda plane: -plane.votes)


def _voted(points: Floats, normals: Floats, normal: Floats, offset: float, tolerance: float, sided: bool) -> Plane:
    heights = points @ normal - offset
    agree = (np.abs(heights) < tolerance) & (np.abs(normals @ normal) > 0.8)
    above, below = float((heights > tolerance).mean()), float((heights < -tolerance).mean())
    if sided and below > above:
        normal, offset, above, below = -normal, -offset, below, above
    share = float(agree.mean())
    return Plane(normal, offset, share * max(0.0, 1.0 - 4.0 * below))  # next to nothing is under the ground


def _refined(splats: Splats, plane: Plane) -> Plane:
    """Least squares over what lies on it, with ever less tolerance."""
    tolerance = 0.02 * splats.size
    for _ in range(8):
        on = np.abs(plane.heights(splats.points)) < tolerance
        if not plane.is_of_points:
            on &= np.abs(splats.normals @ plane.normal) > 0.8
        if int(on.sum()) < 20:
            break
        points = splats.points[on]
        middle = points.mean(axis=0)
        _, vectors = np.linalg.eigh((points - middle).T @ (points - middle))
        normal = vectors[:, 0] * (1.0 if float(vectors[:, 0] @ plane.normal) >= 0.0 else -1.0)
        plane = replace(plane, normal=normal, offset=float(middle @ normal), votes=float(on.mean()))
        tolerance = max(0.8 * tolerance, 0.012 * splats.size)
    return plane


def spread(count: int, most: int) -> npt.NDArray[np.int64]:
    """At most `most` of the numbers below `count`, as if random, the same everywhere."""
    if count <= most:
        return np.arange(count)
    keys: npt.NDArray[np.uint64] = mix(np.arange(count).astype(np.uint64))
    return np.sort(np.argsort(keys, kind="stable")[:most])


# ---- scale -----------------------------------------------------------------------------------------------------------


def scale_of_camera_height(
    splats: Splats, level: Level, cameras: CameraPoses | None, metres: float
) -> tuple[float, str]:
    """From the height at which the camera was held: the median over the ground near each camera."""
    if cameras is None:
        raise UsageError(f"--camera-height: {NO_POSES}; or give --scale or --known-length")
    heights = level.plane.heights(cameras.positions)
    typical = float(np.median(heights))
    if typical <= 0.0:
        raise _unclear("--camera-height: the cameras are not above the ground; give --scale or --known-length", cameras)
    on = np.abs(level.plane.heights(splats.points)) < 0.25 * typical
    ground = splats.points[on]
    over, flat = ground @ level.up, ground - np.outer(ground @ level.up, level.up)
    found = []
    for position in cameras.positions:
        across = np.linalg.norm(flat - (position - level.up * float(position @ level.up)), axis=1)
        near = over[across < 0.4 * typical]
        if len(near) >= 5:
            found.append(float(position @ level.up) - float(np.median(near)))
    if len(found) < max(1, len(cameras) // 4):
        raise _unclear("--camera-height: too little ground under the cameras; give --scale or --known-length", cameras)
    height, spread = float(np.median(found)), float(np.quantile(found, 0.75) - np.quantile(found, 0.25))
    words = f"{len(found)} cameras, {metres:g} m above the ground (middle half within {spread / height:.0%})"
    if spread > 0.5 * height:
        differ = f"the heights of the cameras differ too much: {words}"
        raise _unclear(f"--camera-height: {differ}; give --scale or --known-length", cameras)
    return metres / height, words


def frame_of_gps(cameras: CameraPoses, east_north_up: Floats, numbers: list[int]) -> tuple[Similarity, str]:
    """From where photographs say that they were taken; refuses what GPS is too coarse for."""
    target = east_north_up
    spread = float(np.sqrt(((target - target.mean(axis=0)) ** 2).sum(axis=1).mean()))
    found, errors = fitted(cameras.positions[numbers], target)
    good = errors <= max(3.0 * float(np.median(errors)), 1e-9)
    if int(good.sum()) >= 4:
        found, errors = fitted(cameras.positions[numbers][good], target[good])
    error = float(np.sqrt((errors * errors).mean()))
    words = f"GPS of {int(good.sum())} photographs, {error:.2f} m off on average over a path of ±{spread:.1f} m"
    if len(numbers) < 4 or error > 0.1 * spread:
        raise UnclearCaptureError(
            f"the photographs' positions do not give the scale: {words}; "
            "give --scale, --known-length or --camera-height"
        )
    return found, words


def yaw_only(rotation: Floats, up: Floats) -> Floats:
    """Levels by `up`, with the heading of `rotation`: GPS tells north better than it tells up."""
    level = upright(up)
    east = level @ rotation.T @ np.array([1.0, 0.0, 0.0])
    angle = math.atan2(float(east[1]), float(east[0]))
    turn = np.array(
        [[math.cos(angle), math.sin(angle), 0.0], [-math.sin(angle), math.cos(angle), 0.0], [0.0, 0.0, 1.0]]
    )
    return turn @ level
