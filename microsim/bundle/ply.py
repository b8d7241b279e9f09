"""The header of a binary PLY file, read with care: bounded, and complaining by line."""

from __future__ import annotations

from dataclasses import dataclass

from microsim.bundle.report import Source

MAX_HEADER_BYTES = 64_000
MAX_COUNT = 2**40
LITTLE_ENDIAN = "binary_little_endian"
FORMATS = (LITTLE_ENDIAN, "binary_big_endian", "ascii")
SIZES = {
    "char": 1, "int8": 1, "uchar": 1, "uint8": 1, "short": 2, "int16": 2, "ushort": 2, "uint16": 2,
    "int": 4, "int32": 4, "uint": 4, "uint32": 4, "float": 4, "float32": 4, "double": 8, "float64": 8,
}  # fmt: skip
KINDS = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "<i2", "int16": "<i2", "ushort": "<u2",
    "uint16": "<u2", "int": "<i4", "int32": "<i4", "uint": "<u4", "uint32": "<u4", "float": "<f4", "float32": "<f4",
    "double": "<f8", "float64": "<f8",
}  # fmt: skip


@dataclass(frozen=True)
class Property:
    """One number, or a list of numbers with its length in front."""

    name: str
    kind: str
    count_kind: str = ""  # of a list: the type of its length
    line: int = 0


@dataclass(frozen=True)
class Element:
    name: str
    count: int
    properties: tuple[Property, ...]


@dataclass(frozen=True)
class Header:
    elements: tuple[Element, ...]
    length: int  # bytes before the data
    format: str = LITTLE_ENDIAN

    def element(self, name: str) -> Element | None:
        return next((element for element in self.elements if element.name == name), None)


class _HeaderError(Exception):
    def __init__(self, message: str, line: int, remedy: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.remedy = remedy


def read_header(source: Source, rule: str, formats: tuple[str, ...] = (LITTLE_ENDIAN,)) -> Header | None:
    """The header, or None and a problem of that rule; what bundles take is little endian alone."""
    try:
        with source.file.open("rb") as stream:
            raw = stream.read(MAX_HEADER_BYTES)
    except OSError as error:
        source.problem("regular-file", f"cannot be read: {error.strerror or error}")
        return None
    try:
        return _parse(raw, formats)
    except _HeaderError as error:
        source.problem(rule, str(error), (), error.remedy, line=error.line or None)
        return None


def _parse(raw: bytes, formats: tuple[str, ...]) -> Header:
    if raw[:2] == b"PK":
        raise _HeaderError("this is an NPZ (or ZIP) file, not a PLY", 0, "write it as a PLY")
    if not raw.startswith(b"ply\n"):
        found = "nothing" if not raw else repr(raw[:12])[1:]
        raise _HeaderError(f"expected a PLY file, beginning with the line 'ply', found {found}", 1)
    end = raw.find(b"\nend_header\n")
    if end < 0:
        raise _HeaderError(f"no line 'end_header' in the first {MAX_HEADER_BYTES:,} bytes", 1)
    try:
        lines = raw[:end].decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise _HeaderError("the header holds bytes that are not ASCII", 1) from None
    return Header(_elements(lines), end + len(b"\nend_header\n"), _format(lines, formats))


def _elements(lines: list[str]) -> tuple[Element, ...]:
    elements: list[Element] = []
    for number, line in enumerate(lines[2:], 3):
        words = line.split()
        if not words or words[0] in ("comment", "obj_info"):
            continue
        if words[0] == "element":
            elements.append(_element(words, number))
        elif words[0] == "property" and elements:
            last = elements[-1]
            elements[-1] = Element(last.name, last.count, (*last.properties, _property(words, number)))
        else:
            raise _HeaderError(f"unexpected line {line[:60]!r}", number)
    return tuple(elements)


def _format(lines: list[str], formats: tuple[str, ...]) -> str:
    found = lines[1].strip() if len(lines) > 1 else "nothing"
    name = found.removeprefix("format ").removesuffix(" 1.0")
    if found == f"format {name} 1.0" and name in formats:
        return name
    remedy = "write it as binary_little_endian; `microsim bundle import-splat` converts splats"
    if found in ("format ascii 1.0", "format binary_big_endian 1.0"):
        kind = "ASCII" if "ascii" in found else "big endian"
        raise _HeaderError(f"{kind} PLY is not supported", 2, remedy)
    raise _HeaderError(f"expected the line 'format binary_little_endian 1.0', found {found[:60]!r}", 2, remedy)


def _element(words: list[str], line: int) -> Element:
    if len(words) != 3 or not words[2].isdecimal() or len(words[2]) > 13 or int(words[2]) > MAX_COUNT:
        raise _HeaderError(f"expected 'element NAME COUNT', found {' '.join(words)[:60]!r}", line)
    return Element(words[1], int(words[2]), ())


def _property(words: list[str], line: int) -> Property:
    if len(words) == 3 and words[1] in SIZES:
        return Property(words[2], words[1], line=line)
    if len(words) == 5 and words[1] == "list" and words[2] in SIZES and words[3] in SIZES:
        return Property(words[4], words[3], words[2], line)
    raise _HeaderError(f"expected 'property TYPE NAME', found {' '.join(words)[:60]!r}", line)
