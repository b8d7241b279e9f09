"""What the documentation shows is run: Python and `microsim` blocks in order, YAML loaded, names and tables complete.

In a page, a block with a caption is a file of that name. A `sh` block of one command with `&` at its end runs in the
background. A `text` block after a `python` block is what it prints; in a
`console` block the lines after `$ microsim …` are. There `…` stands for anything. Digests and tokens are compared too,
and may be nowhere else.
"""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

import microsim
from tests.cli_support import ROOT, run_microsim
from tests.forked_python import forked_python
from tests.pages import DOCS, PAGES, ROOMS
from tests.ros_domains import free_domain

sys.path.append(str(DOCS / "ext"))

import reference

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```\s*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    place: str
    language: str
    caption: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """Those that were written by hand."""
    content = reference.GENERATED.sub(lambda part: "\n" * part[0].count("\n"), page.read_text(encoding="utf-8"))
    for found in FENCE.finditer(content):
        language = found["info"].removeprefix("{code-block}").strip()
        options = re.match(r"(?::[^\n]*\n)*", found["body"])
        assert options is not None
        caption = re.search(r":caption: (.+)", options[0])
        line = content.count("\n", 0, found.start()) + 1
        body = found["body"][options.end() :].lstrip("\n")
        yield Block(f"{page.name}:{line}", language, caption[1] if caption else "", body)


def assert_prints(expected: str, printed: str, place: str) -> None:
    parts = [re.escape(part) for part in _stripped(expected).split("…")]
    assert re.fullmatch("(?s)" + ".*".join(parts), _stripped(printed)), f"{place} prints:\n{printed}"


def _stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def compared(page: Path) -> str:
    """The text of a page's blocks that `run_page` compares with what is printed, or runs."""
    found, before = [], ""
    for block in blocks(page):
        if block.language == "console" or (block.language == "text" and before == "python"):
            found.append(block.text)
        before = "" if block.caption else block.language
    return "".join(found)


def run_page(page: Path) -> None:
    """Every block of a page in order, in the current folder."""
    background: list[subprocess.Popen[bytes]] = []
    try:
        _run_blocks(page, background)
    finally:
        for process in background:
            process.terminate()
            process.wait(120)


def _run_blocks(page: Path, background: list[subprocess.Popen[bytes]]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    printed = None
    for block in blocks(page):
        before, printed = printed, None
        if block.caption:
            Path(block.caption).parent.mkdir(parents=True, exist_ok=True)
            Path(block.caption).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            output = io.StringIO()
            code = compile(block.text, block.place, "exec")
            # in a thread: a browser in this process may keep the main thread's event loop
            with contextlib.redirect_stdout(output), ThreadPoolExecutor(1) as pool:
                pool.submit(exec, code, names).result()
            printed = output.getvalue()
        elif block.language == "text" and before is not None:
            assert_prints(block.text, before, block.place)
        elif block.language == "console":
            run_console(block)
        elif block.language == "sh" and re.fullmatch(r"microsim .* &\n", block.text):
            background.append(started(block.text.removesuffix(" &\n")))


def started(command: str) -> subprocess.Popen[bytes]:
    """A node in the background, once its topics are there."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words, quiet = [*forked_python(environment), "-m", *shlex.split(command)], subprocess.DEVNULL
    process = subprocess.Popen(words, env=environment, stdout=quiet, stderr=quiet)
    with microsim.connect() as node:
        node.subscribe("/clock", type="rosgraph_msgs/msg/Clock").get(120.0)
    return process


def run_console(block: Block) -> None:
    for command, expected in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n?)*)", block.text, re.MULTILINE):
        words = shlex.split(command, comments=True)
        assert words[0] == "microsim", f"{block.place}: only `microsim` commands belong into a console block"
        where = {"cwd": Path.cwd(), "ROS_DOMAIN_ID": os.environ["ROS_DOMAIN_ID"]}
        done = run_microsim(*words[1:], NO_COLOR="1", COLUMNS="400", **where)
        progress = r"\d[\d,]* of [\d,]+ runs, .*\n"  # shown only if it takes a while
        output = done.stdout + re.sub(progress, "", done.stderr)
        if expected.strip():
            assert_prints(expected, output, block.place)
        else:
            assert done.returncode == 0, f"{block.place}: {command}\n{output}"


@pytest.fixture(autouse=True)
def own_network(monkeypatch):
    """Nodes of a page meet no others."""
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    with free_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        yield


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", DOCS / "learn/tutorial.md", DOCS / "learn/tutorial_world.md"],
    ids=lambda page: page.name,
)
def test_a_reader_gets_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if not page.name.startswith("tutorial")], ids=lambda page: page.name
)
def test_python_on_the_other_pages_runs_too(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if any(block.language == "python" for block in blocks(page)):
        run_page(page)


DIGEST_OR_TOKEN = re.compile(r"\b[0-9a-f]{64}\b|\bmicrosim-\d[^\s:]*:scenario=\S+")


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_digests_and_tokens_are_only_where_they_are_compared(page):
    """A page is run if it has Python: see above. So none of them becomes stale unnoticed."""
    found = DIGEST_OR_TOKEN.findall(page.read_text(encoding="utf-8"))
    assert not found or page.name == "README.md" or any(block.language == "python" for block in blocks(page))
    assert [each for each in found if each not in compared(page)] == []


def test_shortened_digests_are_those_of_golden_runs():
    golden = json.loads((ROOT / "tests/golden/digests.json").read_text(encoding="utf-8"))
    rows, shortened = 0, re.compile(r"^(\w+) +(\w+) .*?\b([0-9a-f]{16})\b", re.MULTILINE)
    for page in [ROOT / "README.md", *PAGES]:
        text = page.read_text(encoding="utf-8")
        for scenario, mission, digest in shortened.findall(text):
            assert golden[f"{mission}_in_{scenario}"].startswith(digest), (page.name, scenario, mission)
            rows += 1
        others = re.findall(r"(?<!@)\b(?=[0-9]*[a-f])[0-9a-f]{16}\b", shortened.sub("", text))
        assert others == [], page.name
    assert rows == 2


def test_a_stale_digest_or_token_fails():
    shown = f"default, seed 1\n  wall time … s\n{'ab' * 32}\n"
    assert_prints(shown, f"default, seed 1\n  wall time 0.3 s\n{'ab' * 32}\n", "here")
    with pytest.raises(AssertionError, match="here prints"):
        assert_prints(shown, f"default, seed 1\n  wall time 0.3 s\n{'ba' * 32}\n", "here")
    token = "microsim-0.1.0:scenario=maze@cc01a4efe0da8426:seed=0:check=c81ca538"
    with pytest.raises(AssertionError, match="here prints"):
        assert_prints(f"found: {token}", f"found: {token[:-1]}9", "here")


def test_every_yaml_block_of_the_scenario_page_is_a_scenario():
    from microsim.documents.yaml_text import read_yaml

    for block in blocks(DOCS / "lookup/scenario.md"):
        if block.language == "yaml":
            microsim.load_scenario(read_yaml(block.text, block.place).data)


def test_generated_parts_of_pages_are_current():
    made, found = reference.tables(), []
    for page in reference.files():
        text = page.read_text(encoding="utf-8")
        assert text == reference.current(text, made), f"{page.name}: run `.venv/bin/python docs/make_reference.py`"
        found += [each["name"] for each in reference.GENERATED.finditer(text)]
    missing = sorted({*made} - {*found})
    assert not missing, f"add <!-- generated: NAME --> and <!-- end --> to a page of docs/ for: {missing}"
    assert sorted(name for name in found if not name.startswith("file ")) == sorted(made)


def test_every_key_of_every_block_is_explained():
    for name, block in reference.scenario_blocks().items():
        text = reference.block_table(name, block)
        for key, schema in block["properties"].items():
            assert key == "class_id" or f"| `{key}` |" in text
            assert schema.get("description"), f"{name}.{key} has no description"


HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    return {reference.anchor(title) for title in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))}


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CHANGELOG.md", *PAGES], ids=lambda page: page.name)
def test_every_link_to_a_heading_has_a_target(page):
    """As a forge and Sphinx make anchors."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    assert not re.search(r"^\([\w-]+\)=$", text, re.MULTILINE), "a forge shows the target as text"
    missing = [
        f"{file}#{target}"
        for file, target in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text)
        if target not in anchors((page.parent / file).resolve() if file else page)
    ]
    assert missing == []


def test_every_attribute_of_a_simulation_is_in_the_python_reference():
    page = (DOCS / "lookup/python_api.md").read_text(encoding="utf-8")
    assert ".. autoclass:: microsim.Simulation\n   :members:\n   :undoc-members:" in page
    attributes = [name for name in vars(microsim.Simulation({})) if not name.startswith("_")]
    assert not [name for name in attributes if f"| `{name}` |" not in page]
    documented = re.findall(r"^\| `(\w+)(?:\(\.\.\.\))?` \| (?!`)", page.partition("More attributes")[2], re.M)
    listed = documented[: documented.index("on_tick") + 1]
    assert len(listed) >= 9
    assert not [name for name in listed if not hasattr(microsim.Simulation({}), name)]


def test_everything_a_plug_in_sensor_gets_is_explained():
    from microsim.sensors.sensor import SensorContext

    page = (DOCS / "do/plugins.md").read_text(encoding="utf-8")
    inside = {"worlds", "key", "now", "shared", "with_settings"}  # what the others are made from
    inside |= {"bundle", "bundle_key", "odom_frame", "base_frame", "splats_of_others"}  # of use to built-in sensors
    names = {*SensorContext.__dataclass_fields__, *vars(SensorContext)} - inside
    assert not [name for name in names if not name.startswith("_") and f"`{name}" not in page]


WITHOUT_EXAMPLE = {"architecture", "comparison", "decisions", "reliability", "which_tool"}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.stem not in WITHOUT_EXAMPLE and page.parent.name != "maintain"],
    ids=lambda page: page.stem,
)
def test_a_page_begins_with_what_the_reader_can_do_and_an_example(page):
    text = re.sub(r"```\{warning\}.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    title, purpose = text.split("\n", 2)[0], text.split("\n\n", 2)[1]
    assert title.startswith("# ")
    assert re.match(r"[A-Z]\w* ", purpose), "a sentence, not a heading, a table or code"
    assert text[: text.index("```")].count("\n## ") <= 1, "the first example comes before the second heading"


def test_every_page_is_in_the_table_of_contents():
    listed = {folder / name for folder in (DOCS, DOCS / "maintain") for name in toctree(folder / "index.md")}
    assert sorted(listed) == sorted(page.with_suffix("") for page in PAGES[1:])


def toctree(page: Path) -> list[str]:
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]


def test_every_page_is_in_a_room():
    everywhere = {page for page in DOCS.rglob("*.md") if not {"_build", "results"} & {*page.parts}}
    assert sorted(everywhere) == sorted(PAGES)
    assert {page.parent.name for page in PAGES[1:]} == {*ROOMS}


def test_every_link_has_a_text():
    """Sphinx would add the title of the page; a forge shows nothing."""
    pages = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
    assert [page.name for page in pages if "[](" in page.read_text(encoding="utf-8")] == []


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *PAGES]:
        for target in re.findall(r"\]\(([^)#\s]+?)(?:#[^)]*)?\)", FENCE.sub("", page.read_text(encoding="utf-8"))):
            if not re.match(r"[a-z]+:", target):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_commands_of_the_readme_are_in_the_makefile():
    readme, makefile = (ROOT / "README.md").read_text("utf-8"), (ROOT / "Makefile").read_text("utf-8")
    shell = next(block.text for block in blocks(ROOT / "README.md") if block.language == "sh")
    assert [line.split("#")[0].strip() for line in shell.strip().splitlines()] == ["make demo", "make run", "make test"]
    for target in re.findall(r"`make ([a-z0-9]+)", readme):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"


def test_pip_is_never_told_to_take_the_package_of_that_name_from_pypi():
    """It is an unrelated project's."""
    pages = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
    lines = [(page.name, line) for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    assert [each for each in lines if re.search(r"pip install '?microsim\b(?!-ros2)", each[1])] == []


def test_rows_of_batches_have_the_numbers_that_the_page_lists():
    from microsim.sensors import ahrs, gps, imu, odometry, range, scan

    rows = dict(
        re.findall(r"^\| `(\w+)` \| (.+?) \|$", (DOCS / "do/batch.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    names = {name: " ".join(re.findall(r"`([^`]+)`", row)).split() for name, row in rows.items()}
    names["ahrs"] = names["imu"] + names["ahrs"][1:]  # "as `imu`, then …"
    for part in (ahrs, gps, imu, odometry, range, scan):
        assert names[part.SENSOR.name] == list(part.SENSOR.reading)


def test_every_extra_is_explained():
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    extras = re.findall(
        r'^        "([a-z-]+)": ', setup.partition("extras_require")[2].partition("entry_points")[0], re.M
    )
    page = (DOCS / "learn/install.md").read_text(encoding="utf-8").partition("## Extras")[2]
    assert len(extras) > 5
    assert [extra for extra in extras if f"`{extra}`" not in page] == []


def test_every_part_of_the_package_is_in_the_folder_table():
    table = (DOCS / "understand/architecture.md").read_text(encoding="utf-8").partition("## Folder by folder")[2]
    parts = [path for path in (ROOT / "microsim").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = [path.name if path.is_file() else f"{path.name}/" for path in parts if not path.name.startswith("__")]
    assert [name for name in names if f"`{name}`" not in table and f"`microsim/{name}`" not in table] == []


def test_the_tests_that_show_a_promise_are_there():
    named = re.findall(r"`(\w+/test_\w+\.py)`", (DOCS / "understand/reliability.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    folders = [ROOT / at for at in ("tests/unit", "tests/parts", "tests")]
    assert [name for name in named if not any((folder / name).is_file() for folder in folders)] == []


def test_a_decision_is_a_short_record_that_names_only_what_is_there():
    page = (DOCS / "understand/decisions.md").read_text(encoding="utf-8")
    records = [each for each in re.split(r"\n(?=\*\*|## )", page) if each.startswith("**")]
    assert len(records) > 100
    assert [each.split("**")[1] for each in records if len(each.split()) > 90] == []
    paths = re.findall(r"`((?:\w+/)+\w+\.py|(?:parts|engine|outputs|messages|cli|render)/[\w/]+)`", page)
    assert [path for path in paths if not any((root / path).exists() for root in (ROOT, ROOT / "microsim"))] == []


def test_the_layers_are_written_down_as_they_are_checked():
    layers = re.search(r"^layers = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    assert layers is not None
    checked = [re.sub(r"[()]", "", row).replace(" : ", ", ") for row in re.findall(r'"(.*?)"', layers[1])]
    written = re.findall(r"^    ([a-z0-9_|, ]+)$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M)
    assert written == checked


def test_every_field_of_the_json_that_scripts_read_is_on_the_page_of_the_command_line(tmp_path):
    from microsim.recording.compare import BagComparison, BagEntry, Difference, StreamPlace
    from microsim.recording.maintenance import look
    from microsim.recording.recorder import Recorder
    from microsim.recording.verify import ReplayVerdict

    sim = microsim.Simulation("flat")
    with Recorder(tmp_path / "bag", sim):
        sim.step(2)
    info = look(tmp_path / "bag").to_dict()
    places = [
        StreamPlace(None, BagEntry("/t", "std_msgs/msg/Bool", 0, bytes([0, 1, 0, 0, value])), None) for value in (0, 1)
    ]
    difference = Difference(0, *places)
    found = [ReplayVerdict(0, 0, "").to_dict(), BagComparison(0, None, ()).to_dict(), difference.to_dict(), info]
    found += [next(iter(info["topics"].values()))]
    page = (DOCS / "lookup/command_line.md").read_text(encoding="utf-8")
    assert {field for each in found for field in each if f"`{field}`" not in page} == set()
