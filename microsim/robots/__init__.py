"""Robots, one file each. `microsim.robots.declaration.ROBOTS` finds them: built in, installed, or in a folder."""
