"""Controllers on the command line: a file that commands a robot joins a run."""
