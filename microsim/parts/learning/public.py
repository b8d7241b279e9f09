"""Public names of this part: each is an attribute of `microsim`, too, and imported when first used."""

PUBLIC = {
    "": (
        "Numbers",
        "Outcome",
        "Reading",
        "Task",
        "distance",
        "make_vec",
    ),
    "evaluation": ("evaluate",),
    "parallel": (
        "TaskParallelEnv",
        "TeamParallelEnv",
    ),
    "policy": ("load_policy",),
}
