"""What draws splat pictures quicker than one thread: several threads (`threads`), or a GPU (`gpu`).

Both give the bytes that `microsim.sim.splat` gives on its own. They live outside `sim`, which has neither threads nor
devices.
"""
