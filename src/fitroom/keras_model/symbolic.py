"""Keras's symbolic calls, which tell shapes: on every backend without running anything on the device."""

from contextlib import AbstractContextManager, nullcontext


def symbolic_calls() -> AbstractContextManager[None]:
    """A scope for `compute_output_spec` and what builds on it. JAX and TensorFlow trace; PyTorch would run the call."""
    import keras

    if keras.backend.backend() != "torch":
        return nullcontext()
    from fitroom.backends.torch.trace.symbolic import symbolic_calls

    return symbolic_calls()
