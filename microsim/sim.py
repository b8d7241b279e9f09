"""Where plug-ins written for version 0.1 find the engine: these modules moved to `microsim.engine`."""

import sys

from microsim.engine import compiled, components, exact, motion, noise

__path__: list[str] = []  # a package, so that `from microsim.sim.motion import X` finds the names below
for _module in (compiled, components, exact, motion, noise):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
