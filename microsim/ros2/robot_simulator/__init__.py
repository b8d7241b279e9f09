"""The node `robot_simulator`: `/cmd_vel` in, `/odom` and `/amcl_pose` out, for navigation tests.

settings.py    its parameters, and the robot of a scenario that they describe
core.py        the document's states around the robots of a `Simulation`
maps.py        worlds from map_server's files, occupancy grids and scenarios
moving.py      moving obstacles, and their YAML
node.py        the core on a transport
"""
