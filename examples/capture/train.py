"""Train Gaussians on photographs with gsplat, as a folder that `microsim bundle from-capture` reads.

    pip install gsplat torch numpy pillow            # with an NVIDIA GPU and CUDA's compiler
    python examples/capture/train.py my_photographs my_capture
    microsim bundle from-capture my_capture my_street --camera-height 1.6

It reads `transforms.json` as nerfstudio has it, with pinhole cameras of one size. Like nerfstudio it trains in a frame
of its own, in which all cameras are within one unit of the origin; `dataparser_transforms.json` describes that frame.
Every eighth photograph is held back to measure the result. Gaussians are split, added and removed as in the original
method, by gsplat's `DefaultStrategy`, until there are `--splats`. They move slowly and become flat: they stay on the
surfaces, which is what a world to drive in needs.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gsplat import DefaultStrategy, export_splats, rasterization
from PIL import Image
from torch.nn import functional

DEVICE = "cuda"
HELD_BACK = 8  # every so many photographs
FIRST_HARMONIC = 0.28209479177387814
SKY_SPLATS, SKY_DISTANCE = 6000, 8.0  # [units]
FLATNESS, LARGE = 10.0, 0.1  # weight of thickness in the loss, of those smaller than so many units
RATES = {"means": 2e-5, "scales": 5e-3, "quats": 1e-3, "opacities": 5e-2, "sh0": 2.5e-3, "shN": 2.5e-3 / 20}


def frame_of(poses: np.ndarray) -> tuple[np.ndarray, float]:
    """Rotation and shift (3, 4), then scale, into the frame of training: upright by the cameras, which are within 1."""
    up = poses[:, :3, 1].mean(axis=0)
    up /= np.linalg.norm(up)
    across = np.cross(up, (0.0, 0.0, 1.0))
    cosine = up[2]
    skew = np.array([[0, -across[2], across[1]], [across[2], 0, -across[0]], [-across[1], across[0], 0]])
    rotation = np.eye(3) + skew + skew @ skew / (1.0 + cosine)
    middle = poses[:, :3, 3].mean(axis=0)
    transform = np.column_stack([rotation, -rotation @ middle])
    return transform, float(1.0 / np.abs((poses[:, :3, 3] - middle) @ rotation.T).max())


def read_points(file: Path) -> np.ndarray:
    """Places of a binary PLY with x, y, z as floats and three bytes of colour: what photographed_street.py writes."""
    head, body = file.read_bytes().split(b"end_header\n", 1)
    count = int(head.split(b"element vertex ")[1].split()[0])
    return np.frombuffer(body, [("xyz", "<f4", 3), ("rgb", "u1", 3)], count)["xyz"].astype(np.float64)


def first_splats(places: np.ndarray, degree: int, random: np.random.Generator) -> torch.nn.ParameterDict:
    """Small grey ones on the points, large blue ones for the sky."""
    directions = random.normal(size=(SKY_SPLATS, 3))
    directions[:, 2] = np.abs(directions[:, 2]) + 0.05
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    count = len(places)
    means = np.concatenate([places, SKY_DISTANCE * directions])
    scales = np.full(count + SKY_SPLATS, math.log(0.004))
    scales[count:] = math.log(SKY_DISTANCE * 0.03)
    colours = np.zeros((len(means), 1, 3))
    colours[count:] = (np.array([0.55, 0.65, 0.85]) - 0.5) / FIRST_HARMONIC
    values = {
        "means": means,
        "scales": np.repeat(scales[:, None], 3, axis=1),
        "quats": random.normal(size=(len(means), 4)),
        "opacities": np.zeros(len(means)),  # a half
        "sh0": colours,
        "shN": np.zeros((len(means), (degree + 1) ** 2 - 1, 3)),
    }
    tensors = {name: torch.tensor(value, dtype=torch.float32, device=DEVICE) for name, value in values.items()}
    return torch.nn.ParameterDict({name: torch.nn.Parameter(tensor) for name, tensor in tensors.items()})


def similarity(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Structural similarity (SSIM) of two images (1, 3, h, w), over Gaussian windows of 11 pixels."""
    along = torch.arange(11, device=DEVICE) - 5.0
    bell = torch.exp(-(along**2) / (2 * 1.5**2))
    bell = (bell / bell.sum()).view(1, 1, 1, 11).expand(5 * 3, 1, 1, 11)
    stack = torch.cat([found, wanted, found * found, wanted * wanted, found * wanted], dim=1)
    stack = functional.conv2d(functional.conv2d(stack, bell, groups=15), bell.transpose(2, 3), groups=15)
    a, b, aa, bb, ab = stack.split(3, dim=1)
    top = (2 * a * b + 1e-4) * (2 * (ab - a * b) + 9e-4)
    return (top / ((a * a + b * b + 1e-4) * (aa - a * a + bb - b * b + 9e-4))).mean()


class Photographs:
    def __init__(self, folder: Path) -> None:
        shot = json.loads((folder / "transforms.json").read_text())
        frames = shot["frames"]
        self.poses = np.array([frame["transform_matrix"] for frame in frames])
        self.transform, self.scale = frame_of(self.poses)
        images = [np.asarray(Image.open(folder / frame["file_path"]).convert("RGB")) for frame in frames]
        self.images = torch.tensor(np.stack(images), device=DEVICE)
        self.height, self.width = self.images.shape[1:3]
        lens = [[shot["fl_x"], 0.0, shot["cx"]], [0.0, shot["fl_y"], shot["cy"]], [0.0, 0.0, 1.0]]
        self.lens = torch.tensor([lens], device=DEVICE)
        self.views = torch.tensor(
            np.stack([self._view(pose) for pose in self.poses]), dtype=torch.float32, device=DEVICE
        )
        self.points = self._in_frame(read_points(folder / shot["ply_file_path"]))
        self.held_back = [number for number in range(len(frames)) if number % HELD_BACK == 0]
        self.shown = [number for number in range(len(frames)) if number % HELD_BACK]

    def _in_frame(self, places: np.ndarray) -> np.ndarray:
        return self.scale * (places @ self.transform[:, :3].T + self.transform[:, 3])

    def _view(self, pose: np.ndarray) -> np.ndarray:
        """From the frame of training to a camera that looks along z, with y down."""
        placed = np.eye(4)
        placed[:3, :3] = self.transform[:, :3] @ pose[:3, :3] @ np.diag([1.0, -1.0, -1.0])
        placed[:3, 3] = self._in_frame(pose[:3, 3])
        return np.linalg.inv(placed)

    def draw(self, splats: Any, number: int, degree: int) -> tuple[torch.Tensor, Any]:
        image, _, info = rasterization(
            splats["means"],
            splats["quats"],
            torch.exp(splats["scales"]),
            torch.sigmoid(splats["opacities"]),
            torch.cat([splats["sh0"], splats["shN"]], dim=1),
            self.views[number : number + 1],
            self.lens,
            self.width,
            self.height,
            sh_degree=degree,
            packed=False,
        )
        return image, info

    def decibels(self, splats: Any, degree: int) -> float:
        """How near drawn pictures are to those held back (PSNR)."""
        found = []
        with torch.no_grad():
            for number in self.held_back:
                image = self.draw(splats, number, degree)[0][0].clamp(0, 1)
                found.append(-10 * torch.log10(((image - self.images[number] / 255.0) ** 2).mean()).item())
        return float(np.mean(found))


def train(photographs: Photographs, steps: int, most: int, degree: int, seed: int) -> torch.nn.ParameterDict:
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    splats = first_splats(photographs.points, degree, random)
    optimizers = {name: torch.optim.Adam([splats[name]], lr=rate, eps=1e-15) for name, rate in RATES.items()}
    slower = torch.optim.lr_scheduler.ExponentialLR(optimizers["means"], gamma=0.01 ** (1.0 / steps))
    strategy = DefaultStrategy(refine_stop_iter=int(0.6 * steps), prune_scale3d=math.inf, grow_grad2d=0.0003)
    strategy.check_sanity(splats, optimizers)
    state, began = strategy.initialize_state(), time.monotonic()
    for step in range(steps):
        number = photographs.shown[int(random.integers(len(photographs.shown)))]
        image, info = photographs.draw(splats, number, min(degree, step // 1000))
        found, wanted = image.permute(0, 3, 1, 2), photographs.images[number][None].permute(0, 3, 1, 2) / 255.0
        loss = 0.8 * (found - wanted).abs().mean() + 0.2 * (1.0 - similarity(found, wanted))
        sizes = torch.exp(splats["scales"])
        loss = loss + FLATNESS * sizes.amin(dim=1)[sizes.amax(dim=1) < LARGE].mean()
        if len(splats["means"]) >= most:
            strategy.grow_grad2d = math.inf
        strategy.step_pre_backward(splats, optimizers, state, step, info)
        loss.backward()
        for optimizer in optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        slower.step()
        strategy.step_post_backward(splats, optimizers, state, step, info)
        if step % 1000 == 999:
            quality, seconds = photographs.decibels(splats, degree), time.monotonic() - began
            print(
                f"{step + 1} of {steps}: {len(splats['means']):,} Gaussians, {quality:.2f} dB, {seconds:.0f} s",
                flush=True,
            )
    return splats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=Path)
    parser.add_argument("capture", type=Path)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--splats", type=int, default=250_000, help="at most")
    parser.add_argument(
        "--degree", type=int, default=1, help="of the harmonics: how much colours depend on where one stands"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=("ply", "splat"), default="ply", help="splat: smaller, without harmonics")
    options = parser.parse_args()
    photographs = Photographs(options.photographs)
    splats = train(photographs, options.steps, options.splats, options.degree, options.seed)
    options.capture.mkdir(parents=True, exist_ok=True)
    names = "means", "scales", "quats", "opacities", "sh0", "shN"
    file = options.capture / f"gaussians.{options.format}"
    export_splats(*(splats[name].detach() for name in names), format=options.format, save_to=str(file))
    described = {"transform": photographs.transform.tolist(), "scale": photographs.scale}
    (options.capture / "dataparser_transforms.json").write_text(json.dumps(described, indent=1))
    (options.capture / "transforms.json").write_bytes((options.photographs / "transforms.json").read_bytes())


if __name__ == "__main__":
    main()
