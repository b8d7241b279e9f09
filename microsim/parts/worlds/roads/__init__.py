"""Road maps: lanes from OpenDRIVE and Lanelet2, as drivable areas, lanes and routes of a world bundle, and back."""
