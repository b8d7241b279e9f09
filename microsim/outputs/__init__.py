"""From declarations to what a run sends: rows of the output table, and outputs that Python makes."""
