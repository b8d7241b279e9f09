"""Damaged bags: a clear error or a repair, never a traceback and never a wrong "identical"."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from microsim.errors import MicroSimError
from microsim.recording.bag_io import open_bag
from microsim.recording.bag_model import BagChannel, BagError, FileInfo, information
from microsim.recording.bag_replay import Replay
from microsim.recording.compare import diff
from microsim.recording.maintenance import look, repair
from microsim.recording.mcap import McapWriter
from microsim.recording.mcap_reader import McapReader
from microsim.recording.verify import ReplayVerdict
from tests.recording_support import files_of, record

STORAGES = ("mcap", "zstd", "sqlite3")
FILES = {"mcap": "microsim_0.mcap", "zstd": "microsim_0.mcap", "sqlite3": "microsim_0.db3"}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("originals")
    kinds = {"mcap": {}, "zstd": {"compression": "zstd"}, "sqlite3": {"storage": "sqlite3"}}
    for name, options in kinds.items():
        record(folder / name, ticks=60, chunk_bytes=5_000, **options)
    return {name: folder / name for name in kinds}


@pytest.fixture
def copy(originals: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    count = 0

    def make(name: str) -> Path:
        nonlocal count
        count += 1
        return Path(shutil.copytree(originals[name], tmp_path / f"{name}_{count}"))

    return make


def verify(folder: Path) -> ReplayVerdict:
    with Replay(open_bag(folder)) as again:
        return again.verify()


def answer(work: Callable[[Path], Any], folder: Path) -> Any:
    """What it gives, or the words of its error, which must be one of ours."""
    try:
        return work(folder)
    except MicroSimError as error:
        return str(error)


def clear(error: MicroSimError, folder: Path) -> bool:
    """Names the bag, in words."""
    return str(folder) in str(error) and "Traceback" not in str(error) and len(str(error)) < 1000


@pytest.mark.parametrize("storage", STORAGES)
def test_whole_bags_are_identical(originals: dict[str, Path], storage: str) -> None:
    verdict = verify(originals[storage])
    assert verdict.is_identical
    assert str(verdict).startswith(f"identical: {verdict.messages:,} messages, digest {verdict.digest}")
    assert verdict.messages > 300


@pytest.mark.parametrize("storage", STORAGES)
def test_bags_cut_anywhere_are_refused_and_can_be_repaired(copy: Callable[[str], Path], storage: str) -> None:
    """At every fiftieth of their length."""
    saved = []
    for part in range(0, 50, 5 if storage == "zstd" else 1):
        folder = copy(storage)
        file = folder / FILES[storage]
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) * part // 50])
        with pytest.raises(BagError) as refusal:
            verify(folder)
        assert clear(refusal.value, folder), refusal.value
        repaired = answer(repair, folder)
        if isinstance(repaired, str):  # nothing is left to repair
            assert str(folder) in repaired
            assert part < 25 or storage == "sqlite3"  # whose pages are all over the file
            continue
        saved.append(repaired.messages)
        verdict = verify(folder)
        assert verdict.is_identical == bool(repaired.messages)
        assert verdict.is_cut or verdict.messages == 344  # only the index was lost
        shutil.rmtree(folder)
    assert saved == sorted(saved)
    if storage != "sqlite3":
        assert saved[-1] > 250


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_byte_is_never_called_identical(copy: Callable[[str], Path], storage: str, count: int) -> None:
    dice = random.Random(5)
    folder, undamaged = copy(storage), copy(storage)
    file = folder / FILES[storage]
    whole = file.read_bytes()
    places = dice.sample(range(len(whole)), count)
    places += [*range(min(count, 12)), *range(len(whole) - min(count, 40), len(whole))]
    outcomes = set()
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << dice.randrange(8)
        file.write_bytes(damaged)
        verdict = answer(verify, folder)
        if isinstance(verdict, str):
            assert str(folder) in verdict
            outcomes.add("refused")
            continue
        outcomes.add("identical" if verdict.is_identical else "different")
        if storage != "sqlite3":
            assert not verdict.is_identical, place
        else:  # unused space, and tables that only others read
            assert not verdict.is_identical or diff(open_bag(folder), open_bag(undamaged)).difference is None
        look(folder)
    assert "refused" in outcomes


@pytest.mark.parametrize("storage", STORAGES)
def test_flipped_bytes_do_not_stop_the_repair(copy: Callable[[str], Path], storage: str) -> None:
    dice = random.Random(6)
    for _ in range(15):
        folder = copy(storage)
        file = folder / FILES[storage]
        damaged = bytearray(file.read_bytes())
        damaged[dice.randrange(len(damaged))] ^= 0xFF
        file.write_bytes(damaged)
        mended = answer(repair, folder)
        found = mended if isinstance(mended, str) else answer(verify, folder)
        assert not isinstance(found, str) or str(folder) in found or "scenario" in found
        shutil.rmtree(folder)


@pytest.mark.parametrize("storage", STORAGES)
def test_missing_metadata_is_made_anew(copy: Callable[[str], Path], storage: str) -> None:
    folder = copy(storage)
    before = (folder / "metadata.yaml").read_bytes()
    (folder / "metadata.yaml").unlink()
    with pytest.raises(BagError, match=re.escape(f"there is no metadata.yaml; `microsim bag repair {folder}`")):
        verify(folder)
    assert repair(folder).damaged == ("metadata.yaml: it was missing",)
    assert (folder / "metadata.yaml").read_bytes() == before
    assert verify(folder).is_identical


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("version: 8", "version: 99", "version 99 of the format is unknown"),
        ("storage_identifier: mcap", "storage_identifier: tape", "unknown storage 'tape'"),
        ('"microsim_0.mcap"', '"../elsewhere.mcap"', "names no files in this folder"),
        ('"microsim_0.mcap"', '"microsim_7.mcap"', "is missing"),
        ("message_count: ", "message_count: 1", "says"),
        ("message_count: ", "message_count: a", "message_count is 'a.*'; expected a number"),
        ("microsim.seed", "microsim.sead", "another run"),
        ("rosbag2_bagfile_information", "something", "is missing"),
        (":", "\t{", "not rosbag2's metadata"),
    ],
)
def test_wrong_metadata_is_refused_with_the_reason(copy: Callable[[str], Path], old: str, new: str, words: str) -> None:
    folder = copy("mcap")
    path = folder / "metadata.yaml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(BagError, match=words) as refusal:
        verify(folder)
    assert clear(refusal.value, folder)
    assert repair(folder).damaged == ("metadata.yaml: it did not fit the files",)
    assert (folder / "metadata.yaml.damaged").exists()
    assert verify(folder).is_identical


def test_a_format_of_the_future_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microsim.recording.recorder.FORMAT", "2")
    record(tmp_path / "bag", ticks=5)
    with pytest.raises(BagError, match="in format 2; this version reads format 1"):
        open_bag(tmp_path / "bag")


def test_a_part_of_a_bag_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    from fractions import Fraction

    record(tmp_path / "bag", split_s=Fraction(1))
    with pytest.raises(BagError, match="a part of a bag"):
        open_bag(tmp_path / "bag" / "microsim_0.mcap")
    (tmp_path / "bag" / "microsim_1.mcap").unlink()
    with pytest.raises(BagError, match=r"microsim_1\.mcap of this bag is missing"):
        open_bag(tmp_path / "bag")


def test_other_files_are_not_bags(tmp_path: Path) -> None:
    (tmp_path / "text.mcap").write_text("hello, this is no bag at all")
    (tmp_path / "text.db3").write_text("hello, this is no bag at all")
    (tmp_path / "empty.mcap").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "metadata.yaml").touch()
    for path in (tmp_path / "metadata.yaml", tmp_path / "folder", Path("/dev/null")):
        with pytest.raises(BagError, match=": not a bag: "):
            open_bag(path)
    for name in ("text.mcap", "text.db3", "empty.mcap", "folder", "nothing"):
        with pytest.raises(BagError):
            open_bag(tmp_path / name)
        with pytest.raises(BagError):
            repair(tmp_path / name)


def test_info_shows_what_a_damaged_bag_still_holds(copy: Callable[[str], Path]) -> None:
    folder = copy("mcap")
    file = folder / FILES["mcap"]
    file.write_bytes(file.read_bytes()[:-100])
    found = look(folder)
    assert "repair" in found.problem
    assert found.messages > 300
    assert found.run_info["seed"] == "3"


# ---- folders whose files do not belong together ----------------------------------------------------------------------


@pytest.fixture(params=["mcap", "sqlite3"])
def in_parts(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, list[Path]]:
    """A bag of four files."""
    folder = tmp_path / "bag"
    record(folder, ticks=90, storage=request.param, split_s=Fraction(1, 2))
    files = sorted(path for path in folder.iterdir() if path.suffix in (".mcap", ".db3"))
    assert len(files) == 4
    return folder, files


def test_a_bag_that_lost_its_last_files_is_finished_where_it_ends(in_parts: tuple[Path, list[Path]]) -> None:
    folder, files = in_parts
    files[3].unlink()
    done = repair(folder)
    assert [damage.split(": ")[0] for damage in done.damaged] == [files[2].name, "metadata.yaml"]
    found = verify(folder)
    assert found.is_identical
    assert found.is_cut
    assert repair(folder).damaged == ()


def test_a_bag_with_a_gap_cannot_be_repaired_and_is_left_alone(in_parts: tuple[Path, list[Path]]) -> None:
    folder, files = in_parts
    files[1].unlink()
    before = files_of(folder)
    with pytest.raises(BagError, match=rf"{files[1].name} is missing: the files after it cannot be kept"):
        repair(folder)
    assert files_of(folder) == before


def test_a_file_of_another_run_cannot_be_repaired_away(in_parts: tuple[Path, list[Path]], tmp_path: Path) -> None:
    folder, files = in_parts
    kind = "mcap" if files[0].suffix == ".mcap" else "sqlite3"
    record(tmp_path / "other", ticks=90, seed=8, storage=kind, split_s=Fraction(1, 2))
    shutil.copy(tmp_path / "other" / files[1].name, files[1])
    with pytest.raises(BagError, match=f"{files[1].name}: from another run than {files[0].name}"):
        repair(folder)


def test_exchanged_files_are_noticed(in_parts: tuple[Path, list[Path]], tmp_path: Path) -> None:
    folder, files = in_parts
    for old, new in ((files[0], tmp_path / "x"), (files[1], files[0]), (tmp_path / "x", files[1])):
        old.rename(new)
    with pytest.raises(BagError, match="files are in the wrong order"):
        repair(folder)
    with pytest.raises(BagError, match="files are in the wrong order"):
        for _ in open_bag(folder).blocks():
            pass


def test_a_file_damaged_in_the_middle_of_a_bag_stays_as_it_is(tmp_path: Path) -> None:
    record(tmp_path, ticks=90, split_s=Fraction(1, 2))
    file = tmp_path / "microsim_1.mcap"
    file.write_bytes(file.read_bytes()[:5000])
    before = files_of(tmp_path)
    with pytest.raises(BagError, match="damaged in the middle of the bag"):
        repair(tmp_path)
    assert files_of(tmp_path) == before


def test_a_repair_without_room_says_so_and_leaves_no_half_file(
    copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy("mcap")
    before = files_of(folder)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("microsim.recording.mcap.McapWriter.write", full)
    with pytest.raises(BagError, match="cannot be repaired: No space left on device"):
        repair(folder)
    assert files_of(folder) == before


def test_a_recording_of_which_nothing_is_left_is_not_called_identical(tmp_path: Path) -> None:
    record(tmp_path, ticks=30)
    file = tmp_path / "microsim_0.mcap"
    at = file.read_bytes().index(b"\x06", 4000)  # in the first chunk or before it: no chunk is whole
    file.write_bytes(file.read_bytes()[: at + 3000])
    assert repair(tmp_path).messages == 0
    found = verify(tmp_path)
    assert not found.is_identical
    assert "there is nothing to compare" in str(found)


def test_a_bag_of_others_is_not_repaired_by_us(tmp_path: Path) -> None:
    from rosbags.rosbag2 import StoragePlugin, Writer

    Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP).open()
    with Writer(tmp_path / "whole", version=9, storage_plugin=StoragePlugin.MCAP):
        pass
    with pytest.raises(BagError, match="use `ros2 bag reindex`"):
        repair(tmp_path / "whole")


# ---- tampering that leaves every message as it was -------------------------------------------------------------------

_TAMPERED_TABLES = [
    ("UPDATE topics SET offered_qos_profiles = 'none' WHERE id = 2", "table topics, row 2, offered_qos_profiles.*none"),
    ("UPDATE topics SET type_description_hash = 'RIHS01_0' WHERE id = 3", "table topics, row 3, type_description_hash"),
    ("UPDATE topics SET serialization_format = 'json' WHERE id = 1", "table topics, row 1, serialization_format"),
    ("UPDATE message_definitions SET encoded_message_definition = 'x' WHERE id = 1", "encoded_message_definition"),
    (
        "UPDATE message_definitions SET type_description_hash = 'x' WHERE id = 2",
        "row .*, type_description_hash: recorded .x., expected",
    ),
    ("UPDATE metadata SET metadata = 'version: 7'", "table metadata, row 1, metadata.*version: 7"),
    ("UPDATE schema SET ros_distro = 'jazzy'", "ros_distro: recorded 'jazzy', expected 'microsim'"),
    ("INSERT INTO topics SELECT 99, '/new', type, 'cdr', '', '' FROM topics LIMIT 1", "table topics, row"),
    ("INSERT INTO microsim VALUES('more', 'key', 'value')", "table microsim, row"),
    ("CREATE TABLE notes(text TEXT)", "table notes: recorded 'CREATE TABLE notes.*, expected None"),
    ("DROP INDEX timestamp_idx", "index timestamp_idx: recorded None, expected 'CREATE INDEX"),
    ("CREATE TRIGGER t AFTER INSERT ON messages BEGIN SELECT 1; END", "trigger t: recorded 'CREATE TRIGGER"),
    ("PRAGMA user_version = 3", r"user_version: recorded \(3,\), expected \(0,\)"),
]


def test_a_type_that_nobody_knows_cannot_be_repaired(copy: Callable[[str], Path]) -> None:
    folder = copy("sqlite3")
    database = sqlite3.connect(folder / FILES["sqlite3"])
    with database:
        database.execute("UPDATE topics SET type = 'nav_msgs/msg/Odometri' WHERE name = '/drone/odom'")
        database.execute("DELETE FROM microsim WHERE place = 'end'")  # so that there is something to repair
    database.close()
    with pytest.raises(BagError, match=r"db3 cannot be repaired: .* /drone/odom has the unknown type '.*/Odometri'"):
        repair(folder)


@pytest.mark.parametrize(("statement", "words"), _TAMPERED_TABLES)
def test_a_changed_table_is_reported_with_where_and_what(
    copy: Callable[[str], Path], statement: str, words: str
) -> None:
    folder = copy("sqlite3")
    file = folder / FILES["sqlite3"]
    database = sqlite3.connect(file)
    with database:
        database.execute(statement)
    database.close()
    found = verify(folder)
    assert not found.is_identical
    assert re.search(rf"^different: {file}: .*{words}", str(found)), found


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('name: "/drone/odom"', 'name: "/drone/odo"'),
        ('type: "nav_msgs/msg/Odometry"', 'type: "std_msgs/msg/String"'),
        ("reliability: 1", "reliability: 2"),
        ("RIHS01_", "RIHS01_0"),
        ("    message_count: ", "    message_count: 9"),
        ("ros_distro: jazzy", "ros_distro: humble"),
        ("      nanoseconds: ", "      nanoseconds: 1"),
        ("ros_distro: jazzy", "ros_distro: jazzy\n  more: 1"),
    ],
)
def test_changed_metadata_is_reported_with_where_and_what(
    copy: Callable[[str], Path], storage: str, old: str, new: str
) -> None:
    folder = copy(storage)
    path = folder / "metadata.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    line = text[: text.index(old)].count("\n") + 1
    found = verify(folder)
    assert not found.is_identical
    assert re.search(rf"^different: {path}: line {line + new.count(chr(10))}\b.*: recorded .*, expected ", str(found))


class _Bragging(McapWriter):
    """Writes another quality of service, type hash, definition or metadata record; all checksums are right."""

    change = ("", "")

    def _declaration(self, channel: BagChannel) -> bytes:
        raw = super()._declaration(channel)
        old, new = (text.encode() for text in self.change)
        assert len(old) == len(new)
        return raw.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("reliability: 1", "reliability: 2", r"chunk, channel \d+ \(/\S+\), offered_qos_profiles.*reliability: 2"),
        ("RIHS01_", "RIHS02_", r"chunk, channel 1 \(/clock\), topic_type_hash: recorded 'RIHS02_"),
        ("float64", "float46", r"chunk, definition of \w+/msg/\w+"),
    ],
)
@pytest.mark.parametrize("storage", ["mcap", "zstd"])
def test_a_changed_declaration_in_an_mcap_file_is_reported_with_where_and_what(
    copy: Callable[[str], Path], storage: str, old: str, new: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy(storage)
    monkeypatch.setattr(_Bragging, "change", (old, new))
    reader = McapReader((folder / FILES[storage]).rename(folder / "old"))
    writer = _Bragging(folder / FILES[storage], reader.run_info, "zstd" if storage == "zstd" else "")
    for block in reader.blocks():
        writer.write(block)
    facts = FileInfo(FILES[storage], writer.times, writer.counts)
    writer.close(reader.run_info.end, lambda: information("mcap", [facts], {}))
    found = verify(folder)
    assert not found.is_identical
    assert re.search(rf"^different: {folder / FILES[storage]}: {words}", str(found)), found


def test_a_metadata_record_too_many_is_reported(copy: Callable[[str], Path]) -> None:
    folder = copy("mcap")
    reader = McapReader((folder / FILES["mcap"]).rename(folder / "old"))
    writer = McapWriter(folder / FILES["mcap"], reader.run_info)
    writer._put_metadata("more", {"key": "value"})
    for block in reader.blocks():
        writer.write(block)
    facts = FileInfo(FILES["mcap"], writer.times, writer.counts)
    writer.close(reader.run_info.end, lambda: information("mcap", [facts], {}))
    assert "metadata more, key: recorded 'value', expected None" in str(verify(folder))


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_cut_recording_is_compared_to_its_last_byte_too(copy: Callable[[str], Path], storage: str) -> None:
    folder = copy(storage)
    if storage == "mcap":
        file = folder / FILES[storage]
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        with sqlite3.connect(folder / FILES[storage]) as database:
            database.execute("DELETE FROM microsim WHERE place = 'end'")
    assert repair(folder).messages
    found = verify(folder)
    assert found.is_identical
    assert found.is_cut
    path = folder / "metadata.yaml"
    path.write_text(path.read_text().replace('name: "/drone/odom"', 'name: "/drone/odo"', 1))
    assert not verify(folder).is_identical
