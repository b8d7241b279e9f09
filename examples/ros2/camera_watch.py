"""Watch what the drone's camera sees: images per second and the share of each class of the palette.

    python camera_watch.py

Listens to drone/camera/image_raw. Ctrl-C ends it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

PALETTE = {
    "ground": (0xC8, 0xC8, 0xC8),
    "obstacle": (0x3C, 0xB3, 0x71),
    "hazard": (0xE7, 0x4C, 0x3C),
    "target": (0x34, 0x98, 0xDB),
    "water": (0x1A, 0xBC, 0x9C),
}
_COLOURS = np.array(list(PALETTE.values()), np.int32)


def pixels_of(image: Any) -> np.ndarray:
    """From a sensor_msgs/Image with encoding rgb8: (height, width, 3) uint8."""
    rows = np.frombuffer(image.data, np.uint8).reshape(image.height, image.step)
    return rows[:, : 3 * image.width].reshape(image.height, image.width, 3)


def shares(pixels: np.ndarray) -> dict[str, float]:
    """Share of the image by class; a pixel blurred between two colours counts for the nearer."""
    distances = ((pixels[:, :, None, :].astype(np.int32) - _COLOURS) ** 2).sum(axis=3)
    counts = np.bincount(distances.argmin(axis=2).ravel(), minlength=len(PALETTE))
    return {name: float(count) / counts.sum() for name, count in zip(PALETTE, counts, strict=True)}


class CameraWatch:
    """Counts images and measures their rate by their stamps, which are in simulated time."""

    def __init__(self) -> None:
        self.images = 0
        self._first_s = self._last_s = 0.0

    def see(self, image: Any) -> str:
        """One line about this image."""
        stamp_s = image.header.stamp.sec + image.header.stamp.nanosec / 1e9
        if not self.images or stamp_s < self._last_s:  # the first, or the first after a reset
            self.images, self._first_s = 0, stamp_s
        self.images, self._last_s = self.images + 1, stamp_s
        seen = [f"{name} {share:.1%}" for name, share in shares(pixels_of(image)).items() if share]
        return f"image {self.images} at {stamp_s:.2f} s, {self.rate_hz:.2f} Hz: {', '.join(seen)}"

    @property
    def rate_hz(self) -> float:
        return (self.images - 1) / (self._last_s - self._first_s) if self.images > 1 else 0.0


def main() -> None:
    import rclpy
    from rclpy.executors import ExternalShutdownException
    from rclpy.parameter import Parameter
    from rclpy.qos import QoSProfile
    from sensor_msgs.msg import Image

    rclpy.init()
    node = rclpy.create_node("camera_watch", parameter_overrides=[Parameter("use_sim_time", value=True)])
    watch = CameraWatch()
    node.create_subscription(
        Image,
        "drone/camera/image_raw",
        lambda image: node.get_logger().info(watch.see(image)),
        QoSProfile(depth=2),  # reliable, volatile, keep last 2: as the simulator publishes
    )
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
