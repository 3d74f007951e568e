"""Every private name of Keras, keras-tuner, TensorFlow, PyTorch and JAX in src/fitroom, and what breaks without it.

    python tests/helpers/private_names.py                     # the table, with the files that use each name
    KERAS_BACKEND=torch python tests/helpers/private_names.py --missing    # those that the installed versions lack

Private is: a name with an underscore, and a module that its project calls internal (`keras.src`, `tensorflow.python`,
`tensorflow.core`, `tensorflow.compiler`, `jax._src`, `jaxlib`, `torch._*`). Of JAX few private names are used.
"""

import ast
import importlib
import inspect
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src" / "fitroom"
BACKENDS = ("jax", "tensorflow", "torch")


@dataclass(frozen=True, kw_only=True)
class PrivateName:
    """One name, and where a framework has it."""

    owner: str
    """A module or class by its path, or one of the objects of `make_objects` in angle brackets."""

    name: str
    breaks: str
    """What of fitroom does not work without it."""

    backends: tuple[str, ...] = BACKENDS
    """Under which backends of Keras it is used."""

    is_text: bool = False
    """A key of a dictionary or a name that is set later: looked for in the source of the module `owner`."""

    @property
    def path(self) -> str:
        """Owner and name: what a test is called by."""
        return f"{self.owner}.{self.name}"

    def is_there(self, objects: dict[str, Any]) -> bool:
        """Whether the installed version has it."""
        try:
            owner = objects[self.owner] if self.owner in objects else find_path(self.owner)
            if self.is_text:
                return re.search(rf"\b{self.name}\b", inspect.getsource(owner)) is not None
            return hasattr(owner, self.name) or _is_module(f"{self.owner}.{self.name}")
        except (ImportError, AttributeError):
            return False


def _names(
    owner: str, breaks: str, *names: str, backends: tuple[str, ...] = BACKENDS, is_text: bool = False
) -> list[PrivateName]:
    return [PrivateName(owner=owner, name=name, breaks=breaks, backends=backends, is_text=is_text) for name in names]


_TF = ("tensorflow",)
_TORCH = ("torch",)

PRIVATE_NAMES = [
    # Keras: layers and models
    *_names("keras.Layer", "the layers within layers are not found: estimates, rollback, remat", "_flatten_layers"),
    *_names("keras.Layer", "a broken forward pass leaves the losses that layers added", "_clear_losses"),
    *_names("<layer>", "seeds of random layers are not rolled back or saved: dropout differs", "_seed_generators"),
    *_names("<layer>", "frozen variables are not told from trained ones", "_trainable_variables"),
    *_names("<layer>", "losses that a layer adds while a step is traced stay in the layer", "_losses"),
    *_names("<layer>", "a broken trace on JAX leaves its losses in the model", "_losses_override", backends=("jax",)),
    *_names("<model>", "micro-batches cannot call the model with `training`", "_call_has_training_arg"),
    *_names("<model>", "the loss of a micro-batch cannot be computed as Keras does it", "_compile_loss"),
    *_names("<model>", "metrics are not built before a step, and not reset", "_compile_metrics"),
    *_names("<model>", "the mean loss of an epoch is not counted", "_loss_tracker"),
    *_names("<model>", "a twin of a compiled model loses functions of the user's", "_compile_config"),
    *_names("<model>", "a run with keras.callbacks.BackupAndRestore starts at epoch 0", "_initial_epoch"),
    *_names("keras.Model", "a model is not built from the first batch", "_symbolic_build"),
    *_names("keras.Model", "evaluate and train_on_batch return no list", "_flatten_metrics_in_order"),
    *_names("keras.Model", "the logs of an epoch lack the metrics", "_get_metrics_result_or_logs"),
    *_names("keras.Model", "the loss of the whole step is not computed", "_compute_loss", backends=_TF),
    *(
        PrivateName(
            owner=f"keras.src.backend.{backend}.trainer",
            name="_use_cached_eval_dataset",
            breaks="Keras's own validation inside `fit` is served a second time",
            backends=(backend,),
            is_text=True,
        )
        for backend in BACKENDS
    ),
    *_names(
        "keras.src.trainers.trainer", "what the user asked for as jit_compile is not known", "compile", is_text=True
    ),
    *_names("<functional>", "no graph of layers: no remat, no speed", "_nodes_by_depth", "_run_through_graph"),
    *_names("<functional>", "a model within a model cannot be run in segments", "_standardize_inputs"),
    *_names("<sequential>", "a Sequential model has no graph of layers: no remat, no speed", "_functional"),
    *_names("<attention>", "attention counts no work: its speed is predicted too high", "_num_heads"),
    # Keras: losses, optimizers, variables
    *_names("<compile loss>", "losses cannot be replaced for the parts of a batch", "_flat_losses", "_metrics"),
    *_names("<loss>", "a loss along another axis is cut into micro-batches although it must not", "_fn_kwargs"),
    *_names("<optimizer>", "channels cannot be ranked by gradient", "_get_variable_index"),
    *_names("<optimizer>", "schedules and callable learning rates are lost in copies", "_learning_rate"),
    *_names("<optimizer>", "an update on PyTorch is not undone, a second optimizer not saved", "_trainable_variables"),
    *_names("<variable>", "no stand-ins for values: estimates would allocate the model", "_value"),
    *_names("<variable>", "variables of TensorFlow's steps have no dtype", "_dtype", backends=_TF),
    *_names("keras.Variable", "variables that were held back are not initialised", "_deferred_initialize"),
    # Keras: several devices
    *_names("<model>", "a model made before `fitroom.devices` is not mirrored", "_distribute_strategy", backends=_TF),
    *_names(
        "<optimizer>",
        "a model made before `fitroom.devices` is not mirrored",
        *("_distribution_strategy", "_trainable_variables_indices", "_var_key"),
        backends=_TF,
    ),
    *_names("keras.Variable", "a model made before `fitroom.devices` is not mirrored", "_initialize", backends=_TF),
    *_names(
        "keras.src.losses.loss",
        "uneven shares of a batch count as if they were even on TensorFlow",
        "scale_loss_for_distribution",
    ),
    # keras-tuner
    *_names(
        "keras_tuner.Tuner",
        "the search space is found in the search's own process",
        "_populate_initial_space",
        backends=_TORCH,
    ),
    # Keras: callbacks
    *_names("<callback>", "the model counts as state of a callback", "_model"),
    *_names(
        "<tensorboard>",
        "a resumed run counts TensorBoard's steps wrongly, or waits for a trace that is not there",
        *("_is_tracing", "_profiler_started", "_batch_start_time", "_should_write_train_graph"),
    ),
    *_names(
        "keras.src.callbacks.tensorboard",
        "a resumed run writes wrong steps per second",
        *("_epoch_start_time", "_previous_epoch_iterations"),
        is_text=True,
    ),
    *_names("keras.src.callbacks.callback_list.CallbackList", "a checkpoint misses the last batch", "_flush_futures"),
    *_names(
        "keras.src.trainers.epoch_iterator",
        "`fitroom.watch` does not see how long Keras's own `fit` waits for input",
        "EpochIterator",
    ),
    *_names(
        "keras.src.trainers.epoch_iterator.EpochIterator",
        "`fitroom.watch` does not see how long Keras's own `fit` waits for input",
        "_get_iterator",
    ),
    *_names(
        "keras.src.trainers.data_adapters.tf_dataset_adapter.TFDatasetAdapter",
        "`fitroom.watch` does not name the setting that makes a slow tf.data pipeline faster",
        "_dataset",
        is_text=True,
    ),
    *_names(
        "keras.src.trainers.data_adapters.torch_data_loader_adapter.TorchDataLoaderAdapter",
        "`fitroom.watch` does not name the setting that makes a slow DataLoader faster",
        "_dataloader",
        is_text=True,
    ),
    # Keras: modules without a public name
    *_names("keras.src.backend.common", "recomputed segments lose autocasting", "AutocastScope"),
    *_names(
        "keras.src.backend.common.masking",
        "masks are lost between segments and in losses",
        *("get_keras_mask", "set_keras_mask"),
    ),
    *_names(
        "keras.src.backend.common.global_state",
        "seeds and waiting variables of Keras's are not saved, restored or given back",
        *("get_global_attribute", "set_global_attribute"),
    ),
    *_names(
        "keras.src.backend.common.variables",
        "variables of an estimate are initialised later, with memory",
        "uninitialized_variables",
        is_text=True,
    ),
    *_names("keras.src.utils.module_utils.tensorflow", "plans on JAX and PyTorch import TensorFlow", "_available"),
    *_names(
        "keras.src.random.seed_generator",
        "unseeded random operations do not resume where they were",
        "global_seed_generator",
        is_text=True,
    ),
    *_names("keras.src.layers.layer", "a recomputed segment forgets `training`", "current_call_ctx", is_text=True),
    *_names(
        "keras.src.backend.common.variables", "a recomputed segment loses autocasting", "autocast_scope", is_text=True
    ),
    *_names(
        "keras.src.backend.torch.core",
        "a recomputed segment changes device",
        "torch_device",
        backends=_TORCH,
        is_text=True,
    ),
    *_names(
        "keras.src.backend.config", "a recomputed segment computes attention otherwise", "flash_attention", is_text=True
    ),
    *_names(
        "keras.src.backend.torch.core",
        "steps on PyTorch are not traced without a card",
        *("device_scope", "scatter"),
        backends=_TORCH,
    ),
    *_names("keras.src.backend.torch.numpy", "models that split at places are not traced", "split", backends=_TORCH),
    *_names(
        "jax._src.cudnn.fused_attention_stablehlo",
        "attention in half precision is estimated as this machine would compute it, not the card",
        *("check_cudnn_version", "check_compute_capability", "is_cuda_compute_capability_equal"),
        backends=("jax",),
    ),
    # TensorFlow
    *_names(
        "tensorflow.python.ops.resource_variable_ops",
        "estimates would allocate the variables of the model",
        "UninitializedVariable",
        backends=_TF,
    ),
    *_names(
        "tensorflow.core.protobuf.device_properties_pb2",
        "no card for Grappler",
        *("DeviceProperties", "NamedDevice"),
        backends=_TF,
    ),
    *_names("tensorflow.core.protobuf.config_pb2", "graphs are not optimised as in a run", "ConfigProto", backends=_TF),
    *_names("tensorflow.core.protobuf.meta_graph_pb2", "graphs are not read", "MetaGraphDef", backends=_TF),
    *_names("tensorflow.python.grappler.cluster", "no card for Grappler", "Cluster", backends=_TF),
    *_names("tensorflow.python.grappler.item", "shapes in a graph are not known", "Item", backends=_TF),
    *_names(
        "tensorflow.python.grappler.tf_optimizer", "graphs are not optimised as in a run", "OptimizeGraph", backends=_TF
    ),
    *_names("tensorflow.python.eager.context", "random state and allocator settings", "context", backends=_TF),
    *_names(
        "<tensorflow context>",
        "out of memory is noticed 10 seconds late on a card",
        *("_config", "_context_handle"),
        backends=_TF,
    ),
    *_names("<tensorflow context>", "TensorFlow's random state is not saved", "_seed", "_rng", backends=_TF),
    *_names(
        "tensorflow.python.ops.stateful_random_ops",
        "TensorFlow's global generator is not saved",
        "global_generator",
        backends=_TF,
    ),
    *_names(
        "tensorflow.python.eager.polymorphic_function.compiler_ir",
        "no estimates of jitted steps on TensorFlow",
        "from_concrete_function",
        backends=_TF,
    ),
    *_names("tensorflow.compiler.xla.service.hlo_pb2", "jitted steps cannot be read", "HloModuleProto", backends=_TF),
    *_names(
        "tensorflow.compiler.tf2xla.python.xla",
        "XLA undoes remat: it merges what is computed twice",
        "optimization_barrier",
        backends=_TF,
    ),
    *_names(
        "tensorflow.python.ops.control_flow_util",
        "remat does not know whether it is compiled by XLA",
        "GraphOrParentsInXlaContext",
        backends=_TF,
    ),
    *_names("<concrete function>", "steps on TensorFlow are not run", "_call_flat", backends=_TF),
    *_names("<tensorflow tensor>", "a traced step is not found again", "_shape_tuple", "_datatype_enum", backends=_TF),
    *_names("<tensorflow dataset>", "settings of a tf.data pipeline are not seen", "_inputs", backends=_TF),
    *_names("<tensorflow dataset>", "steps of a tf.data pipeline have no names", "_map_func", backends=_TF),
    *_names("<tensorflow map>", "steps of a tf.data pipeline have no names", "_func", backends=_TF),
    *_names("<tensorflow list>", "what TensorFlow tracks in a model is not given back", "_storage", backends=_TF),
    *_names(
        "tensorflow.python.framework.ops",
        "models that Keras trained in a loop are not given back",
        "gradient_registry",
        backends=_TF,
    ),
    *_names(
        "tensorflow.python.framework.ops.gradient_registry",
        "models that Keras trained in a loop are not given back",
        "_registry",
        backends=_TF,
    ),
    *_names(
        "tensorflow.python.framework.ops",
        "no estimates on TensorFlow",
        "_create_c_op",
        backends=_TF,
    ),
    *_names(
        "tensorflow.python.framework.op_def_library",
        "tracing words an error for each operation that is given a valid type",
        "_SatisfiesTypeConstraint",
        backends=_TF,
    ),
    # JAX
    *_names("jax._src.util", "`fresh` empties none of the caches that JAX itself empties", "cache", backends=("jax",)),
    *_names("<jitted function>", "`leaks` does not see what is compiled anew", "_cache_size", backends=("jax",)),
    # PyTorch
    *_names(
        "torch._subclasses.fake_tensor",
        "no estimates on PyTorch",
        *("FakeTensor", "FakeTensorMode", "DataDependentOutputException"),
        backends=_TORCH,
    ),
    *_names(
        "torch._subclasses.fake_tensor.FakeTensorMode",
        "PyTorch leaves fake tensors to its compiler",
        "_should_skip_dynamo",
        backends=_TORCH,
    ),
    *_names(
        "torch._subclasses.fake_tensor.FakeTensorMode",
        "no estimates on PyTorch of models that split tensors at given places",
        *("may_turn_const", "is_our_fake"),
        backends=_TORCH,
    ),
    *_names(
        "torch._subclasses.fake_tensor.FakeTensorMode",
        "estimates on PyTorch take a fifth longer",
        "_prep_args_for_hash",
        backends=_TORCH,
    ),
    *_names("keras.src.tree.torchtree_impl", "no estimates on PyTorch", "torch_tree", backends=_TORCH),
    *_names("torch.utils", "no estimates on PyTorch", "_pytree", backends=_TORCH),
    *_names("torch.utils._pytree", "no estimates on PyTorch", "tree_iter", "tree_map", backends=_TORCH),
    *_names("torch.utils._python_dispatch", "no estimates on PyTorch", "TorchDispatchMode", backends=_TORCH),
    *_names("torch", "the private functions of its C library are not there", "_C", backends=_TORCH),
    *_names("torch", "compiled code is not released", "_dynamo", backends=_TORCH),
    *_names(
        "torch",
        "snapshots and rollback on PyTorch",
        *("_foreach_copy_", "_foreach_sub", "_foreach_mul", "_foreach_mul_", "_foreach_add_", "_foreach_add"),
        backends=_TORCH,
    ),
    *_names(
        "torch",
        "moving averages of fused BatchNormalization",
        *("_foreach_lerp_", "_foreach_pow", "_foreach_sub_"),
        backends=_TORCH,
    ),
    *_names(
        "<torch module>",
        "hooks are not called with fused kernels",
        *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
        backends=_TORCH,
    ),
    *_names("<layer>", "Keras's own recomputing is passed over with fused kernels", "_remat_mode", backends=_TORCH),
    *_names("keras.layers.MultiHeadAttention", "attention with fused dropout", "_compute_attention", backends=_TORCH),
    *_names(
        "keras.src.backend.common.masking",
        "masks are passed over with fused kernels",
        "_keras_mask",
        backends=_TORCH,
        is_text=True,
    ),
    *_names(
        "torch.nn.modules.module",
        "hooks are not called with fused kernels",
        "_has_any_global_hook",
        backends=_TORCH,
    ),
    *_names(
        "keras.src.backend.common.stateless_scope",
        "recomputing with fused kernels, and a step that lends variables",
        *("in_stateless_scope", "get_stateless_scope"),
        backends=_TORCH,
    ),
    *_names(
        "torch._C",
        "attribution of the backward pass to layers",
        *("_current_graph_task_id", "_current_autograd_node"),
        backends=_TORCH,
    ),
    *_names("torch._C", "accumulated gradients are counted twice", "_storage_Use_Count", backends=_TORCH),
    *_names(
        "torch.cuda.memory",
        "`fitroom.watch(snapshot=...)` writes no snapshot",
        *("_record_memory_history", "_dump_snapshot"),
        backends=_TORCH,
    ),
    *_names("<torch node>", "attribution of the backward pass to layers", "_sequence_nr", backends=_TORCH),
    *_names("torch.autograd", "attribution of the backward pass to layers", "_get_sequence_nr", backends=_TORCH),
    *_names("<torch tensor>", "a changed weight is not noticed after out of memory", "_version", backends=_TORCH),
    *_names("<torch tensor>", "accumulated gradients are counted twice", "_use_count", backends=_TORCH),
    *_names("<torch storage>", "storages are not told apart: no estimates on PyTorch", "_cdata", backends=_TORCH),
    *_names(
        "<torch module>",
        "estimates would allocate the weights of the model",
        *("_parameters", "_buffers", "_modules"),
        backends=_TORCH,
    ),
    *_names(
        "torch.ops.aten",
        "estimates of attention, softmax and values that the host reads on PyTorch",
        *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention"),
        *("_softmax_backward_data", "_log_softmax_backward_data", "_local_scalar_dense"),
        backends=_TORCH,
    ),
]

ONLY_WITH_CUDA = {
    "_cuda_clearCublasWorkspaces": "torch._C of a CUDA build has it; used while a step is measured on a card"
}
"""Private names that a CPU build lacks, and where they are."""

NOT_THE_FRAMEWORKS = {
    "_exit": "os",
    "_getframe": "sys",
    "_current_frames": "sys",
    "_run_exitfuncs": "atexit",
    "_initializing": "importlib: of a module's specification",
    "_replace": "a named tuple's, documented",
    "_fields": "a named tuple's, documented",
    "_keras_own": "fitroom.train.protect sets it on methods",
    "_gradients": "super() of a step of ours",
    **dict.fromkeys(
        ("_assume", "_find_next", "_learn", "_points", "_to_learn", "_tried"), "fitroom.planning: of a copy of itself"
    ),
}
"""Names with an underscore that are no framework's, and whose they are."""

OLD_KERAS = ("tf_keras.src", "tensorflow.python.keras")
"""Modules of Keras 2 that are watched for where a script imports them. They need not be there."""

_INTERNAL = re.compile(
    r"(keras\.src|tensorflow\.(python|core|compiler)|jax\._src|jaxlib|torch(\.\w+)*\._[A-Za-z]\w*)(\.|$)"
)
_ASKS_BY_TEXT = {"getattr", "hasattr", "setattr", "delattr", "lent"}


def is_private(name: str) -> bool:
    """Whether an attribute is private by its name: one underscore, and not only that."""
    return name.startswith("_") and not name.startswith("__") and name != "_"


def find_uses(folder: Path = SOURCE) -> dict[str, list[str]]:
    """The private names that the source uses, each with its places ("backends/x.py:12").

    A module's name stands with its path; an attribute of an object alone, since its class is not written there.
    """
    found: dict[str, list[str]] = {}
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}
    ours = set().union(*map(_defined_names, trees.values()))
    for path, tree in trees.items():
        for name, line in _uses_in(tree, ours):
            found.setdefault(name, []).append(f"{path.relative_to(folder)}:{line}")
    return found


def unlisted_uses(uses: dict[str, list[str]]) -> dict[str, list[str]]:
    """Those that the table lacks."""
    names = {entry.name for entry in PRIVATE_NAMES} | ONLY_WITH_CUDA.keys() | NOT_THE_FRAMEWORKS.keys()
    paths = {entry.path for entry in PRIVATE_NAMES} | set(OLD_KERAS)

    def is_listed(name: str) -> bool:
        if "." not in name:
            return name in names
        if is_private(name.rsplit(".", 1)[1]) and name.rsplit(".", 1)[1] in names:
            return True
        return any(f"{path}.".startswith(f"{name}.") or f"{name}.".startswith(f"{path}.") for path in paths)

    return {name: places for name, places in uses.items() if not is_listed(name)}


def words_of_source(folder: Path = SOURCE) -> set[str]:
    """Every name and every string in the source, whole and by the parts of a path."""
    words: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for field in ("id", "attr", "name", "module", "value", "arg"):
                text = getattr(node, field, None)
                if isinstance(text, str):
                    words |= {text, *text.split(".")}
    return words


def find_path(path: str) -> Any:
    """The module, class or value of a path such as "torch.utils._pytree.tree_map"."""
    parts = path.split(".")
    found: Any = None
    for number, part in enumerate(parts, start=1):  # modules first: `tensorflow` hides its `python`
        module = ".".join(parts[:number])
        found = importlib.import_module(module) if _is_module(module) else getattr(found, part)
    return found


def make_objects() -> dict[str, Any]:
    """Objects whose attributes are private, made as users make them, for Keras's backend of this process."""
    import keras
    import numpy as np

    inputs = keras.Input((4,))
    functional = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Dropout(0.1)(inputs)))
    sequential = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    functional.compile("adam", "mse", metrics=["mae"])
    functional.fit(np.zeros((4, 4)), np.zeros((4, 2)), verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        tensorboard = keras.callbacks.TensorBoard(folder)
        tensorboard.set_model(functional)
    objects = {
        "<layer>": functional.layers[-1],
        "<model>": functional,
        "<functional>": functional,
        "<sequential>": sequential,
        "<attention>": keras.layers.MultiHeadAttention(2, 4),
        "<compile loss>": functional._compile_loss,
        "<loss>": keras.losses.MeanSquaredError(),
        "<optimizer>": functional.optimizer,
        "<variable>": functional.weights[0],
        "<callback>": keras.callbacks.Callback(),
        "<tensorboard>": tensorboard,
    }
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        objects["<jitted function>"] = jax.jit(lambda x: x)
    elif backend == "tensorflow":
        objects |= _tensorflow_objects()
    elif backend == "torch":
        objects |= _torch_objects()
    return objects


def _tensorflow_objects() -> dict[str, Any]:
    import tensorflow as tf
    from tensorflow.python.eager import context

    tf.random.set_seed(1)  # the generator of seeds is made by this
    module = tf.Module()
    module.held = [tf.Variable(1.0)]
    tensor = tf.zeros((2,))
    dataset = tf.data.Dataset.range(2).map(lambda number: number)
    return {
        "<tensorflow context>": context.context(),
        "<concrete function>": tf.function(lambda x: x + 1).get_concrete_function(tensor),
        "<tensorflow tensor>": tensor,
        "<tensorflow list>": module.held,
        "<tensorflow dataset>": dataset,
        "<tensorflow map>": dataset._map_func,
    }


def _torch_objects() -> dict[str, Any]:
    import torch

    tensor = torch.zeros(2, requires_grad=True)
    return {
        "<torch tensor>": tensor,
        "<torch node>": (tensor + 1).grad_fn,
        "<torch storage>": tensor.untyped_storage(),
        "<torch module>": torch.nn.Linear(1, 1),
    }


def find_missing() -> list[str]:
    """The paths of the names that the installed versions lack, of those used under this process's backend."""
    objects = make_objects()
    backend = os.environ["KERAS_BACKEND"]
    return [entry.path for entry in PRIVATE_NAMES if backend in entry.backends and not entry.is_there(objects)]


def _uses_in(tree: ast.AST, ours: set[str]) -> Iterator[tuple[str, int]]:
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        for name, path in _imported(node):
            if _INTERNAL.match(path):
                modules[name] = path
                yield path, node.lineno  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = ast.unparse(node.value)
            if base in modules:
                yield f"{modules[base]}.{node.attr}", node.lineno
            if is_private(node.attr) and not (_is_self(node.value) and node.attr in ours):
                yield node.attr, node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ASKS_BY_TEXT:
            for argument in node.args[1:2]:
                if (
                    isinstance(argument, ast.Constant)
                    and isinstance(argument.value, str)
                    and is_private(argument.value)
                ):
                    yield argument.value, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_internal_path(node.value):
            yield node.value.rstrip("."), node.lineno


def _is_internal_path(text: str) -> bool:
    is_path = "." in text and re.fullmatch(r"[\w.]+", text) is not None
    return is_path and (_INTERNAL.match(text) is not None or text.startswith(OLD_KERAS))


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import binds, with the paths that they stand for."""
    if isinstance(node, ast.Import):
        yield from ((each.asname or each.name.split(".")[0], each.name) for each in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from ((each.asname or each.name, f"{node.module}.{each.name}") for each in node.names)


def _defined_names(tree: ast.AST) -> set[str]:
    """Names that a file defines: functions, classes, fields, and attributes that are set on `self`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            found.add(node.attr)
    return found


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _is_module(path: str) -> bool:
    try:
        importlib.import_module(path)
    except ImportError:
        return False
    return True


def _print_table() -> None:
    uses = find_uses()
    for entry in PRIVATE_NAMES:
        places = uses.get(entry.path) or uses.get(entry.name) or ["as text"]
        files = sorted({place.rsplit(":", 1)[0] for place in places})
        print(f"{entry.path}\t{', '.join(files)}\t{entry.breaks}")


if __name__ == "__main__":
    if "--missing" in sys.argv[1:]:
        print(json.dumps(find_missing()))
    else:
        _print_table()
