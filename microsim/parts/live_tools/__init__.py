"""What `ros2` does on a network, without ROS 2: the client, its commands, and the conformance test."""
