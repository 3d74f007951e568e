"""XLA's GPU compiler as a shared library, spoken to through its C interface.

The library needs neither JAX nor a GPU, so its version is free of whatever JAX is installed. The interface (PJRT, in
XLA's `pjrt/c/pjrt_c_api.h`) keeps its layout between versions: functions and fields are only added at the end.
"""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

Option = int | bool | str
Format = Literal["hlo", "mlir"]
_Pointer, _Text, _Size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t

# Where the table of functions starts, and the places in it of those that are called here.
_TABLE_OFFSET = 40
_ERROR_MESSAGE, _PLUGIN_INITIALIZE, _TOPOLOGY_CREATE, _COMPILE = 1, 3, 82, 89


class PjrtError(Exception):
    """What the library says is wrong."""


class _Arguments(ctypes.Structure):
    """What every function takes: a structure that tells its size."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = (("struct_size", _Size), ("extension", _Pointer))

    def __init__(self, **fields: object) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class _Error(_Arguments):
    _fields_ = (("error", _Pointer), ("message", _Pointer), ("message_size", _Size))


class _NamedText(_Arguments):
    _fields_ = (
        ("name", _Text),
        ("name_size", _Size),
        ("type", ctypes.c_int),
        ("value", _Text),
        ("value_size", _Size),
    )


class _Topology(_Arguments):
    _fields_ = (
        ("name", _Text),
        ("name_size", _Size),
        ("options", ctypes.POINTER(_NamedText)),
        ("num_options", _Size),
        ("topology", _Pointer),
    )


class _Program(_Arguments):
    _fields_ = (("code", _Text), ("code_size", _Size), ("format", _Text), ("format_size", _Size))


class _Compile(_Arguments):
    _fields_ = (
        ("topology", _Pointer),
        ("program", ctypes.POINTER(_Program)),
        ("options", _Text),
        ("options_size", _Size),
        ("client", _Pointer),
        ("executable", _Pointer),
    )


class Library:
    """The compiler in one shared library."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.GetPjrtApi.restype = _Pointer
        self._api = self._library.GetPjrtApi()
        self._call(_PLUGIN_INITIALIZE, _Arguments())

    def compile(self, code: bytes, code_format: Format, target: str, options: Mapping[str, Option]) -> None:
        """Compile a program for the card that `target` describes. Raises PjrtError.

        In the format "hlo" it is a serialized `HloModuleProto`, compiled as TensorFlow does; in "mlir" StableHLO,
        compiled as JAX does.
        """
        described = {"target_config": target.encode(), "topology": b"1x1x1"}
        named = [
            _NamedText(name=name.encode(), name_size=len(name), value=value, value_size=len(value))
            for name, value in described.items()
        ]
        topology = _Topology(name=b"", options=(_NamedText * len(named))(*named), num_options=len(named))
        self._call(_TOPOLOGY_CREATE, topology)
        name = code_format.encode()
        program = _Program(code=code, code_size=len(code), format=name, format_size=len(name))
        written = _compile_options(options, alias_passed_through=code_format == "hlo")
        self._call(
            _COMPILE,
            _Compile(
                topology=topology.topology,
                program=ctypes.pointer(program),
                options=written,
                options_size=len(written),
            ),
        )

    def _call(self, place: int, arguments: _Arguments) -> None:
        if error := self._function(place)(ctypes.addressof(arguments)):
            told = _Error(error=error)
            self._function(_ERROR_MESSAGE)(ctypes.addressof(told))
            raise PjrtError(ctypes.string_at(told.message, told.message_size).decode(errors="replace"))

    def _function(self, place: int) -> "ctypes._FuncPointer":
        table = ctypes.cast(self._api + _TABLE_OFFSET, ctypes.POINTER(_Pointer))
        return ctypes.CFUNCTYPE(_Pointer, _Pointer)(table[place] or 0)


def _compile_options(flags: Mapping[str, Option], *, alias_passed_through: bool) -> bytes:
    """A `CompileOptionsProto` for one device.

    TensorFlow has what a program passes through not copied; JAX tells in the program what is donated.
    """
    device_assignment = _integer_field(1, 1) + _integer_field(2, 1) + _bytes_field(3, _bytes_field(1, b"\0"))
    build_options = (
        _integer_field(4, 1)  # replicas
        + _integer_field(5, 1)  # partitions
        + _bytes_field(9, device_assignment)
        + _integer_field(10, int(alias_passed_through))  # alias_passthrough_params
    )
    overrides = [_bytes_field(1, name.encode()) + _bytes_field(2, _option(value)) for name, value in flags.items()]
    return _bytes_field(3, build_options) + b"".join(_bytes_field(7, override) for override in overrides)


def _option(value: Option) -> bytes:
    if isinstance(value, bool):
        return _integer_field(2, int(value))
    return _integer_field(3, value) if isinstance(value, int) else _bytes_field(1, value.encode())


def _integer_field(number: int, value: int) -> bytes:
    """A protocol buffer field that holds a whole number, zero or more.

    >>> _integer_field(1, 150).hex()
    '089601'
    """
    return _varint(number << 3) + _varint(value)


def _bytes_field(number: int, value: bytes) -> bytes:
    """A protocol buffer field that holds text, bytes or a message.

    >>> _bytes_field(2, b"testing").hex()
    '120774657374696e67'
    """
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)
