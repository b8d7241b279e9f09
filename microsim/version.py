"""The one place where the version is written; setup.py reads it and a test holds package.xml to it."""

__version__ = "0.2.0"
