"""The few fields of protocol buffers that the compiler's options are written in."""


def integer_field(number: int, value: int) -> bytes:
    """A field that holds a whole number, zero or more.

    >>> integer_field(1, 150).hex()
    '089601'
    """
    return _varint(number << 3) + _varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field that holds text, bytes or a message.

    >>> bytes_field(2, b"testing").hex()
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
