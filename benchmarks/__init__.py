"""Speed, measured: each module has `measure()`, which gives results beside a peer or a limit from the same run."""
