"""Worlds made and edited: from captures, road maps and templates."""
