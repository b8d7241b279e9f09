"""For test suites: the `sim` fixture, missions as tests, assertions over time. pytest loads the plug-in by itself."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from microsim.parts.testing.sim_under_test import SimUnderTest

__all__ = ["SimUnderTest"]


def __getattr__(name: str) -> Any:
    """Imported when first used: every pytest run loads the plug-in, and must not pay for numba."""
    if name not in __all__:
        raise AttributeError(f"module 'microsim.parts.testing' has no attribute {name!r}")
    from microsim.parts.testing.sim_under_test import SimUnderTest

    return SimUnderTest
