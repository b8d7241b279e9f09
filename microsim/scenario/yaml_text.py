"""The old place of `microsim.documents.yaml_text`."""

from microsim.documents.yaml_text import MAX_BYTES, Document, Mark, Path, dotted, read_yaml, to_yaml

__all__ = ["MAX_BYTES", "Document", "Mark", "Path", "dotted", "read_yaml", "to_yaml"]
