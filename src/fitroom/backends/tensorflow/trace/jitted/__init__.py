"""The step of `jit_compile=True`, as XLA's GPU compiler lays it out for a card that is not there."""
