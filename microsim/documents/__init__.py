"""Texts that people write, read as plain data that knows where each value stands: YAML and JSON."""
