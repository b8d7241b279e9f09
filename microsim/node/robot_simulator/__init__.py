"""The node `robot_simulator`: `/cmd_vel` in, `/odom` and `/amcl_pose` out, for navigation tests.

settings.py    its parameters
core.py        its robots and their states IDLE, ACTIVE, TIMEOUT_STOP: a pure function of ticks and inputs
sending.py     what a robot sends
scanner.py     /scan
grids.py       occupancy grids, from messages and scenarios
map_files.py   maps of map_server: YAML and pgm.py
moving.py      moving obstacles, and their YAML
node.py        the core on a transport
"""
