"""`wstring`: text on one side, units of UTF-16 in four bytes each on the other, as both vendors' rmw write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microsim import messages as wire
from microsim.messages.type_files import add_types
from microsim.recording.bag_model import definition

WIDE, MANY = "wide_msgs/msg/Wide", "wide_msgs/msg/Many"
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@pytest.fixture(autouse=True, scope="module")
def _types(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("types") / "wide_msgs" / "msg"
    folder.mkdir(parents=True)
    (folder / "Wide.msg").write_text("wstring data\n")
    parts = "uint8 before", "wstring[] texts", "wstring[2] two", "Wide inner", "Wide[] inners", "float64 behind"
    (folder / "Many.msg").write_text("\n".join(parts) + "\n")
    add_types(folder.parent)


@pytest.mark.parametrize(
    ("text", "expected"),  # written down from rclpy on rmw_cyclonedds_cpp and rmw_fastrtps_cpp
    [
        ("", "00 01 00 00 00 00 00 00"),
        ("a", "00 01 00 00 01 00 00 00 61 00 00 00"),
        ("h\u00e9\u00e9", "00 01 00 00 03 00 00 00 68 00 00 00 e9 00 00 00 e9 00 00 00"),
        ("a\U0001f600b", "00 01 00 00 04 00 00 00 61 00 00 00 3d d8 00 00 00 de 00 00 62 00 00 00"),
    ],
)
def test_the_bytes_are_those_of_ros2(text: str, expected: str) -> None:
    cdr = wire.encode(WIDE, wire.new(WIDE, data=text))
    assert cdr.hex(" ") == expected
    assert wire.decode_checked(WIDE, cdr).data == text


def test_the_type_hash_is_that_of_ros2(tmp_path: Path) -> None:
    (tmp_path / "example_interfaces" / "msg").mkdir(parents=True)
    path = tmp_path / "example_interfaces" / "msg" / "WString.msg"
    path.write_text("# comment\nwstring data\n")
    add_types(tmp_path / "example_interfaces")
    known = "RIHS01_32033e06d9dfe5468c5d6e1dc8b7a23c8910bad071cfd4e151a951d580e68dd8"
    assert wire.type_hash("example_interfaces/msg/WString") == known
    assert "wstring data" in definition("example_interfaces/msg/WString")[0]


@given(st.lists(TEXTS, max_size=4), TEXTS, TEXTS, st.lists(TEXTS, max_size=3), st.floats(allow_nan=False))
def test_texts_come_back_wherever_they_stand(
    texts: list[str], one: str, two: str, inners: list[str], behind: float
) -> None:
    values = {"texts": texts, "two": [one, two], "inner": {"data": two}, "inners": [{"data": each} for each in inners]}
    message = wire.from_mapping(MANY, {"before": 1, **values, "behind": behind})
    again = wire.decode_checked(MANY, wire.encode(MANY, message))
    assert (again.texts, list(again.two), again.inner.data) == (texts, [one, two], two)
    assert ([each.data for each in again.inners], again.before, again.behind) == (inners, 1, behind)
    assert wire.new(MANY).texts == []
    assert wire.new(MANY).two == ["", ""]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("05 00 00 00 61 00 00 00", "a wstring of 5 units in a message of 8 bytes"),
        ("01 00 00 00 61 00 01 00", "in place of a unit of UTF-16"),
        ("01 00 00 00 00 d8 00 00", "a wstring that is not UTF-16"),
        ("01 00 00", "too few"),
    ],
)
def test_bytes_that_are_no_text_are_refused(body: str, why: str) -> None:
    with pytest.raises(wire.WireError, match=why):
        wire.decode_checked(WIDE, bytes.fromhex("00 01 00 00" + body))
