"""Public names of this part: each is an attribute of `microsim`, too, and imported when first used."""

PUBLIC = {
    "evaluation": ("evaluate",),
    "gym": ("make_vec",),
    "observations": ("Numbers", "Reading"),
    "parallel": ("TaskParallelEnv", "TeamParallelEnv"),
    "policy": ("load_policy",),
    "task": ("Outcome", "Task", "distance"),
}
