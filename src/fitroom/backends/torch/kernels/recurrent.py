"""LSTM and GRU with a mask by cuDNN's kernels, which Keras takes only for sequences without one.

A masked step changes neither state nor output. So the steps that count are moved to the front of each sequence, in
their order, the unmasked kernel runs over all of it, and each step then reads the output of the last step that counted.
What the kernel computes behind the last of them is never read. No length has to travel to the host.
"""

from typing import Any

import keras
import torch

from fitroom.backends.torch.kernels.fused_call import FusedCall


class FusedRecurrent(FusedCall):
    """`call` of an LSTM or GRU layer. Without a mask Keras's own `call` takes the kernel."""

    operation = "cuDNN's recurrent kernels, masks too"

    @staticmethod
    def why_not(layer: Any) -> str | None:
        """Why a layer is left to Keras, or None where it is served."""
        cell = layer.cell
        if cell.activation is not keras.activations.tanh or cell.recurrent_activation is not keras.activations.sigmoid:
            return "activations other than tanh and sigmoid"
        found = {
            "unroll": layer.unroll,
            "recurrent dropout": layer.recurrent_dropout,
            "no bias": not layer.use_bias,
            "use_cudnn=False": layer.use_cudnn not in ("auto", True),
            "reset_after=False": not getattr(layer, "reset_after", True),
        }
        return next((words for words, is_so in found.items() if is_so), None)

    def __call__(self, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = False) -> Any:
        """Compute the outputs, and the state where the layer returns it."""
        layer = self._layer
        mask = mask[0] if isinstance(mask, list | tuple) else mask
        if mask is None or mask.ndim != 2 or self._needs_keras(sequences):
            return self._keras_call(sequences, initial_state=initial_state, mask=mask, training=training)
        mask = mask.bool()
        if layer.go_backwards:
            sequences, mask = sequences.flip(1), mask.flip(1)
        front = torch.argsort((~mask).byte(), dim=1, stable=True)
        computed = _without_mask(layer, _take_steps(sequences, front), initial_state, training)
        latest = mask.cumsum(1) - 1  # for each step the last one that counted; -1 before the first
        last = _take_steps(computed, latest[:, -1:])[:, 0]
        if layer.return_sequences:
            outputs = _take_steps(computed, latest)
        else:
            outputs = last
            mask = mask[:, -1]
        if layer.zero_output_for_mask:
            outputs = torch.where(mask[..., None], outputs, 0)
        if not layer.return_state:
            return outputs
        return outputs, self._state(last, latest[:, -1:], initial_state)

    def _needs_keras(self, sequences: Any) -> bool:
        """Whether a masked call is left to Keras: the kernel does not tell an LSTM's cell state within a sequence."""
        layer = self._layer
        tells_state = layer.stateful or (layer.return_state and isinstance(layer, keras.layers.LSTM))
        return bool(tells_state or not sequences.numel() or torch.are_deterministic_algorithms_enabled())

    @staticmethod
    def _state(last: Any, latest: Any, initial_state: Any) -> Any:
        """A GRU's state: its last output, or what it began with where no step counted."""
        if initial_state is None:
            return last
        start = initial_state[0] if isinstance(initial_state, list | tuple) else initial_state
        return torch.where(latest < 0, start.to(last.dtype), last)


def _without_mask(layer: Any, sequences: Any, initial_state: Any, training: Any) -> Any:
    """The layer's output at every step, in the order of its input, by Keras's own `call`.

    It is called on a shallow copy with settings of its own: the layer may be in use by another thread.
    """
    kind = type(layer)
    all_steps = object.__new__(kind)
    vars(all_steps).update(vars(layer), return_sequences=True, return_state=False, go_backwards=False)
    return kind.call(all_steps, sequences, initial_state=initial_state, mask=None, training=training)


def _take_steps(sequences: Any, steps: Any) -> Any:
    """The given steps of each sequence; zeros for a step of -1."""
    taken = torch.take_along_dim(sequences, steps.clamp(min=0)[..., None], dim=1)
    return torch.where((steps >= 0)[..., None], taken, 0)


RECURRENT = {keras.layers.LSTM: FusedRecurrent, keras.layers.GRU: FusedRecurrent}
