"""Weights and activations in 8 bits, with scales found on real images."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write_litert(model: Any, path: Path, images: Any) -> None:
    """Write a LiteRT file whose weights and activations are int8; images go in and answers come out as float32."""
    import tensorflow as tf

    def representative_dataset() -> Iterator[list[Any]]:
        for image in images:
            yield [image[None]]

    model.export(
        str(path),
        format="litert",
        verbose=False,
        optimizations=[tf.lite.Optimize.DEFAULT],
        representative_dataset=representative_dataset,
    )


def quantize_onnx(source: Path, path: Path, images: Any) -> None:
    """Write an ONNX file whose convolutions and matrix products are int8, from one in float32."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    name = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"]).get_inputs()[0].name

    class Images(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(images)

        def get_next(self) -> dict[str, Any] | None:
            image = next(self._left, None)
            return None if image is None else {name: image[None]}

    with tempfile.TemporaryDirectory(prefix="fitroom-export-") as folder:
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(path),
            Images(),
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )


def quantized_share(format_name: str, path: Path) -> float | None:
    """The share of the numbers in a file that are stored in 8 bits; None where the format does not tell."""
    sizes = {"onnx": _onnx_sizes, "litert": _litert_sizes}.get(format_name)
    if sizes is None:
        return None
    small, everything = sizes(path)
    return small / everything if everything else None


def _onnx_sizes(path: Path) -> tuple[int, int]:
    import numpy as np
    import onnx

    small = everything = 0
    for tensor in onnx.load(str(path)).graph.initializer:
        count = int(np.prod(tensor.dims))
        if tensor.data_type in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8):
            small += count
            everything += count
        elif tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.INT32):
            everything += count
    return small, everything


def _litert_sizes(path: Path) -> tuple[int, int]:
    import numpy as np
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(path.read_bytes(), 0))
    small = everything = 0
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            data = model.buffers[tensor.buffer].data
            if data is None or not len(data) or tensor.shape is None:
                continue
            count = int(np.prod(tensor.shape))
            everything += count
            small += count if tensor.type in (schema.TensorType.INT8, schema.TensorType.UINT8) else 0
    return small, everything


def quantize_by_keras(model: Any) -> None:
    """Quantize a model without convolutions in place, by Keras's own `quantize`."""
    model.quantize("int8")


def has_convolutions(model: Any) -> bool:
    """Whether a model has convolutions, which Keras's own quantization does not serve."""
    from fitroom.keras_model.private import all_layers

    return any("Conv" in type(layer).__name__ for layer in all_layers(model))
