"""Numbers of simulation_interfaces/msg/Result that several services share."""

UNSUPPORTED, OK, NOT_FOUND, INCORRECT_STATE, FAILED = range(5)
