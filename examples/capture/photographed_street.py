"""Photographs of a street that does not exist, rendered with Mitsuba, with the truth beside them.

    pip install mitsuba numpy pillow
    python examples/capture/photographed_street.py my_photographs
    ns-train splatfacto --data my_photographs        # nerfstudio, on a GPU; see docs/do/capture.md
    microsim bundle from-capture my_capture my_street --camera-height 1.6

It writes `images/*.jpg`, `transforms.json` as nerfstudio has it, `points.ply` (points on the surfaces, from which
training may begin) and `truth.ply` (all surfaces, in metres with z up). `--every 40 --samples 8` is for a quick look.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file

from examples.capture.street_scene import KERB, ROAD, Array, Scene, place_on_ground, ring, street

WIDTH, HEIGHT, FIELD_OF_VIEW_DEG = 720, 480, 75.0
CAMERA_HEIGHT_M = 1.6
EXPOSURE = 4.0


def cameras(every: int = 1) -> list[Array]:
    """Poses (4, 4), x right, y up, looking along -z: a walk around the block that looks in all directions."""
    points, normals, along = ring()
    random, poses = np.random.default_rng(5), []
    for number, at in enumerate(np.arange(0.0, along[-1], 2.0)):
        k = int(np.searchsorted(along, at))
        for view in range(4):
            out = (-1.4, 0.6, -0.4, -4.5 if number % 2 else -2.3)[view] + random.normal(0.0, 0.1)
            ahead = math.atan2(normals[k][0], -normals[k][1])
            yaw = ahead + math.radians((0, 180, 65, -65)[view] + random.normal(0.0, 12.0))
            pitch = math.radians(random.normal(-3.0, 5.0))
            x, y = points[k] + out * normals[k]
            place = place_on_ground(x, y, CAMERA_HEIGHT_M + (KERB if abs(out) > ROAD else -0.02 * abs(out)))
            forward = np.array([math.cos(yaw) * math.cos(pitch), math.sin(yaw) * math.cos(pitch), math.sin(pitch)])
            right = np.cross(forward, (0, 0, 1.0))
            right /= np.linalg.norm(right)
            pose = np.eye(4)
            pose[:3] = np.column_stack([right, np.cross(right, forward), -forward, place])
            poses.append(pose)
    return poses[::every]


def mitsuba_scene(scene: Scene) -> Any:
    import mitsuba as mi

    parts: dict[str, Any] = {
        "type": "scene",
        "integrator": {"type": "path", "max_depth": 4},
        "sky": {"type": "sunsky", "sun_direction": [0.45, -0.35, 0.75], "turbidity": 4.0},
    }
    for name, own in scene.parts.items():
        counts = np.cumsum([0, *(len(vertices) for vertices, *_ in own)])
        vertices, places = (np.concatenate([each[k] for each in own]) for k in (0, 2))
        faces = np.concatenate([each[1] + start for each, start in zip(own, counts, strict=False)])
        mesh = mi.Mesh(
            name, len(vertices), len(faces), has_vertex_texcoords=True, props=_properties(mi, scene.materials[name])
        )
        values = mi.traverse(mesh)
        values["vertex_positions"] = vertices.astype(np.float32).ravel()
        values["faces"] = faces.astype(np.uint32).ravel()
        values["vertex_texcoords"] = places.astype(np.float32).ravel()
        values.update()
        parts[name] = mesh
    return mi.load_dict(parts)


def _properties(mi: Any, material: Any) -> Any:
    if callable(material):
        picture = mi.Bitmap(np.clip(material(), 0.0, 1.0).astype(np.float32)[::-1].copy())
        colour: Any = {"type": "bitmap", "bitmap": picture, "raw": True, "filter_type": "bilinear"}
        bsdf: Any = {"type": "diffuse", "reflectance": colour}
    else:
        colour = {"type": "rgb", "value": list(material["colour"])}
        bsdf = {"type": "diffuse", "reflectance": colour}
        if material.get("is_shiny"):
            bsdf = {"type": "roughplastic", "diffuse_reflectance": colour, "alpha": 0.15}
    properties = mi.Properties()
    properties["bsdf"] = mi.load_dict({"type": "twosided", "bsdf": bsdf})
    return properties


_rendered: Any = None  # of this process


def _photograph(task: tuple[int, Array, Path, int, float, str]) -> None:
    global _rendered  # noqa: PLW0603 - made once in each process
    import mitsuba as mi

    number, pose, folder, samples, size, variant = task
    if _rendered is None:
        mi.set_variant(variant)
        _rendered = mitsuba_scene(street())
    to_mitsuba = pose @ np.diag([-1.0, 1.0, -1.0, 1.0])  # it looks along z, with x to the left
    sensor = mi.load_dict({
        "type": "perspective", "fov": FIELD_OF_VIEW_DEG, "to_world": mi.ScalarTransform4f(to_mitsuba),
        "film": {"type": "hdrfilm", "width": int(WIDTH * size), "height": int(HEIGHT * size)},
        "sampler": {"type": "independent", "sample_count": samples},
    })  # fmt: skip
    light = np.array(mi.render(_rendered, sensor=sensor, seed=number))[..., :3]
    exposed = 1.0 - np.exp(-EXPOSURE * np.maximum(light, 0.0))  # bright places fade, as on film
    Image.fromarray((255 * np.clip(exposed, 0, 1) ** (1 / 2.2) + 0.5).astype(np.uint8)).save(
        folder / _name(number), quality=95
    )


def photograph(folder: Path, every: int, samples: int, processes: int, size: float, variant: str) -> None:
    (folder / "images").mkdir(parents=True, exist_ok=True)
    tasks = [(number, pose, folder, samples, size, variant) for number, pose in enumerate(cameras(every))]
    with ProcessPoolExecutor(processes) as pool:
        for done, _ in enumerate(pool.map(_photograph, tasks), 1):
            print(f"\r{done} of {len(tasks)} photographs", end="", flush=True)
    print()


def write_poses(folder: Path, every: int, size: float) -> None:
    """As nerfstudio has them."""
    width, height = int(WIDTH * size), int(HEIGHT * size)
    focal = 0.5 * width / math.tan(math.radians(FIELD_OF_VIEW_DEG / 2))
    shot = {"camera_model": "PINHOLE", "w": width, "h": height, "ply_file_path": "points.ply"}
    shot |= {"fl_x": focal, "fl_y": focal, "cx": width / 2, "cy": height / 2}
    poses = enumerate(cameras(every))
    frames = [{"file_path": _name(number), "transform_matrix": pose.tolist()} for number, pose in poses]
    (folder / "transforms.json").write_text(json.dumps({**shot, "frames": frames}, indent=1))


def _name(number: int) -> str:
    return f"images/{number:04d}.jpg"


def write_truth(folder: Path, scene: Scene) -> None:
    """All surfaces as a mesh, and points on them, as structure from motion would find some."""
    counts, corners, faces = 0, [], []
    for own in scene.parts.values():
        for vertices, triangles, _ in own:
            corners.append(vertices)
            faces.append(triangles + counts)
            counts += len(vertices)
    vertices, triangles = np.concatenate(corners), np.concatenate(faces)
    head = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(vertices)}\n"
    head += "property float x\nproperty float y\nproperty float z\n"
    rows = np.zeros(len(triangles), [("count", "u1"), ("corners", "<i4", 3)])
    rows["count"], rows["corners"] = 3, triangles
    lists = f"element face {len(triangles)}\nproperty list uchar int vertex_indices\nend_header\n"
    (folder / "truth.ply").write_bytes((head + lists).encode() + vertices.astype("<f4").tobytes() + rows.tobytes())
    random = np.random.default_rng(1)
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1) * np.exp(
        -np.linalg.norm((a + b + c)[:, :2] / 3, axis=1) / 60.0
    )
    chosen = random.choice(len(triangles), 160_000, p=area / area.sum())
    u, v = random.uniform(size=(2, len(chosen), 1))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    points = a[chosen] + u * (b - a)[chosen] + v * (c - a)[chosen] + random.normal(0.0, 0.02, (len(chosen), 3))
    dots = np.zeros(len(points), [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    dots["xyz"], dots["rgb"] = points, 128
    head = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(points)}\nproperty float x\nproperty float y\n"
    head += "property float z\nproperty uchar red\nproperty uchar green\nproperty uchar blue\nend_header\n"
    (folder / "points.ply").write_bytes(head.encode() + dots.tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="only each N-th photograph")
    parser.add_argument("--samples", type=int, default=24, help="light paths per pixel")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--size", type=float, default=1.0, help="of the pictures; 0.5: half as wide and high")
    parser.add_argument("--variant", default="scalar_rgb", help="of Mitsuba; llvm_ad_rgb is quicker")
    options = parser.parse_args()
    photograph(options.folder, options.every, options.samples, options.processes, options.size, options.variant)
    write_poses(options.folder, options.every, options.size)
    write_truth(options.folder, street())


if __name__ == "__main__":
    main()
