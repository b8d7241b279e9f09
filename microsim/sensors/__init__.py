"""Sensors, one file each: numbers of a robot's motion in, numbers of a measurement out."""
