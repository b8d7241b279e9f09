"""The lens of a camera in a scenario: size of the image, focal lengths, distortion."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from microsim.documents.values import (
    MAX_IMAGE_PIXELS,
    MAX_IMAGE_SIDE_PX,
    Count,
    Finite,
    Model,
    Positive,
    detail,
    fail,
    show,
)
from microsim.engine import exact
from microsim.render import fisheye
from microsim.render.palette_camera import CameraModel

DEFAULT_FOCAL_PER_WIDTH = 120.0 / 128.0  # the PRD's camera: fx = 120 at 128 pixels


class Resolution(Model):
    """Size of an image."""

    width: Annotated[Count, Field(le=MAX_IMAGE_SIDE_PX)] = Field(128, description="Columns [px].")
    height: Annotated[Count, Field(le=MAX_IMAGE_SIDE_PX)] = Field(128, description="Rows [px].")

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.width * self.height > MAX_IMAGE_PIXELS:
            raise ValueError(f"expected at most {MAX_IMAGE_PIXELS:,} pixels, found {self.width}×{self.height}")
        return self


class Intrinsics(Model):
    """Focal lengths and centre, or the horizontal field of view."""

    fx: Positive | None = Field(None, description="Focal length along x [px].")
    fy: Positive | None = Field(None, description="Focal length along y [px]; default: fx.")
    cx: Finite | None = Field(None, description="Column of the optical axis, pixel centres at integers [px].")
    cy: Finite | None = Field(None, description="Row of the optical axis, pixel centres at integers [px].")
    fov_deg: Annotated[Finite, Field(ge=1, le=179)] | None = Field(
        None, description="Horizontal field of view, in place of fx and fy [deg]."
    )

    def completed(self, size: Resolution) -> Intrinsics:
        fx = DEFAULT_FOCAL_PER_WIDTH * size.width if self.fx is None and self.fov_deg is None else self.fx
        return Intrinsics(
            fx=fx,
            fy=fx if self.fy is None else self.fy,
            cx=size.width / 2 if self.cx is None else self.cx,
            cy=size.height / 2 if self.cy is None else self.cy,
            fov_deg=self.fov_deg,
        )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.fov_deg is not None and (self.fx is not None or self.fy is not None):
            raise ValueError("expected either 'fov_deg', or 'fx' and 'fy', found both")
        if self.fx is None and self.fy is not None:
            raise ValueError("expected 'fx' beside 'fy'")
        return self


_NO_BEND = (0.0, 0.0, 0.0, 0.0, 0.0)


def _coefficients(value: Any) -> Any:
    """Of a fisheye, or of plumb_bob; which one, `Distortion` looks at."""
    if isinstance(value, (list, tuple)) and len(value) in (4, 5):
        return tuple(value)
    found = f"{len(value)} values: {show(value)}" if isinstance(value, (list, tuple)) else show(value)
    raise ValueError(f"expected [k1, k2, t1, t2, k3], found {found}")


class Distortion(Model):
    """Lens distortion, as `sensor_msgs/CameraInfo` has it."""

    model: Literal["none", "plumb_bob", "equidistant"] = Field(
        "plumb_bob", description="Distortion model; `equidistant` is that of a fisheye (Kannala–Brandt)."
    )
    D: Annotated[tuple[Finite, ...], BeforeValidator(_coefficients)] = Field(
        _NO_BEND, description="Coefficients k1, k2, t1, t2, k3 of plumb_bob; k1, k2, k3, k4 of equidistant."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.model == "none" and any(self.D):
            raise ValueError(f"model 'none' takes no coefficients, found D: {show(self.D)}; write model: plumb_bob")
        if self.model == "equidistant" and not any(self.D):
            self.__dict__["D"] = _NO_BEND[:4]  # also where a world bundle has written five zeros
        count, shape = (4, "[k1, k2, k3, k4]") if self.model == "equidistant" else (5, "[k1, k2, t1, t2, k3]")
        if len(self.D) != count:
            message = f"expected {shape} of {self.model}, found {len(self.D)} values: {show(self.D)}"
            fail([detail(message, "D")])
        return self

    def completed(self, projection: str) -> Distortion:
        if (projection == "fisheye") == (self.model == "equidistant"):
            return self
        if projection == "pinhole":
            fail([detail("model equidistant is that of a fisheye: write projection: fisheye beside it", "distortion")])
        if any(self.D):
            message = f"a fisheye takes model: equidistant with D: [k1, k2, k3, k4], found {self.model}"
            fail([detail(message, "distortion")])
        return Distortion(model="equidistant")


def lens_model(size: Resolution, numbers: Intrinsics, distortion: Distortion, is_fisheye: bool) -> CameraModel:
    bend = tuple(float(number) for number in distortion.D)
    if numbers.fov_deg is not None:
        angle = 0.5 * numbers.fov_deg * exact.PI / 180.0
        fx = fy = 0.5 * size.width / (fisheye.radius_at(angle, bend) if is_fisheye else exact.tan(angle))
    else:
        fx, fy = float(numbers.fx or 0.0), float(numbers.fy or 0.0)
    centre = float(numbers.cx or 0.0), float(numbers.cy or 0.0)
    return CameraModel(size.width, size.height, fx, fy, *centre, bend, is_fisheye)


def check_fisheye(numbers: Intrinsics, lens: CameraModel) -> None:
    """Refuses a lens that would fold its image, and one that sees more than a half-space."""
    end = fisheye.largest_angle(lens.distortion)
    across = 360.0 * end / exact.PI
    if end == 0.0 or (numbers.fov_deg or 0.0) > across:
        message = f"the coefficients fold the image at {across:.4g}° across, found fov_deg: {show(numbers.fov_deg)}"
        fail([detail(message, "distortion")])
    radius = fisheye.radius_at(end, lens.distortion)
    sides = lens.cx / lens.fx, (lens.width - lens.cx) / lens.fx, lens.cy / lens.fy, (lens.height - lens.cy) / lens.fy
    if end == fisheye.LARGEST and min(sides) > 1.01 * radius:
        least = min(lens.width, lens.height) / (2.0 * radius)
        message = f"the lens sees more than 179° in every direction, which is not supported: expected fx >= {least:.4g}"
        fail([detail(message, "intrinsics")])
