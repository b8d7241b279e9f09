"""`microsim conformance`: does a simulator on the ROS 2 network behave as `simulation_interfaces` defines?"""
