"""Draws docs/pictures/splats_cpu.png: worlds/oval through its three cameras, with another car; and the ground truth.

And splats_actor.png: a tree is cut out of the world, and moves; splats_lidar.webp: a LiDAR among Gaussians;
splats_street.webp: people and robots in `street`.

Run it again when the world or the renderer changes: `.venv/bin/python docs/draw/splat_picture.py` (needs Pillow). With
a GPU, `--render gpu` draws splats_gpu.png, which must be the same to the byte.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import microsim
from microsim.bundle import load_bundle
from microsim.parts.worlds.apply_edits import write_edited
from microsim.parts.worlds.edits import WorldEdits, cut_outs, scenario_of
from microsim.render.renderer_choice import render_request

PICTURES = Path(__file__).parents[1] / "pictures"
PANEL, TURN_PANEL, GAP = (480, 360), (720, 460), 6
FARTHEST_M = 60.0
CAMERAS = ("front_left", "front", "front_right")
SCENARIO: dict[str, Any] = {
    "world": "oval",
    "robots": {
        "ego": {"sensors": {"lidar_top": None}},
        "other": {"model": "bicycle", "start": {"map_pose": {"x": -8.0, "y": -28.0, "yaw": 0.3}}},
    },
}
TRUTH = ("depth", "segmentation", "instances", "boxes", "normals")
KINDS = {"rgb8": np.uint8, "32FC1": np.float32, "mono16": np.uint16, "32FC3": np.float32}
TREE = {"name": "tree", "center": [2.2, -46.2, 3.4], "size": [5.4, 5.4, 5.6]}


def views(scenario: dict[str, Any]) -> dict[str, Any]:
    """Every image of tick 0, as the topics carry them, and the detections."""
    found: dict[str, Any] = {}
    for message in microsim.Simulation(scenario).step(0):
        name, content = message.topic.removeprefix("/ego/camera_"), message.message
        if message.type == "sensor_msgs/msg/Image":
            pixels = np.frombuffer(bytes(content.data), KINDS[content.encoding])
            found[name] = pixels.reshape(content.height, content.width, -1)
        elif message.type == "vision_msgs/msg/Detection2DArray":
            found[name] = content.detections
    return found


def with_truth(folder: Path) -> dict[str, Any]:
    """The same road with a person, two obstacles, and a name for a tree."""
    edits = WorldEdits.model_validate({"objects": [TREE]})
    write_edited(load_bundle("oval"), edits, folder / "named")
    camera = {"render": {"type": "splat", **dict.fromkeys(TRUTH, True)}}
    sensors = {**dict.fromkeys(("lidar_top", "camera_front_left", "camera_front_right")), "camera_front": camera}
    person = {"model": "actor", "path": [[0, -10.5, -31.3], [10, -10.5, -20]]}
    return {
        "world": str(folder / "named"),
        "robots": {**SCENARIO["robots"], "ego": {"sensors": sensors}, "person": person},
        "obstacles": [
            {"type": "cylinder", "name": "post", "center": [-6.0, -30.3, 0], "radius": 0.4, "height": 1.5},
            {"type": "box", "name": "crate", "center": [-4.5, -33.2, 0], "size": [1.2, 1.2, 1.2]},
        ],
    }


def outlined(image: np.ndarray[Any, Any], detections: Any) -> np.ndarray[Any, Any]:
    """With boxes and names."""
    sheet = Image.fromarray(np.ascontiguousarray(image))
    draw = ImageDraw.Draw(sheet)
    for each in detections:
        middle, half = each.bbox.center.position, (0.5 * each.bbox.size_x, 0.5 * each.bbox.size_y)
        corners = (middle.x - half[0], middle.y - half[1], middle.x + half[0], middle.y + half[1])
        draw.rectangle(corners, outline="white", width=2)
        draw.text((corners[0], corners[1] - 22.0), each.id, "white", font_size=18, stroke_width=2, stroke_fill="black")
    return np.asarray(sheet)


def by_instance(instances: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A colour for each."""
    colours = np.random.default_rng(4).integers(70, 256, (1 << 16, 3)).astype(np.uint8)
    colours[0] = 20
    return colours[instances[..., 0]]


def coloured(normals: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Red: to the right, green: up, blue: towards the camera."""
    return np.nan_to_num(127.5 + 127.5 * normals * (1.0, -1.0, -1.0)).astype(np.uint8)


def shaded(depths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Near is light, far is dark, nothing is black."""
    light = 1.0 - np.minimum(depths, FARTHEST_M) / FARTHEST_M
    grey = np.where(np.isfinite(depths), 30.0 + 225.0 * np.sqrt(light), 0.0).astype(np.uint8)
    return np.broadcast_to(grey, (*grey.shape[:2], 3))


def assembled(panels: list[np.ndarray[Any, Any]], columns: int) -> Image.Image:
    rows = -(-len(panels) // columns)
    size = columns * (PANEL[0] + GAP) - GAP, rows * (PANEL[1] + GAP) - GAP
    sheet = Image.new("RGB", size, "white")
    for index, panel in enumerate(panels):
        place = (index % columns) * (PANEL[0] + GAP), (index // columns) * (PANEL[1] + GAP)
        sheet.paste(Image.fromarray(np.ascontiguousarray(panel)).resize(PANEL, Image.Resampling.LANCZOS), place)
    return sheet


def cut_out() -> list[np.ndarray[Any, Any]]:
    """The oval, without the tree, and with the tree somewhere else."""
    tree = {"name": "Tree", "center": [12, -48, 3.7], "size": [6, 6, 7], "yaw": 0.3, "cut_out": True}
    edits = WorldEdits.model_validate({"objects": [tree]})
    ego = {"start": {"map_pose": {"x": 32, "y": -30, "yaw": -2.6}}, "sensors": {"lidar_top": None}}
    with TemporaryDirectory() as folder:
        without = f"{folder}/without"
        after = write_edited(load_bundle("oval"), edits, Path(without))
        moved = scenario_of(cut_outs(edits.cut_out, edits.frame, after.heightmap), without)
        moved["robots"]["ego"] = ego
        moved["robots"]["tree"]["start"] = {"map_pose": {"x": 12, "y": -33, "yaw": 1.6}}
        moved["robots"]["tree"]["splats"]["shadow"] = True
        worlds = {"world": "oval", "robots": {"ego": ego}}, {"world": without, "robots": {"ego": ego}}, moved
        return [microsim.Simulation(each).render("ego", "camera_front") for each in worlds]


def turn(lidar: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Points of a LiDAR on the oval, (n, 3)."""
    others = dict.fromkeys(f"camera_{name}" for name in CAMERAS)
    rings = {"rings": 64, "columns": 1440, "lowest": -0.35, "highest": 0.3, "sigma_m": 0.01}
    start = {"map_pose": {"x": -8.0, "y": -37.5, "yaw": 0.05}}
    ego = {"start": start, "sensors": {"lidar_top": rings | lidar, **others}}
    sim = microsim.Simulation({"world": "oval", "robots": {"ego": ego}})
    cloud = next(message.message for message in sim.step(1) if message.topic == "/ego/lidar_top/points")
    rows = np.frombuffer(bytes(cloud.data), np.uint8).reshape(-1, cloud.point_step)
    return rows[:, :12].copy().view("<f4").astype(float)


def dots(points: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Points from behind and above, coloured by height."""
    (width, height), focal, tilt = TURN_PANEL, 600.0, 0.32
    x, y, z = (points - (-16.0, -1.5, 7.0)).T
    ahead, up = np.cos(tilt) * x - np.sin(tilt) * z, np.sin(tilt) * x + np.cos(tilt) * z
    order = [k for k in np.argsort(-ahead) if ahead[k] > 1.0]
    share = 4.0 * np.clip((points[:, 2] + 1.9) / 7.5, 0.0, 1.0)
    colours = np.clip([1.5 - abs(share - 3.1), 1.5 - abs(share - 2.0), 1.4 - abs(share - 0.9)], 0.12, 1.0).T
    image = np.full((height, width, 3), (13, 15, 20), np.uint8)
    for k in order:
        u, v = int(width / 2 - focal * y[k] / ahead[k]), int(0.42 * height - focal * up[k] / ahead[k])
        if 0 <= u < width and 0 <= v < height:
            image[v : v + 2, u : u + 2] = 255 * colours[k]
    return image


def turns() -> Image.Image:
    """The same turn with the mesh, and with the Gaussians."""
    sheet = Image.new("RGB", (2 * TURN_PANEL[0] + GAP, TURN_PANEL[1]), "white")
    for k, (name, lidar) in enumerate((("ground and mesh", {}), ("splats: true", {"splats": True}))):
        sheet.paste(Image.fromarray(dots(turn(lidar))), (k * (TURN_PANEL[0] + GAP), 0))
        ImageDraw.Draw(sheet).text((k * (TURN_PANEL[0] + GAP) + 14, 12), name, fill=(230, 235, 240), font_size=20)
    return sheet


# Where the car stands in the street (x, y, yaw), who is before it, how far ahead and aside [m], and how it is turned.
IN_STREET = (
    ((-44.6, 0.15, 1.92), "person", 5.0, -0.5, 0.0),
    ((-47.94, -11.89, -1.15), "car", 7.5, 0.0, 0.7),
    ((-46.4, -11.1, -1.68), "person", 6.5, 0.5, 1.4),
    ((-0.42, -14.56, -3.01), "car", 8.5, -0.5, 2.1),
    ((-50.08, -11.37, -1.01), "person", 9.5, 0.0, 2.8),
    ((-3.94, -20.89, 0.8), "car", 10.5, 0.5, -2.8),
    ((-30.58, -23.41, 2.93), "rover", 4.5, -0.5, -2.1),
    ((-5.08, -7.72, -1.42), "person", 5.5, 0.0, -1.4),
    ((-48.38, -16.41, -0.5), "car", 6.5, 0.5, -0.7),
    ((-52.36, -11.84, -0.27), "person", 7.5, -0.5, 0.0),
    ((-45.11, -3.39, 1.75), "car", 11.5, 0.0, 0.7),
    ((-24.62, -23.14, 0.16), "person", 13.5, 0.5, 1.4),
)


def in_street() -> list[np.ndarray[Any, Any]]:
    """Each of them through the front camera, 480 pixels wide."""
    lens = {"resolution": {"width": 480, "height": 360}, "intrinsics": {"fx": 312, "fy": 312, "cx": 239.5, "cy": 179.5}}
    kinds = {"person": {"model": "actor", "shape": "person"}, "car": {"model": "bicycle"}, "rover": {"model": "rover"}}
    images = []
    for (x, y, yaw), kind, ahead, aside, turn in IN_STREET:
        place = {"x": x + ahead * np.cos(yaw) - aside * np.sin(yaw), "y": y + ahead * np.sin(yaw) + aside * np.cos(yaw)}
        ego = {"start": {"map_pose": {"x": x, "y": y, "yaw": yaw}}, "sensors": {"camera_front": lens}}
        it = {
            **kinds[kind],
            "start": {"map_pose": {**{key: float(each) for key, each in place.items()}, "yaw": yaw + turn}},
        }
        sim = microsim.Simulation({"world": "street", "robots": {"ego": ego, "it": it}})
        images.append(sim.render("ego", "camera_front"))
    return images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--render", choices=("cpu", "gpu"), default="cpu")
    render_request.choice = parser.parse_args().render
    found = views(SCENARIO)
    panels = [found[f"{name}/image_raw"] for name in CAMERAS]
    assembled(panels, 3).save(PICTURES / f"splats_{render_request.choice}.png", optimize=True)
    if render_request.choice == "cpu":
        with TemporaryDirectory() as folder:
            found = views(with_truth(Path(folder)))
        image, boxes = found["front/image_raw"], found["front/boxes"]
        extra = [image, shaded(found["front/depth"]), coloured(found["front/normals"]), found["front/segmentation"]]
        extra += [outlined(by_instance(found["front/instances"]), boxes), outlined(image, boxes)]
        assembled(extra, 3).save(PICTURES / "splats_outputs.png", optimize=True)
        assembled(cut_out(), 3).save(PICTURES / "splats_actor.png", optimize=True)
        turns().save(PICTURES / "splats_lidar.webp", quality=84)
        sheet = assembled(in_street(), 4)
        sheet.resize((sheet.width * 5 // 8, sheet.height * 5 // 8), Image.Resampling.LANCZOS).save(
            PICTURES / "splats_street.webp", quality=80
        )


if __name__ == "__main__":
    main()
