"""The .npy format, as far as a list of counts needs it (NumPy, "numpy.lib.format")."""

import ast
import math
import re
import struct

MAGIC = b"\x93NUMPY"
_INTEGER = re.compile(r"([<>|=])([iu])([1248])\Z")
_LETTER = {1: "b", 2: "h", 4: "i", 8: "q"}
MOST_HEADER = 64 << 10


def is_npy(data: bytes) -> bool:
    """Whether it begins as numpy.save writes it."""
    return data.startswith(MAGIC)


def header(data: bytes) -> tuple[dict[str, object], int]:
    """The header and where the values begin; ValueError where it is none."""
    version, width = data[6:8], 2 if data[6:7] == b"\x01" else 4
    start = 8 + width
    if len(data) < start or version[0] not in (1, 2, 3):
        raise ValueError("expected an .npy file of version 1 to 3")
    length = int.from_bytes(data[8:start], "little")
    if length > MOST_HEADER or len(data) < start + length:
        raise ValueError("the .npy header is cut short")
    try:
        told = ast.literal_eval(data[start : start + length].decode("latin-1").strip())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ValueError("the .npy header is no dictionary") from None
    if not isinstance(told, dict) or not _is_shape(told.get("shape")):
        raise ValueError("the .npy header has no shape")
    return told, start + length


def _is_shape(shape: object) -> bool:
    return isinstance(shape, tuple) and all(isinstance(n, int) and 0 <= n < 1 << 63 for n in shape)


def length(data: bytes) -> int:
    """Entries along the first axis, from the header alone."""
    shape = header(data)[0]["shape"]
    assert isinstance(shape, tuple)
    if not shape:
        raise ValueError("the array has no axis to count along")
    return shape[0]


def integers(data: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and values, row by row; ValueError for anything that is not whole numbers."""
    told, start = header(data)
    match = _INTEGER.match(str(told.get("descr")))
    shape = told["shape"]
    assert isinstance(shape, tuple)
    if not match or (told.get("fortran_order") and len(shape) > 1):
        raise ValueError(f"expected whole numbers, the array holds {str(told.get('descr'))[:40]!r}")
    order, sign, size = match[1], match[2], int(match[3])
    count = math.prod(shape)
    if len(data) - start != count * size:
        raise ValueError(f"expected {count} values, the file ends elsewhere")
    letter = _LETTER[size] if sign == "i" else _LETTER[size].upper()
    return shape, struct.unpack_from(f"{'>' if order == '>' else '<'}{count}{letter}", data, start)
