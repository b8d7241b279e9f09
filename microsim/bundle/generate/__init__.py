"""Worlds made by a program: those that ship with MicroSim, and a plain one to begin with."""
