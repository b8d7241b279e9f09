"""Live view in Foxglove: a transport for the node, so that topics, inputs, services and parameters are the node's."""
