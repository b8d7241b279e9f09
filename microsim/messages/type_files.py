"""Message types from folders that a user names: .msg, .srv, .action and .idl files, as ROS 2 packages hold them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from rosbags.interfaces import Nodetype
from rosbags.typesys import get_types_from_idl, get_types_from_msg
from rosbags.typesys.base import TypesysError

from microsim.errors import UsageError, did_you_mean
from microsim.messages import checked, types

KINDS = {".msg": "msg", ".srv": "srv", ".action": "action", ".idl": "idl"}
MOST_FILES = 20_000
LARGEST_FILE = 1_000_000  # [byte]
OTHER_STORES = ("lyrical", "kilted", "humble", "foxy", "dashing")  # of rosbags, for types that Jazzy does not have

_SEPARATOR = re.compile(r"^---[ \t]*$", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include.*$", re.MULTILINE)
_TYPE_NAME = re.compile(r"[A-Za-z]\w*/(msg|srv|action)/[A-Za-z]\w*", re.ASCII)


def add_types(folder: str | Path) -> list[str]:
    """Add every type of a folder and its subfolders; gives their names. They replace types of the same name."""
    root = Path(folder).expanduser()
    if not root.exists():
        raise UsageError(f"types: {folder}: no such folder or file")
    files = [root] if root.is_file() else list(islice(_files(root), MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise UsageError(f"types: {folder}: more than {MOST_FILES:,} definitions; name the folders of the packages")
    if not files:
        raise UsageError(f"types: {folder}: contains no {', '.join(KINDS)} file")
    found: dict[str, Any] = {}
    for path in sorted(
        files, key=lambda path: (path.suffix != ".idl", path)
    ):  # an .idl of a .msg comes first: it loses
        found |= _read(path)
    _register(found, str(folder))
    return sorted(found)


def add_definition(type_name: str, text: str, is_idl: bool = False) -> None:
    """Add a type from its definition with all that it needs, as bags contain it. Types that are known stay."""
    if types.is_known(type_name):
        return
    found = _parsed(type_name, text, is_idl)
    _register({name: definition for name, definition in found.items() if not types.is_known(name)}, type_name)


def defined_otherwise(type_name: str, text: str, is_idl: bool = False) -> list[str]:
    """Types that this definition, or what it needs, gives other fields than the types that are known."""
    found = _parsed(type_name, text, is_idl)
    return [name for name, (_, fields) in found.items() if types.is_known(name) and types.fields_of(name) != fields]


def _parsed(type_name: str, text: str, is_idl: bool) -> dict[str, Any]:
    try:
        parsed = get_types_from_idl(_INCLUDE.sub("", text)) if is_idl else get_types_from_msg(text, type_name)
    except (TypesysError, ValueError, KeyError, RecursionError) as error:
        raise UsageError(
            f"the definition of {type_name} cannot be read: {' '.join(str(error).split())[-80:]}"
        ) from error
    return {_plain(name): _tidy(definition) for name, definition in parsed.items()}


def find_type(type_name: str) -> bool:
    """Whether the type is there, or could be found: in other versions of ROS 2, or an installed ROS 2."""
    if types.is_known(type_name) or types.is_known(f"{type_name}_Request") or types.is_known(f"{type_name}_Goal"):
        return True
    return _is_found(type_name)


@cache
def _is_found(type_name: str) -> bool:
    for name in OTHER_STORES:
        fields = import_module(f"rosbags.typesys.stores.ros2_{name}").FIELDDEFS
        if type_name in fields:
            _register(_with_parts(type_name, fields), f"rosbags' types of {name}")
            return True
    package = type_name.partition("/")[0]
    if _TYPE_NAME.fullmatch(type_name):
        for prefix in filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)):
            folder = Path(prefix, "share", package)
            if folder.is_dir() and next(_files(folder), None) is not None:
                return any(each.startswith(type_name) for each in _readable_types(folder, type_name))
    return False


def _readable_types(folder: Path, wanted: str) -> list[str]:
    """Add the types of an installed package that can be read. Others are left out, unless it is the wanted one."""
    found: dict[str, Any] = {}
    for path in sorted(_files(folder), key=lambda path: (path.suffix != ".idl", path)):
        try:
            found |= _read(path)
        except UsageError:
            if path.stem == wanted.rpartition("/")[2]:
                raise
    while lacking := {name: part for name in found for part in _named(found[name]) if not _is_there(part, found)}:
        for name, part in lacking.items():
            if name.startswith(wanted):
                raise UsageError(f"types: {folder}: {name} needs {part}: {_why_missing(part)}")
            del found[name]
    _register(found, str(folder))
    return sorted(found)


def _is_there(part: str, found: Mapping[str, Any]) -> bool:
    return part in found or types.is_known(part)


def _why_missing(part: str) -> str:
    return f"{part} is not defined"


def known_types() -> list[str]:
    """Names as users write them: services and actions once, without their parts."""
    names = types.store_with("").fielddefs
    parts = re.compile(r"_(Request|Response|Event|Goal|Result|Feedback|FeedbackMessage|SendGoal_\w+|GetResult_\w+)$")
    return sorted({name if "/msg/" in name else parts.sub("", name) for name in names})


def installed_types() -> list[str]:
    """Names of the types of an installed ROS 2, by the names of their files; they are read when they are needed."""
    prefixes = filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep))
    folders = [Path(prefix, "share") for prefix in prefixes]
    found = {f"{path.parts[-3]}/{path.parts[-2]}/{path.stem}" for each in folders for path in each.glob("*/*/*.*")}
    return sorted(name for name in found if _TYPE_NAME.fullmatch(name))


def event_type(service_type: str) -> str:
    """The type of what a service publishes about its calls, where introspection is on."""
    name = f"{service_type}_Event"
    if not types.is_known(name):
        info = (Nodetype.NAME, "service_msgs/msg/ServiceEventInfo")
        parts = [(part, (Nodetype.NAME, f"{service_type}_{part.capitalize()}")) for part in ("request", "response")]
        fields = [("info", info), *((part, (Nodetype.SEQUENCE, (kind, 1))) for part, kind in parts)]
        _register({name: ([], fields)}, service_type)
    return name


def no_type(type_name: str) -> UsageError:
    """The error about a type that is not known."""
    known, package, leaf = known_types(), type_name.partition("/")[0], type_name.rpartition("/")[2]
    if _TYPE_NAME.fullmatch(type_name) is None:
        same = [name for name in known if name.rpartition("/")[2].lower() == leaf.lower()]
        hint = f"did you mean {same[0]!r}?" if same else "expected one such as geometry_msgs/msg/Twist"
        return UsageError(f"{type_name!r} is not the name of a type; {hint}")
    leaves = {name.rpartition("/")[2]: name for name in known if name.startswith(f"{package}/")}
    if not leaves:
        return UsageError(f"unknown type {type_name!r}; name the folder that defines it with --types")
    guess = did_you_mean(type_name, leaves.values())
    return UsageError(f"unknown type {type_name!r}{guess or ';'} {package} has: {', '.join(leaves)}")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix in KINDS and path.is_file())


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise UsageError(f"types: {path}: larger than {LARGEST_FILE:,} bytes")
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".idl":
            parsed = get_types_from_idl(_INCLUDE.sub("", text))
            return {_plain(name): _tidy(definition) for name, definition in parsed.items()}
        return {name: _tidy(_from_msg(name, part)) for name, part in _texts(path, text).items()}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"types: {path}: {getattr(error, 'strerror', None) or 'not a text file'}") from error
    except (TypesysError, ValueError, KeyError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        reason = " ".join(str(error).split())[-80:]
        raise UsageError(f"types: {path}: not a valid {path.suffix} file: … {reason}") from error


def _from_msg(name: str, text: str) -> Any:
    """Read as a message, also the parts of services: they name messages of their package without it."""
    as_message = re.sub("/(srv|action)/", "/msg/", name)
    return get_types_from_msg(text, as_message)[as_message]


def _plain(name: str) -> str:
    """rosbags files what belongs to services and actions under pkg/srv/msg/."""
    return name.replace("/srv/msg/", "/srv/").replace("/action/msg/", "/action/")


def _tidy(definition: Any) -> Any:
    """With our names, and the member that IDL adds to an empty struct."""
    constants, fields = definition
    renamed = [(name, _renamed(kind)) for name, kind in fields]
    return constants, renamed or [("structure_needs_at_least_one_member", (Nodetype.BASE, ("uint8", 0)))]


def _renamed(kind: Any) -> Any:
    node, detail = kind
    if node == Nodetype.NAME and detail.endswith("/msg/wstring"):  # rosbags knows it in .idl files only
        return Nodetype.BASE, ("wstring", 0)
    if node in (Nodetype.NAME, Nodetype.BASE):
        return (node, _plain(detail)) if node == Nodetype.NAME else kind
    return node, (_renamed(detail[0]), detail[1])


def _texts(path: Path, text: str) -> dict[str, str]:
    """Names of types, and their definitions."""
    path, kind = path.resolve(), KINDS[path.suffix]
    package = path.parts[-3] if path.parent.name == kind and len(path.parts) > 2 else path.parent.name
    name, parts = f"{package}/{kind}/{path.stem}", _SEPARATOR.split(text)
    expected = {"msg": 1, "srv": 2, "action": 3}[kind]
    if len(parts) != expected:
        raise UsageError(f"types: {path}: expected {expected} parts separated by ---, found {len(parts)}")
    if kind == "msg":
        return {name: text}
    return types.service_of(name, *parts) if kind == "srv" else types.action_of(name, *parts)


def _with_parts(type_name: str, fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pending = [type_name]
    while pending:
        name = pending.pop()
        if name not in found and not types.is_known(name):
            found[name] = fields[name]
            pending += _named(fields[name])
    return found


def _named(definition: Any) -> Iterator[str]:
    for _, kind in definition[1]:
        while kind[0] not in (Nodetype.NAME, Nodetype.BASE):
            kind = kind[1][0]  # noqa: PLW2901
        if kind[0] == Nodetype.NAME:
            yield kind[1]


def _register(found: dict[str, Any], where: str) -> None:
    store = types.store_with("")
    for name, definition in found.items():
        for part in _named(definition):
            if not _is_there(part, found):
                missing = f"{_why_missing(part)}; name that package's folder too"
                raise UsageError(f"types: {where}: {name} needs {part}: {missing}")
    changed = [name for name, definition in found.items() if store.fielddefs.get(name, definition)[1] != definition[1]]
    for name in changed:
        for known in (store.fielddefs, store.types, store.cache):
            known.pop(name, None)
    if changed:
        store.cache.clear()
        checked.forget()
        types.type_hash.cache_clear()
    store.register(found)
