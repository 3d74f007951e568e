"""The step followed through its jaxpr: without the compiler, or without jit."""
