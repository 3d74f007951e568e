"""What XLA's GPU compiler does with each JAX primitive, as far as memory goes."""

LOOPS = frozenset({"scan", "while", "cond"})

LOOP_CARRY = "loop_carry"
"""No primitive of JAX's: what a loop carries is there from here on."""

CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}
    | {"remat", "remat2", "checkpoint"}
)
"""Those that only run a traced function."""

LIBRARY = (
    LOOPS
    | {"conv_general_dilated", "dot_general", "ragged_dot", "sort", "top_k", "approx_top_k", "fft"}
    | {"cholesky", "triangular_solve", "eigh", "eig", "svd", "lu", "qr", "householder_product"}
    | {"custom_call", "ffi_call", "pallas_call", LOOP_CARRY}
)
"""Carried out by a library or a loop: they read memory and write memory."""

RENAMING = frozenset(
    {"reshape", "squeeze", "expand_dims", "copy", "copy_p", "stop_gradient", "optimization_barrier", "random_wrap"}
)
"""The same memory under another name."""

PASSED_ON = {
    # A convolution pads, turns and reverses what it reads by itself, a matrix product transposes.
    "conv_general_dilated": RENAMING | {"transpose", "rev", "pad"},
    "dot_general": RENAMING | {"transpose"},
}
"""What a library operation does on the way, beyond renaming."""

COMPARISONS = frozenset({"lt", "le", "gt", "ge"})
COSTLY = frozenset({"logistic", "tanh"})
"""Elementwise, and costly enough not to be recomputed for a reduction."""

_KERNELS = frozenset({"gather", "dynamic_update_slice", "select_and_scatter_add"})
_KERNEL_PREFIXES = ("reduce", "arg", "scatter", "cum")


def writes_memory(name: str) -> bool:
    """Whether it is a kernel of its own that computes what it reads on the way, such as a sum."""
    return name in _KERNELS or (name.startswith(_KERNEL_PREFIXES) and name != "reduce_precision")


def is_computed_on_the_way(name: str) -> bool:
    """Whether it takes no memory unless something asks for its result in memory."""
    return name not in LIBRARY and not writes_memory(name)
