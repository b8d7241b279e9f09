"""Generators of obstacles and features, one file each. `GENERATORS` finds them: built in, installed, or in a folder."""

from microsim.generators.generator import Generator
from microsim.registry import Registry

GENERATORS: Registry[Generator] = Registry(
    "GENERATOR", "microsim.generators", "microsim.worlds", "Generator(...)", lambda part: isinstance(part, Generator)
)
