"""Public names of this part: each is an attribute of `microsim`, too, and imported when first used."""

PUBLIC = {
    "metrics": ("Metric",),
    "plan": (
        "load_sweep",
        "make_plan",
    ),
    "run_all": ("sweep_to_file",),
    "when": ("when",),
    "worker_pool": ("LocalWorkers",),
}
