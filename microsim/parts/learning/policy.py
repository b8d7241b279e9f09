"""A trained policy: a small network of rectified layers, its file, and its evaluation with the same bits everywhere.

Images pass through convolutions; what comes out, and the other numbers, through dense layers. The numbers of a layer
are added in one fixed order, whatever the number of worlds: a world in a batch of thousands, a world of its own and a
node on ROS 2 get the same action, bit for bit. A matrix product of BLAS does not promise that.
The file is a `.npz` with the weights and a description as JSON; loading it runs no code.
"""

from __future__ import annotations

import json
import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import kernel, threaded_kernel
from microsim.errors import MissingExtraError, UsageError, install_hint, os_errors, unknown
from microsim.parts.learning.task import Task

Float32s: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]
Layers: TypeAlias = tuple[tuple[Float32s, Float32s], ...]

SHIPPED = Path(__file__).parent / "policies"
_LARGEST_BYTES = 64 * 2**20  # of all parts of a file, unpacked
_KINDS = {"options": dict, "image": list, "actions": list}  # of the description
_FORMAT = 1
_DAMAGED = (  # what damaged or odd archives raise; RuntimeError: encrypted, of another version, nested too deeply
    *(OSError, ValueError, KeyError, EOFError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
STRIDE = 2  # of every convolution


def convolved(shape: tuple[int, ...], side: int, filters: int) -> tuple[int, ...]:
    """(height, width, channels) of what a convolution makes of such an image."""
    return (shape[0] - side) // STRIDE + 1, (shape[1] - side) // STRIDE + 1, filters


@dataclass(frozen=True)
class NetworkShape:
    """front (convolutions, 5): height, width, channels that go in, side of a filter, filters; sizes: of dense layers.

    The inputs are `numbers`, then the pixels of the image; what the convolutions make of it takes its place.
    """

    front: Integers
    sizes: Integers
    numbers: int
    steps: tuple[tuple[int, ...], ...]  # sizes of all that passes through it, in order

    @classmethod
    def of(cls, layers: Layers, image: Sequence[int] = ()) -> NetworkShape:
        """UsageError where layers do not fit each other or the image."""
        front: list[tuple[int, ...]] = []
        sizes: list[int] = []
        here = tuple(image)
        if here and not (len(here) == 3 and all(isinstance(edge, int) for edge in here)):
            raise UsageError(f"expected height, width and channels of its image, found {here}")
        for weights, biases in layers:
            side, channels = weights.shape[:1] + weights.shape[-1:] if weights.ndim else (0, 0)
            if weights.ndim == 4 and here and not sizes:
                fits = weights.shape[1:3] == (side, here[2]) and 0 < side <= min(here[:2])
                front.append((*here, side, channels))
                here = convolved(here, side, channels)
            else:
                least = math.prod(here) if front else 0
                fits = weights.ndim == 2 and (side == sizes[-1] if sizes else side >= least)
                sizes = [*(sizes or [side]), channels]
            if not fits or biases.shape != (channels,):
                raise UsageError("the shapes of its layers do not fit each other")
        if not sizes:
            raise UsageError("has no layers" if not front else "has no layers after its convolutions")
        numbers = sizes[0] - (math.prod(here) if front else 0)
        maps = [each[:3] for each in front] + ([here] if front else [])
        steps = (*maps, *((size,) for size in (sizes[1:] if front else sizes)))
        return cls(np.array(front, np.int64).reshape(-1, 5), np.array(sizes, np.int64), numbers, steps)

    @property
    def inputs(self) -> int:
        return self.numbers + (math.prod(self.steps[0]) if len(self.front) else 0)

    def __str__(self) -> str:
        """`24×32×3 → 11×15×8 → 64 → 2`."""
        text = " → ".join("×".join(map(str, step)) for step in self.steps)
        return f"{self.numbers} + {text}" if len(self.front) and self.numbers else text


@kernel
def _convolve(image: Float32s, shape: Integers, weights: Float32s, at: int, out: Float32s) -> int:
    """A rectified convolution with the weights from `at` on; returns where they end. shape: a row of the front."""
    width, channels, side, filters = shape[1], shape[2], shape[3], shape[4]
    rows, columns = (shape[0] - side) // STRIDE + 1, (width - side) // STRIDE + 1
    for place in range(rows * columns):
        top, left, first = place // columns * STRIDE, place % columns * STRIDE, place * filters
        for f in range(filters):
            out[first + f] = weights[at + f]
        weight = at + filters
        for row in range(top, top + side):
            begin = (row * width + left) * channels
            for k in range(begin, begin + side * channels):
                value = image[k]
                for f in range(filters):
                    out[first + f] += value * weights[weight + f]
                weight += filters
        for f in range(first, first + filters):
            out[f] = max(out[f], np.float32(0.0))
    end: int = at + filters + side * side * channels * filters
    return end


@threaded_kernel
def infer(seen: Float32s, weights: Float32s, front: Integers, sizes: Integers, numbers: int, out: Float32s) -> None:
    """out (n, actions) from seen (n, numbers and pixels): each layer adds its inputs in their order; clipped to ±1."""
    pixels = seen.shape[1] - numbers
    room = max(sizes.max(), pixels)
    for k in range(len(front)):
        room = max(room, front[k, 0] * front[k, 1] * front[k, 4])
    for i in range(seen.shape[0]):
        a, b, at = np.zeros(room, np.float32), np.zeros(room, np.float32), 0
        b[:pixels] = seen[i, numbers:]
        for k in range(len(front)):
            at = _convolve(b, front[k], weights, at, a)
            a, b = b, a
        a[:numbers] = seen[i, :numbers]
        a[numbers : sizes[0]] = b[: sizes[0] - numbers]
        for layer in range(len(sizes) - 1):
            inputs, outputs = sizes[layer], sizes[layer + 1]
            for j in range(outputs):
                b[j] = weights[at + j]
            at += outputs
            for k in range(inputs):
                value = a[k]
                for j in range(outputs):
                    b[j] += value * weights[at + j]
                at += outputs
            is_last = layer == len(sizes) - 2
            for j in range(outputs):
                low = np.float32(-1.0) if is_last else np.float32(0.0)
                a[j] = low if b[j] < low else b[j]
                if is_last and b[j] > np.float32(1.0):
                    a[j] = np.float32(1.0)
        out[i] = a[: sizes[-1]]


@dataclass(frozen=True)
class Policy:
    """`layers`: weights and biases of each; `about`: how it came to be, as plain data.

    Weights of a convolution are (side, side, channels, filters), of a dense layer (inputs, outputs). With convolutions,
    `about["image"]` is what goes into the first one: height, width, channels.
    """

    layers: Layers
    about: dict[str, Any] = field(default_factory=dict)
    shape: NetworkShape = field(init=False)

    def __post_init__(self) -> None:
        parts = [part.astype(np.float32).ravel() for weights, biases in self.layers for part in (biases, weights)]
        object.__setattr__(self, "_flat", np.concatenate([np.zeros(0, np.float32), *parts]))
        object.__setattr__(self, "shape", NetworkShape.of(self.layers, self.about.get("image", ())))

    @property
    def task(self) -> str:
        """The name of its task, or the file."""
        return str(self.about.get("task", ""))

    def actions(self, seen: Float32s) -> Float32s:
        """(n, actions), each from -1 to 1, for seen (n, numbers); of agents that are alike (n, agents, …)."""
        shape = self.shape
        rows = np.ascontiguousarray(seen, np.float32).reshape(-1, shape.inputs)
        out: Float32s = np.empty((len(rows), shape.sizes[-1]), np.float32)
        infer(rows, self._flat, shape.front, shape.sizes, shape.numbers, out)  # type: ignore[attr-defined]
        return out.reshape(len(seen), -1)

    def check(self, task: Task) -> None:
        """UsageError unless it is for this task."""
        seen, names = self.about.get("observations"), input_names(task)
        if seen is not None and seen != names:
            raise UsageError(
                f"the policy was trained with other observations than {task.name} has: "
                f"{len(seen)} numbers ({', '.join(seen[:3])}, …), not {len(names)} ({', '.join(names[:3])}, …)"
            )
        agents = len(task.agents) if task.alike else 1
        inputs = task.layout.size + (math.prod(image) if (image := image_shape(task)) else 0)
        expected = f"{inputs // agents} numbers to {task.action_size // agents}"
        found = f"{self.shape.inputs} numbers to {self.shape.sizes[-1]}"
        if found != expected:
            raise UsageError(f"{task.name}: expected a policy from {expected}, found one from {found}")

    def save(self, file: Path) -> None:
        arrays: dict[str, Any] = {f"w{k}": weights for k, (weights, _) in enumerate(self.layers)}
        arrays |= {f"b{k}": biases for k, (_, biases) in enumerate(self.layers)}
        shapes = [list(weights.shape) for weights, _ in self.layers]
        text = json.dumps({"format": _FORMAT, **self.about, "layers": shapes}, sort_keys=True)
        with open_to_write(file) as stream:
            np.savez(stream, about=np.array(text), **arrays)

    def export_onnx(self, file: Path) -> None:
        """For other runtimes: `observation` (n, numbers) to `action` (n, actions), both float32."""
        onnx = import_onnx()
        helper, numpy_helper = onnx.helper, onnx.numpy_helper
        nodes, values, name = [], [], "observation"

        def node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
            nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
            return output

        def value(name: str, array: Any) -> str:
            values.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
            return name

        shape, count = self.shape, len(self.shape.front)
        for k, (weights, biases) in enumerate(self.layers):
            if count and k == 0:
                counts = value("counts", np.array([shape.numbers, shape.inputs - shape.numbers]))
                nodes.append(helper.make_node("Split", [name, counts], ["numbers", "pixels"], axis=1))
                name = node("Reshape", ["pixels", value("image_shape", np.array([-1, *shape.steps[0]]))], "image")
                name = node("Transpose", [name], "channels", perm=[0, 3, 1, 2])
            if k < count:
                given = [name, value(f"w{k}", weights.transpose(3, 2, 0, 1)), value(f"b{k}", biases)]
                name = node("Conv", given, f"sum{k}", strides=[STRIDE, STRIDE])
            else:
                name = node("Gemm", [name, value(f"w{k}", weights), value(f"b{k}", biases)], f"sum{k}")
            if k == len(self.layers) - 1:
                ends = [value(end, np.array(edge, np.float32)) for end, edge in (("least", -1.0), ("most", 1.0))]
                node("Clip", [name, *ends], "action")
                break
            name = node("Relu", [name], f"layer{k}")
            if k == count - 1:
                name = node("Flatten", [node("Transpose", [name], "maps", perm=[0, 2, 3, 1])], "flat")
                name = node("Concat", ["numbers", name], "together", axis=1)
        shapes = ((int(shape.inputs), "observation"), (int(shape.sizes[-1]), "action"))
        seen, done = (helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, ["n", size]) for size, each in shapes)
        graph = helper.make_graph(nodes, self.task or "policy", [seen], [done], values)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model.metadata_props.add(key="about", value=json.dumps(self.about, sort_keys=True))
        with open_to_write(file) as stream:
            onnx.save(model, stream)


def import_onnx() -> Any:
    try:
        return import_module("onnx")
    except ImportError:
        raise MissingExtraError(f"ONNX needs a library: {install_hint('onnx')}") from None


def input_names(task: Task) -> list[str]:
    """Of every number that a policy gets; an image is one name with its shape."""
    shapes = {name: "x".join(map(str, task.layout.image(name).shape[1:])) for name in task.layout.images}
    return [*task.layout.names, *(f"{name}: {shape}" for name, shape in shapes.items())]


def image_shape(task: Task) -> tuple[int, ...]:
    """(height, width, channels) of all images of a task, one behind the other; empty: there are none."""
    shapes = {name: task.layout.image(name).shape[1:] for name in task.layout.images}
    if len({shape[:2] for shape in shapes.values()}) > 1:
        found = ", ".join(f"{name} {shape[1]} × {shape[0]}" for name, shape in shapes.items())
        raise UsageError(f"{task.name}: a policy takes images of one size, found {found}")
    return (*next(iter(shapes.values()))[:2], sum(shape[2] for shape in shapes.values())) if shapes else ()


def input_of(task: Task) -> Float32s:
    """(n, numbers) that a policy gets: the observations, then the pixels of images as numbers from -0.5 to 0.5."""
    if not task.layout.images:
        return task.observe()
    images = [task.layout.image(name) for name in task.layout.images]
    pixels = (images[0] if len(images) == 1 else task.xp.concatenate(images, axis=3)).reshape(task.n, -1)
    seen: Float32s = pixels * np.float32(1.0 / 255.0) - np.float32(0.5)
    if task.layout.size:
        seen = task.xp.concatenate([task.observe(), seen], axis=1)
    return seen


def open_to_write(file: Path) -> Any:
    with os_errors(f"{file}: cannot be written"):
        return file.open("wb")


def shipped_policies() -> list[str]:
    return sorted(file.stem for file in SHIPPED.glob("*.npz"))


def load_policy(policy: str | Path | Policy) -> Policy:
    """A file, or the name of a task with a shipped policy."""
    if isinstance(policy, Policy):
        return policy
    file = Path(policy)
    if not file.suffix:
        if str(policy) not in shipped_policies():
            text = unknown("no shipped policy", repr(str(policy)), str(policy), shipped_policies())
            raise UsageError(f"{text}; a file is named policy.npz")
        file = SHIPPED / f"{policy}.npz"
    try:
        with zipfile.ZipFile(file) as parts:
            if sum(part.file_size for part in parts.infolist()) > _LARGEST_BYTES:
                raise UsageError(f"{file}: expected a policy of at most {_LARGEST_BYTES >> 20} MiB")
        with warnings.catch_warnings(), np.load(file, allow_pickle=False) as stored:
            warnings.simplefilter("ignore")  # what is broken is refused, not warned of
            return _read(stored, file)
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file; shipped policies: {', '.join(shipped_policies())}") from None
    except _DAMAGED as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{file}: not a policy of `microsim policy train`: {error}") from None


def _read(stored: Any, file: Path) -> Policy:
    about = json.loads(str(stored["about"]))
    if not isinstance(about, dict):
        raise ValueError("expected a mapping as `about`")
    if about.get("format") != _FORMAT:
        raise UsageError(f"{file}: expected a policy of format {_FORMAT}, found {about.get('format')!r}")
    seen = about.get("observations")
    if seen is not None and not (isinstance(seen, list) and all(isinstance(each, str) for each in seen)):
        raise UsageError(f"{file}: expected names as observations, found {seen!r}")
    for key, kind in _KINDS.items():
        if not isinstance(about.get(key, kind()), kind):
            raise UsageError(f"{file}: expected a {kind.__name__} as {key}, found {about[key]!r}")
    count = sum(name.startswith("w") for name in stored.files)
    expected = ["about", *(f"{part}{k}" for k in range(count) for part in "bw")]
    if sorted(stored.files) != sorted(expected):
        raise UsageError(f"{file}: expected weights and biases of layers 0 to {count - 1}, found {_listed(stored)}")
    layers = tuple((stored[f"w{k}"], stored[f"b{k}"]) for k in range(count))
    for part in (part for layer in layers for part in layer):
        if part.dtype != np.float32 or not np.isfinite(part).all():
            raise UsageError(f"{file}: expected finite weights of type float32")
    found, described = [list(weights.shape) for weights, _ in layers], about.get("layers")
    if described is not None and described != found:  # files of older versions do not have it
        raise UsageError(f"{file}: its description names layers of {described}, it has {found}")
    try:
        policy = Policy(layers, {key: value for key, value in about.items() if key not in ("format", "layers")})
        _check_ends(policy)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    return policy


def _listed(stored: Any) -> str:
    return ", ".join(sorted(name for name in stored.files if name != "about")) or "none"


def _check_ends(policy: Policy) -> None:
    """The first layer takes what the description names, and the last one gives it; of several agents alike, a share."""
    seen, done = policy.about.get("observations"), policy.about.get("actions")
    taken, given = policy.shape.inputs, int(policy.shape.sizes[-1])
    shares = 1
    if seen is not None:
        numbers = sum(": " not in name for name in seen)
        named = numbers + math.prod(policy.about.get("image", (0,)))
        shares = named // taken if numbers == len(seen) else 1
        if taken * shares != named:
            raise UsageError(f"its first layer takes {taken} numbers, its description names {named}")
    if done is not None and given * shares != len(done):
        raise UsageError(f"its last layer gives {given} numbers, its description names {len(done) // shares} actions")
