"""What a camera sends: images, which are side by side in each pixel of a reading, its lens, and what is in them."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

from microsim.messages.encoders import header
from microsim.messages.template import RawTemplate, Template
from microsim.messages.topics import Qos
from microsim.messages.types import encode, new
from microsim.render.png_encoder import png_of
from microsim.sensors.sensor import MessageForm, SensorContext

NS_PER_S = 1_000_000_000
_JPEG_QUALITY = 90
CHANNELS = {
    "image": 3,
    "depth": 4,
    "segmentation": 3,
    "instances": 2,
    "normals": 12,
}  # bytes of a pixel in a reading, in this order
_NUMBERS = {"depth": np.float32, "instances": np.uint16, "normals": np.float32}  # of which a pixel is one, or three
ON_REQUEST = ("depth", "segmentation", "instances", "boxes", "normals")  # keys of `render`
_MADE_FROM = {"boxes": "instances"}


def channels(block: Any) -> list[str]:
    """What a reading consists of: images side by side in each pixel."""
    wanted = {_MADE_FROM.get(kind, kind) for kind in ON_REQUEST if getattr(block.render, kind, False)}
    return [kind for kind in CHANNELS if kind == "image" or kind in wanted]


def images_in(block: Any, readings: Any, xp: Any) -> dict[str, Any]:
    """Readings (n, h, w, bytes) by kind, as `numpy` or `cupy` (xp) has them: views, where it can view parts of rows."""
    kinds, start, found = channels(block), 0, {}
    for kind in kinds:
        part, start = readings[..., start : start + CHANNELS[kind]], start + CHANNELS[kind]
        if kind in _NUMBERS:
            part = (part if xp is np else xp.ascontiguousarray(part)).view(_NUMBERS[kind])
            part = part if kind == "normals" else part[..., 0]
        found[kind] = part
    return found


def _part(block: Any, kind: str) -> Callable[[Any], Any]:
    """From a reading to one of its images."""
    kinds = channels(block)
    if len(kinds) == 1:
        return lambda reading: reading
    start = sum(CHANNELS[each] for each in kinds[: kinds.index(kind)])
    return lambda reading: np.ascontiguousarray(reading[..., start : start + CHANNELS[kind]])


def _image_message(context: SensorContext, encoding: str, pixel_bytes: int) -> Any:
    size = context.settings.resolution
    return new(
        "sensor_msgs/msg/Image",
        header=header(context.frame),
        width=size.width,
        height=size.height,
        encoding=encoding,
        step=pixel_bytes * size.width,
        data=np.zeros(pixel_bytes * size.width * size.height, np.uint8),
    )


def _image_prototype(context: SensorContext) -> Any:
    return _image_message(context, "rgb8", CHANNELS["image"])


def _image_encoder(kind: str, encoding: str) -> Callable[[SensorContext], Callable[[int, Any], bytes]]:
    def make(context: SensorContext) -> Callable[[int, Any], bytes]:
        block = context.settings
        part = _part(block, kind)
        message = _image_message(context, encoding, CHANNELS[kind])
        template = RawTemplate("sensor_msgs/msg/Image", message, "data")
        return lambda stamp_ns, reading: template.encode(divmod(stamp_ns, NS_PER_S), part(reading).data.cast("B"))

    return make


def _boxes_encoder(context: SensorContext) -> Callable[[int, Any], bytes]:
    from microsim.sensors._camera_truth import boxes_encoder

    return boxes_encoder(context, _part(context.settings, "instances"))


def _compressed_encoder(context: SensorContext) -> Callable[[int, Any], bytes]:
    """The format is that of image_transport's plug-in: decoders give blue first, and it turns that into `rgb8`."""
    kind, part = context.settings.compressed, _part(context.settings, "image")
    encode_image: Callable[[Any], bytes] = png_of if kind == "png" else _jpeg_of
    message = new("sensor_msgs/msg/CompressedImage", header=header(context.frame))
    message.format = f"rgb8; {kind} compressed bgr8"

    def encoded(stamp_ns: int, reading: Any) -> bytes:
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, NS_PER_S)
        message.data = np.frombuffer(encode_image(part(reading)), np.uint8)
        return encode("sensor_msgs/msg/CompressedImage", message)

    return encoded


def _jpeg_of(image: Any) -> bytes:
    from PIL import Image

    out = BytesIO()
    Image.fromarray(image).save(out, "JPEG", quality=_JPEG_QUALITY)
    return out.getvalue()


def _info_message(context: SensorContext) -> Any:
    model = context.settings.model
    fx, fy, cx, cy = model.fx, model.fy, model.cx, model.cy
    return new(
        "sensor_msgs/msg/CameraInfo",
        header=header(context.frame),
        width=model.width,
        height=model.height,
        distortion_model="equidistant" if model.is_fisheye else "plumb_bob",
        d=np.array(model.distortion, np.float64),
        k=np.array((fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0)),
        r=np.array((1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)),
        p=np.array((fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0)),
    )


def _info_encoder(context: SensorContext) -> Callable[[int, Any], bytes]:
    template = Template("sensor_msgs/msg/CameraInfo", _info_message(context), ("header.stamp.sec", 2))
    return lambda stamp_ns, reading: template.encode(divmod(stamp_ns, NS_PER_S))


_PROTOTYPES = {"image": _image_prototype, "camera_info": _info_message}


def _form(kind: str, topic: str, encoder: Any, about: str, type_name: str = "sensor_msgs/msg/Image") -> MessageForm:
    def applies(settings: Any) -> bool:
        if kind == "compressed":
            return settings.compressed is not None
        return kind not in ON_REQUEST or bool(getattr(settings.render, kind, False))

    rate, prototype = "" if kind == "image" else "with its image", _PROTOTYPES.get(kind)
    return MessageForm(type_name, topic, Qos(2), about, prototype, {}, encoder, applies, rate, kind)


FORMS = (
    _form(
        "image", "/{robot}/{sensor}/image_raw", _image_encoder("image", "rgb8"),
        "rgb8, stamped when exposed, sent after its latency",
    ),
    _form(
        "depth", "/{robot}/{sensor}/depth", _image_encoder("depth", "32FC1"),
        "32FC1, metres along the optical axis; +inf where nothing is seen (REP-118); on request",
    ),
    _form(
        "segmentation", "/{robot}/{sensor}/segmentation", _image_encoder("segmentation", "rgb8"),
        "rgb8, what is seen by class in the palette's colours; on request",
    ),
    _form(
        "instances", "/{robot}/{sensor}/instances", _image_encoder("instances", "mono16"),
        "mono16, the instance in each pixel, as listed in /sim/info; 0: none; on request",
    ),
    _form(
        "boxes", "/{robot}/{sensor}/boxes", _boxes_encoder,
        "box of the visible pixels, name and class of each instance; on request",
        "vision_msgs/msg/Detection2DArray",
    ),
    _form(
        "normals", "/{robot}/{sensor}/normals", _image_encoder("normals", "32FC3"),
        "32FC3, unit normal of what is seen, in the optical frame, towards the camera; NaN: nothing seen; on request",
    ),
    _form(
        "camera_info", "/{robot}/{sensor}/camera_info", _info_encoder,
        "intrinsics, same stamp as the image", "sensor_msgs/msg/CameraInfo",
    ),
    _form(
        "compressed", "/{robot}/{sensor}/image_raw/compressed", _compressed_encoder,
        "the image as PNG or JPEG, on request", "sensor_msgs/msg/CompressedImage",
    ),
)  # fmt: skip
