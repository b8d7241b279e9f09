"""A trained policy: a small network of rectified layers, its file, and its evaluation with the same bits everywhere.

The numbers of a layer are added in one fixed order, whatever the number of worlds: a world in a batch of thousands, a
world of its own and a node on ROS 2 get the same action, bit for bit. A matrix product of BLAS does not promise that.
The file is a `.npz` with the weights and a description as JSON; loading it runs no code.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import threaded_kernel
from microsim.errors import MissingExtraError, UsageError, install_hint, unknown
from microsim.learning.task import Task

Float32s: TypeAlias = npt.NDArray[np.float32]

SHIPPED = Path(__file__).parent / "policies"
_LARGEST_BYTES = 64 * 2**20  # of a file
_FORMAT = 1


@threaded_kernel
def infer(seen: Float32s, weights: Float32s, sizes: npt.NDArray[np.int64], out: Float32s) -> None:
    """out (n, actions) from seen (n, numbers): each layer adds its inputs in their order; the last is clipped to ±1."""
    widest = sizes.max()
    for i in range(seen.shape[0]):
        a, b = np.zeros(widest, np.float32), np.zeros(widest, np.float32)
        a[: sizes[0]] = seen[i]
        at = 0
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
    """`layers`: (weights (inputs, outputs), biases (outputs,)) of each; `about`: how it came to be, as plain data."""

    layers: tuple[tuple[Float32s, Float32s], ...]
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = [part.astype(np.float32).ravel() for weights, biases in self.layers for part in (biases, weights)]
        sizes = [self.layers[0][0].shape[0], *(weights.shape[1] for weights, _ in self.layers)]
        object.__setattr__(self, "_flat", np.concatenate(parts))
        object.__setattr__(self, "_sizes", np.array(sizes, np.int64))

    @property
    def task(self) -> str:
        """The name of its task, or the file."""
        return str(self.about.get("task", ""))

    def actions(self, seen: Float32s) -> Float32s:
        """(n, actions), each from -1 to 1, for seen (n, numbers); of agents that are alike (n, agents, …)."""
        sizes: npt.NDArray[np.int64] = self._sizes  # type: ignore[attr-defined]
        rows = np.ascontiguousarray(seen, np.float32).reshape(-1, sizes[0])
        out: Float32s = np.empty((len(rows), sizes[-1]), np.float32)
        infer(rows, self._flat, sizes, out)  # type: ignore[attr-defined]
        return out.reshape(len(seen), -1)

    def check(self, task: Task) -> None:
        """UsageError unless it is for this task."""
        seen, names = self.about.get("observations"), input_names(task)
        if seen is not None and seen != names:
            raise UsageError(
                f"the policy was trained with other observations than {task.name} has: "
                f"{len(seen)} numbers ({', '.join(seen[:3])}, …), not {len(names)} ({', '.join(names[:3])}, …)"
            )

    def save(self, file: Path) -> None:
        arrays: dict[str, Any] = {f"w{k}": weights for k, (weights, _) in enumerate(self.layers)}
        arrays |= {f"b{k}": biases for k, (_, biases) in enumerate(self.layers)}
        text = json.dumps({"format": _FORMAT, **self.about}, sort_keys=True)
        with open_to_write(file) as stream:
            np.savez(stream, about=np.array(text), **arrays)

    def export_onnx(self, file: Path) -> None:
        """For other runtimes: `observation` (n, numbers) to `action` (n, actions), both float32."""
        try:
            from onnx import TensorProto, helper, numpy_helper, save
        except ImportError:
            raise MissingExtraError(f"ONNX needs a library: {install_hint('onnx')}") from None
        nodes, values, name = [], [], "observation"
        for k, (weights, biases) in enumerate(self.layers):
            is_last = k == len(self.layers) - 1
            values += [numpy_helper.from_array(part, f"{kind}{k}") for kind, part in (("w", weights), ("b", biases))]
            nodes.append(helper.make_node("Gemm", [name, f"w{k}", f"b{k}"], [f"sum{k}"]))
            name = "action" if is_last else f"layer{k}"
            ends = ["least", "most"] if is_last else []
            nodes.append(helper.make_node("Clip" if is_last else "Relu", [f"sum{k}", *ends], [name]))
        values += [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("least", -1.0), ("most", 1.0))]
        shapes = ((self.layers[0][0].shape[0], "observation"), (self.layers[-1][0].shape[1], "action"))
        seen, done = (helper.make_tensor_value_info(each, TensorProto.FLOAT, ["n", size]) for size, each in shapes)
        graph = helper.make_graph(nodes, self.task or "policy", [seen], [done], values)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model.metadata_props.add(key="about", value=json.dumps(self.about, sort_keys=True))
        with open_to_write(file) as stream:
            save(model, stream)


def input_names(task: Task) -> list[str]:
    """Of every number that a policy gets; an image is one name with its shape."""
    shapes = {name: "x".join(map(str, task.layout.image(name).shape[1:])) for name in task.layout.images}
    return [*task.layout.names, *(f"{name}: {shape}" for name, shape in shapes.items())]


def input_of(task: Task) -> Float32s:
    """(n, numbers) that a policy gets: the observations, then images as numbers from -0.5 to 0.5."""
    scale, half = np.float32(1.0 / 255.0), np.float32(0.5)
    images = [task.layout.image(name).reshape(task.n, -1) * scale - half for name in task.layout.images]
    return task.xp.concatenate([task.observe(), *images], axis=1) if images else task.observe()


def open_to_write(file: Path) -> Any:
    try:
        return file.open("wb")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from None


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
        if file.stat().st_size > _LARGEST_BYTES:
            raise UsageError(f"{file}: expected a policy of at most {_LARGEST_BYTES >> 20} MiB")
        with np.load(file, allow_pickle=False) as stored:
            return _read(stored, file)
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file; shipped policies: {', '.join(shipped_policies())}") from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{file}: not a policy of `microsim train`: {error}") from None


def _read(stored: Any, file: Path) -> Policy:
    about = json.loads(str(stored["about"]))
    if about.get("format") != _FORMAT:
        raise UsageError(f"{file}: expected a policy of format {_FORMAT}, found {about.get('format')!r}")
    count = sum(name.startswith("w") for name in stored.files)
    layers = tuple((stored[f"w{k}"], stored[f"b{k}"]) for k in range(count))
    inputs = 0
    for weights, biases in layers:
        if weights.ndim != 2 or biases.shape != weights.shape[1:] or (inputs and weights.shape[0] != inputs):
            raise UsageError(f"{file}: the shapes of its layers do not fit each other")
        if weights.dtype != np.float32 or not (np.isfinite(weights).all() and np.isfinite(biases).all()):
            raise UsageError(f"{file}: expected finite weights of type float32")
        inputs = weights.shape[1]
    if not layers:
        raise UsageError(f"{file}: has no layers")
    return Policy(layers, {key: value for key, value in about.items() if key != "format"})
