"""Public names of this part: each is an attribute of `microsim`, too, and imported when first used."""

PUBLIC = {
    "mission_file": (
        "Mission",
        "load_mission",
    ),
    "outcome": ("fly_mission",),
    "pilot": ("MissionPilot",),
}
