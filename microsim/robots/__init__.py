"""Robots, one file each. `microsim.robots.robot.ROBOTS` finds them: built in, installed, or in a folder."""
