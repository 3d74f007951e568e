"""The program that is compiled, freed of what changes from one run to the next and means nothing."""

from tensorflow.compiler.xla.service import hlo_pb2


def plain_program(hlo: bytes) -> bytes:
    """The same program without the numbers that TensorFlow gives to functions, and without lines of source files.

    It is then the same, byte for byte, whenever the same step is estimated.
    """
    module = hlo_pb2.HloModuleProto.FromString(hlo)
    module.name = "step"
    module.ClearField("id")
    module.ClearField("stack_frame_index")
    for computation in module.computations:
        if computation.name == module.entry_computation_name:
            computation.name = "step"
        for instruction in computation.instructions:
            op_name = instruction.metadata.op_name
            instruction.ClearField("metadata")
            instruction.metadata.op_name = op_name
    module.entry_computation_name = "step"
    return bytes(module.SerializeToString(deterministic=True))
