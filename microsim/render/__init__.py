"""What draws splat pictures quicker than one thread: several threads (`threads`), or a GPU (`gpu`).

Both give the bytes that `microsim.render.splat` gives on its own.
"""
