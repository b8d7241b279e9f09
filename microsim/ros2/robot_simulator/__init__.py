"""The node `robot_simulator`: `/cmd_vel` in, `/odom` and `/amcl_pose` out, for navigation tests.

settings.py    its parameters
core.py        states, and what is said and sent: a pure function of ticks and inputs
fleet.py       the robots as columns of numbers
sending.py     what a robot sends
scanner.py     /scan
grids.py       occupancy grids, from messages and scenarios
map_files.py   maps of map_server: YAML and pgm.py
moving.py      moving obstacles, and their YAML
node.py        the core on a transport
"""
