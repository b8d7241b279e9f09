"""Metrics, for `microsim list`."""

from __future__ import annotations

from collections.abc import Mapping

from microsim.listings import Listing, first_line


def _metrics() -> Mapping[str, str]:
    from microsim.parts.sweep.metrics import all_metrics

    return {name: first_line(metric) for name, metric in all_metrics().items()}


LISTING = Listing("metrics", 80, _metrics)
