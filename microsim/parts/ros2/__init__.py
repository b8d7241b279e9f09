"""What makes the engine a ROS 2 node: parameters, services, the clock's pace, logging."""
