"""`tf_static.json` beside `calibration.yaml`: the calibration is right, and any difference is an error."""

from __future__ import annotations

import math

from microsim.bundle.calibration import quaternion
from microsim.bundle.fields import Fields
from microsim.bundle.models import Extrinsics
from microsim.bundle.report import Source
from microsim.engine.exact import PI, atan2
from microsim.errors import show

POSITION_TOLERANCE_M = 1e-4
ANGLE_TOLERANCE = 1e-4  # [rad]
MAX_TRANSFORMS = 1000
REMEDY = "`microsim bundle tf BUNDLE` writes tf_static.json anew from the calibration"


def check_tf_static(source: Source, expected: dict[str, Extrinsics]) -> None:
    """A problem for every transform that is missing, unknown, doubled or different."""
    assert source.document is not None
    fields = Fields(source, source.document.data)
    fields.known.append("version")
    found = _transforms(fields)
    fields.done()
    if found is None:
        return
    for frame, place in expected.items():
        if frame not in found:
            source.problem("calibration-wins", f"no transform to {frame}", ("transforms",), REMEDY)
            continue
        index, written = found[frame]
        _compare(source, index, frame, place, written)
    for frame, (index, _) in found.items():
        if frame not in expected:
            message = f"the calibration knows no {show(frame)}"
            source.problem("calibration-wins", message, ("transforms", index, "child"), REMEDY)


def _transforms(fields: Fields) -> dict[str, tuple[int, Extrinsics]] | None:
    entries = fields.take("transforms", None)
    if not isinstance(entries, list) or len(entries) > MAX_TRANSFORMS:
        fields.wrong(("transforms",), f"expected a list of at most {MAX_TRANSFORMS} transforms, found {show(entries)}")
        return None
    found: dict[str, tuple[int, Extrinsics]] = {}
    for index, entry in enumerate(entries):
        inner = Fields(fields.source, entry, ("transforms", index))
        inner.choice("parent", ["base_link"])
        child = inner.text("child", most=100)
        x, y, z = inner.numbers("translation", 3, least=-1e3, most=1e3)
        place = Extrinsics((x, y, z), quaternion(inner, "rotation_quat"))
        inner.done()
        if child in found:
            inner.wrong(("child",), f"{show(child)} stands twice", "calibration-wins", REMEDY)
        elif child:
            found[child] = (index, place)
    return found


def _compare(source: Source, index: int, frame: str, right: Extrinsics, written: Extrinsics) -> None:
    apart = math.sqrt(sum((a - b) * (a - b) for a, b in zip(right.xyz, written.xyz, strict=True)))
    turned = angle_between(right.quat, written.quat)
    if apart > POSITION_TOLERANCE_M or turned > ANGLE_TOLERANCE:
        degrees = turned * 180.0 / PI
        message = f"{frame} is {apart:.6g} m and {turned:.6g} rad ({degrees:.4g} deg) from where the calibration has it"
        source.problem("calibration-wins", message, ("transforms", index), REMEDY)


def angle_between(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """The turn from one unit quaternion to the other [rad], in 0..pi."""
    dot = sum(p * q for p, q in zip(a, b, strict=True))
    sign = -1.0 if dot < 0.0 else 1.0
    chord = math.sqrt(sum((p - sign * q) * (p - sign * q) for p, q in zip(a, b, strict=True)))
    return 2.0 * atan2(chord, math.sqrt(max(0.0, 4.0 - chord * chord))) * 2.0
