"""`microsim interface`: what it shows of a type is that type, whatever type it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from rosbags.typesys import get_types_from_msg
from typer.testing import CliRunner

from microsim.cli import app
from microsim.errors import UsageError
from microsim.messages import from_mapping, new
from microsim.messages.mappings import to_plain
from microsim.messages.type_files import known_types
from microsim.messages.types import store_with


def run(*words: str, given: str | None = None) -> str:
    done = CliRunner().invoke(app, ["interface", *words], input=given, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_every_message_is_shown_as_it_is_defined() -> None:
    """Read back by rosbags: without the indented lines, the text is the definition."""
    names = [name for name in known_types() if name.split("/")[1] == "msg"]
    assert len(names) > 150
    for name in names:
        lines = [line for line in run("show", name).splitlines() if not line.startswith("\t")]
        if any(line.startswith("wstring") for line in lines):
            continue  # rosbags does not support them
        constants, fields = store_with(name).fielddefs[name]
        read = get_types_from_msg("\n".join(lines), name)[name]
        assert read[0] == constants, name
        assert read[1] == [each for each in fields if each[0] != "structure_needs_at_least_one_member"], name


def test_fields_of_fields_are_below_them() -> None:
    assert run("show", "geometry_msgs/msg/TwistStamped").splitlines()[:6] == [
        "std_msgs/Header header",
        "\tbuiltin_interfaces/Time stamp",
        "\t\tint32 sec",
        "\t\tuint32 nanosec",
        "\tstring frame_id",
        "Twist twist",
    ]
    assert run("show", "std_srvs/srv/SetBool") == "bool data\n---\nbool success\nstring message\n"
    assert run("show", "std_srvs/Empty") == "---\n"
    assert run("show", "-", given="geometry_msgs/msg/Point\n") == "float64 x\nfloat64 y\nfloat64 z\n"


def test_a_prototype_of_every_type_is_taken_as_values() -> None:
    parts = {"msg": "", "srv": "_Request", "action": "_Goal"}
    for name in known_types():
        kind = name + parts[name.split("/")[1]]
        text = run("proto", name, "--no-quotes")
        made = from_mapping(kind, yaml.safe_load(text) or {}, defaults=True)
        assert json.dumps(to_plain(made)) == json.dumps(to_plain(from_mapping(kind, {}, defaults=True))), name
    assert run("proto", "std_msgs/msg/Int8") == '"data: 0\n"\n'
    assert new("std_msgs/msg/Int8").data == 0


def test_types_are_listed_by_kind_and_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = run("list").splitlines()
    assert [line for line in listed if not line.startswith(" ")] == ["Messages:", "Services:", "Actions:"]
    assert [line.strip() for line in listed if line.startswith(" ")] == sorted(
        known_types(), key=lambda name: (["msg", "srv", "action"].index(name.split("/")[1]), name)
    )
    assert run("list", "-s").splitlines()[0] == "Services:"
    assert run("package", "std_srvs").split() == ["std_srvs/srv/Empty", "std_srvs/srv/SetBool", "std_srvs/srv/Trigger"]
    assert "std_srvs" not in run("packages", "--only-msgs").split()
    dock = tmp_path / "share" / "dock_msgs" / "srv"
    dock.mkdir(parents=True)
    (dock / "Dock.srv").write_text("int32 station # where\n---\nbool done\n")
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    assert run("package", "dock_msgs") == "dock_msgs/srv/Dock\n"
    assert run("show", "dock_msgs/srv/Dock") == "int32 station\n---\nbool done\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["show", "geometry_msgs/msg/Twits"], "did you mean 'geometry_msgs/msg/Twist'"),
        (["show", "Twist"], "did you mean 'geometry_msgs/msg/Twist'"),
        (["show", "geometry_msgs"], "is not the name of a type"),
        (["proto", "no_such_msgs/msg/Cell"], "unknown type 'no_such_msgs/msg/Cell'; name the folder that defines it"),
        (["package", "geometry_msg"], "unknown package 'geometry_msg'; did you mean 'geometry_msgs'"),
        (["show", "-"], "expected the name of a type on standard input"),
        (["show", "a/b/c/d"], "is not the name of a type"),
        (["show", "geometry_msgs/msg/Twist", "--types", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_mistakes_are_sentences(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        CliRunner().invoke(app, ["interface", *words], input="", catch_exceptions=False)
    assert sentence in str(refused.value)
