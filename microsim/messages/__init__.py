"""ROS 2 messages as bytes, without ROS 2: types, CDR and type hashes over the `rosbags` library."""

from microsim.messages.checked import WireError, decode_checked
from microsim.messages.mappings import fill, from_mapping
from microsim.messages.template import Prepared, RawTemplate, Template, layout
from microsim.messages.types import (
    constants_of,
    decode,
    encode,
    fields_of,
    for_reader,
    has_older_version,
    is_known,
    new,
    type_hash,
)

__all__ = [
    "Prepared",
    "RawTemplate",
    "Template",
    "WireError",
    "constants_of",
    "decode",
    "decode_checked",
    "encode",
    "fields_of",
    "fill",
    "for_reader",
    "from_mapping",
    "has_older_version",
    "is_known",
    "layout",
    "new",
    "type_hash",
]
