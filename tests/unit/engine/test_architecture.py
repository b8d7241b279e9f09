"""Rules about imports that the layer contracts in pyproject.toml cannot state."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "microsim"
MODULES = sorted(PACKAGE.rglob("*.py"))

# The tick and the rays that sensors cast: nothing else of MicroSim is needed to run them.
CORE = ("engine/", "rays/")
# All that decides what a run's numbers are: the core, and the parts that are declared with settings and messages.
COMPUTING = (*CORE, "robots/", "sensors/", "faults/", "render/", "batch/")

# What the core may import: arrays, the compiler, and parts of the standard library that only compute.
PURE = {
    "__future__", "abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "enum", "fractions", "functools",
    "hashlib", "heapq", "itertools", "keyword", "math", "numba", "numpy", "operator", "struct", "types", "typing",
    "typing_extensions",
}  # fmt: skip

EXCEPTIONS = {
    # the cache of compiled kernels is found once, at import, and never looked at in a tick
    ("engine/compiled.py", "os"), ("engine/compiled.py", "pathlib"), ("engine/compiled.py", "pickle"),
    *(("engine/prebuilt.py", name) for name in ("llvmlite", "pathlib", "zipfile")),
    # functions are called by address: through the compiler's own instructions, or through ctypes without it
    ("engine/calls.py", "llvmlite"), ("engine/calls.py", "ctypes"), ("engine/calls.py", "inspect"),
    ("engine/records.py", "ctypes"), ("engine/records.py", "llvmlite"), ("engine/columns.py", "ctypes"),
    *(("engine/digest_chain.py", name) for name in ("llvmlite", "ctypes", "_hashlib")),
}  # fmt: skip

# These round differently from one processor, libm or NumPy to the next; microsim.engine.exact has ours.
# sqrt, fsum, floor, ceil, fabs, copysign, isnan, isfinite and the constants are exact everywhere.
INEXACT = {
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "arcsin", "arccos", "arctan", "arctan2", "arcsinh", "arccosh", "arctanh",
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "power", "hypot", "cbrt", "dist", "fma",
    "sumprod", "gamma", "lgamma", "erf", "erfc", "float_power", "logaddexp", "sinc", "linalg", "random", "einsum",
}  # fmt: skip

# A heavy library is imported in one place, so that whoever does not need it never pays for it.
HOMES = {
    "numba": (
        "engine/",
        "batch/cuda_compiler.py",
        "batch/cuda_kernels.py",
        "batch/camera_columns.py",
        "batch/cuda_loops.py",
    ),  # the latter for GPUs
    "llvmlite": ("engine/calls.py", "engine/digest_chain.py", "engine/prebuilt.py", "engine/records.py"),
    "rosbags": ("messages/", "recording/"),
    "ruamel": ("documents/", "parts/ros2/transport/ros_arguments.py"),
    "shapely": ("bundle/", "parts/worlds/"),
    "PIL": (
        "bundle/",
        "parts/worlds/",
        "parts/view/web/",
        "parts/view/notebook.py",
        "scenario/map_images.py",
        "parts/agents/agent_tools.py",
        "sensors/_camera_messages.py",
    ),
    "mcp": ("parts/agents/agent_server.py",),
    "foxglove": ("parts/foxglove/",),
    "pytest": ("parts/testing/pytest_plugin.py",),
    "typer": ("cli/", "parts/"),
    "rich": ("cli/", "parts/view/dashboard/", "parts/worlds/commands/"),
    "rclpy": ("parts/ros2/transport/rclpy_transport.py",),
    "cyclonedds": ("parts/ros2/transport/",),
    "viser": ("parts/view/web/", "parts/worlds/editor.py"),
    "yourdfpy": ("parts/view/web/",),
    "ray": ("parts/sweep/worker_pool.py",),
    "pyarrow": ("parts/sweep/results.py",),
    "matplotlib": ("plotting.py",),
    "gymnasium": ("parts/learning/",),
    "pettingzoo": ("parts/learning/",),
    "torch": ("parts/learning/",),
    "onnx": ("parts/learning/policy.py",),
    **dict.fromkeys(("stable_baselines3", "torchrl", "tensordict", "skrl"), ("parts/learning/adapters/",)),
    "embreex": ("bundle/",),
    "cupy": ("batch/", "render/gpu.py"),
}

# Of the core parts use public names, and what else these modules offer. All other modules are internal.
OPEN = {
    "": """attachment bare_simulation batch bundle display errors faults file_kinds gate_checks listening listings
        messages options paths plotting plugin_code plugin_errors processes registry runner scenario sensors shipped
        simulation timeline version""",
    "bundle": """bundle_files bundle_loading bundle_model bundle_writing drivable_geojson mapped_arrays mesh_files
        road_map rules similarity splat_import splat_sources zstd""",
    "cli": "command commands.replay json_schemas precompile runs terminal",
    "documents": "json_text values yaml_text",
    "engine": """command_timeout compiled components exact faults geodesy geometry motion noise radio
        random_layout schedule timekeeper world worlds""",
    "messages": """checked definition_text descriptions encoders inputs inputs.drive_commands inputs.set_pose mappings
        outbox topics type_files types""",
    "recording": "attachment bag_io bag_model bag_plot bag_replay bag_source compare inputs recorder state_file",
    "robots": "car dynamic_rover navigation_robot robot rover",
    "scenario": "bundles fault_models files gates live_changes loading map_images scene world_models",
    "sensors": "localisation odometry plugin pose2d scan sensor",
}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


@cache
def imports(path: Path) -> tuple[tuple[str, str], ...]:
    """Place and full name of everything imported, at any depth."""
    found: list[tuple[str, str]] = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += ((place(path, node), alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(path, node)}: imports are absolute here"
            found += ((place(path, node), f"{node.module}.{alias.name}") for alias in node.names)
    return tuple(found)


def place(path: Path, node: ast.stmt | ast.expr) -> str:
    return f"{name(path)}:{node.lineno}"


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    """Read once for all rules, and then forgotten: a million objects would slow down other tests' memory."""
    yield
    for each in (tree, nodes, imports):
        each.cache_clear()


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def in_folders(folders: tuple[str, ...]) -> list[Path]:
    found = [path for path in MODULES if name(path).startswith(folders)]
    assert {name(path).split("/")[0] + "/" for path in found} == set(folders), "a folder was renamed"
    return found


def test_a_home_is_a_folder_or_module_that_is_there() -> None:
    places = {place for homes in HOMES.values() for place in homes} | {place for place, _ in EXCEPTIONS}
    assert not [place for place in places if not (PACKAGE / place).exists()]


def test_the_core_imports_only_itself_numpy_numba_and_what_merely_computes() -> None:
    foreign = [
        f"{line}: {imported}"
        for path in [*in_folders(CORE), PACKAGE / "render/screen.py"]
        for line, imported in imports(path)
        if imported.split(".")[0] not in PURE
        and not imported.startswith(("microsim.engine", "microsim.rays", "microsim.render.screen"))
        and (name(path), imported.split(".")[0]) not in EXCEPTIONS
    ]
    assert not foreign


def test_the_core_takes_no_transcendental_function_from_math_or_numpy() -> None:
    calls = [
        f"{place(path, node)}: {node.value.id}.{node.attr}"
        for path in in_folders(COMPUTING)
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in {"math", "np", "numpy"}
        and node.attr in INEXACT
    ]
    taken = [
        f"{line}: {imported}"
        for path in in_folders(COMPUTING)
        for line, imported in imports(path)
        if imported.split(".")[0] in {"math", "numpy"} and imported.split(".")[-1] in INEXACT
    ]
    assert not calls + taken


def test_no_kernel_trades_exactness_or_order_for_speed() -> None:
    loose = [
        f"{place(path, node.value)}: {node.arg}"
        for path in in_folders(COMPUTING)
        for node in nodes(path)
        if isinstance(node, ast.keyword)
        and node.arg == "fastmath"
        and not (isinstance(node.value, ast.Constant) and node.value.value is False)
    ]
    assert not loose


def test_heavy_imports_have_one_home() -> None:
    strays = [
        f"{line}: {imported} belongs into {' or '.join(HOMES[imported.split('.')[0]])}"
        for path in MODULES
        for line, imported in imports(path)
        if imported.split(".")[0] in HOMES and not name(path).startswith(HOMES[imported.split(".")[0]])
    ]
    assert not strays


def literal_beginning(node: ast.expr) -> str:
    """Of a string, or of a string with values in it."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def test_no_module_is_imported_by_a_string_that_names_it() -> None:
    """What import-linter cannot see: `import_module("microsim.…")`."""
    importing = {"import_module", "__import__", "find_spec", "run_module", "resolve_name"}
    hidden = [
        place(path, node)
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in importing
        and any(literal_beginning(each).partition(".")[0] == "microsim" for each in node.args)
    ]
    assert not hidden


def test_a_part_imports_nothing_private_of_another_folder() -> None:
    strangers = [
        f"{line}: {imported}"
        for path in MODULES
        if name(path).startswith("parts/")
        for line, imported in imports(path)
        if imported.startswith("microsim.")
        and not imported.startswith(f"microsim.parts.{name(path).split('/')[1]}.")
        and any(word.startswith("_") and not word.startswith("__") for word in imported.split("."))
    ]
    assert not strangers


def test_of_the_core_parts_use_public_names_and_open_modules() -> None:
    known = {f"microsim.{name(path)[:-3].replace('/', '.')}".removesuffix(".__init__") for path in MODULES}
    folders = {folder: f"microsim.{folder}." if folder else "microsim." for folder in OPEN}
    allowed = {f"{folders[folder]}{module}" for folder, modules in OPEN.items() for module in modules.split()}
    used, closed = set(), []
    for path in MODULES:
        if not name(path).startswith("parts/"):
            continue
        for line, imported in imports(path):
            module = imported if imported in known else imported.rpartition(".")[0]
            if not module.startswith("microsim.") or module.startswith("microsim.parts"):
                continue
            used.add(module)
            if module not in allowed:
                closed.append(f"{line}: {imported}")
    assert not closed
    assert allowed - used == set(), "open, and used by no part"


def test_the_core_does_not_name_the_folder_of_a_part() -> None:
    """Not even in a string; a part names itself only."""
    parts = sorted(folder.name for folder in (PACKAGE / "parts").iterdir() if folder.is_dir() and folder.name[0] != "_")
    strangers = [
        place(path, node)
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for found in re.findall(r"microsim[./]parts[./](\w+)", node.value)
        if found in parts and not name(path).startswith(f"parts/{found}/")
    ]
    assert not strangers


def test_a_part_is_a_folder_with_tests_and_a_row_in_the_table_of_parts() -> None:
    page = (PACKAGE.parent / "docs" / "understand/architecture.md").read_text(encoding="utf-8")
    rows = dict(
        re.findall(r"^\| `(\w+)` \| (.+) \|$", page.partition("| Part | ")[2].partition("\n\n")[0], re.MULTILINE)
    )
    folders = {path.name: path for path in (PACKAGE / "parts").iterdir() if (path / "__init__.py").is_file()}
    assert sorted(rows) == sorted(folders)
    for part, row in rows.items():
        pages = re.findall(r"\]\(([./\w]+\.md)\)", row)
        assert pages, f"{part}: no page"
        assert all((PACKAGE.parent / "docs/understand" / each).is_file() for each in pages)
        assert list((PACKAGE.parent / "tests" / "parts" / part).glob("test_*.py")), f"{part}: no tests"


def test_what_catches_every_error_says_why() -> None:
    silent = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in MODULES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.match(r"\s*except( (Base)?Exception( as \w+)?)?:", line) and "  # " not in line
    ]
    assert silent == []


def test_a_run_without_lidar_and_mesh_starts_without_their_modules() -> None:
    run = "import sys, microsim; microsim.Simulation('default').step(2); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True).stdout.split()
    parts = {
        *(f"microsim.rays.{each}" for each in ("lidar_turn", "bvh", "ground_rays", "ground_packets")),
        "microsim.rays.screen_rays",
        "microsim.render.splat.rasteriser",
        "microsim.sensors._splat_camera",
    }
    assert all(find_spec(part) for part in parts), "a module was renamed"
    assert "microsim.simulation" in loaded
    assert not parts & set(loaded)
