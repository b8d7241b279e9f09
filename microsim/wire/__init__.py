"""ROS 2 messages as bytes, without ROS 2: types, CDR and type hashes over the `rosbags` library."""

from microsim.wire.template import RawTemplate, Template
from microsim.wire.types import decode, encode, fields_of, is_known, new, type_hash

__all__ = ["RawTemplate", "Template", "decode", "encode", "fields_of", "is_known", "new", "type_hash"]
