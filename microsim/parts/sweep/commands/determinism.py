"""`microsim determinism`."""

from microsim.cli.command import Command
from microsim.parts.sweep.commands.check import CheckOutput, determinism

COMMAND = Command(determinism, panel="Test", position=230, json=CheckOutput)
