"""The .npy format, as far as a list of counts needs it (NumPy, "numpy.lib.format")."""

import ast
import math
import re
import struct
from typing import cast

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


def length(data: bytes, size: int) -> int:
    """Entries along the first axis; the header is believed where the file of `size` bytes, whose
    beginning is `data`, is as long as it says. ValueError where it is not."""
    told, start = header(data)
    shape = told["shape"]
    assert isinstance(shape, tuple)
    if not shape:
        raise ValueError("the array has no axis to count along")
    each = _item_size(told.get("descr"))
    if each is None:
        raise ValueError(
            f"an array of {str(told.get('descr'))[:40]!r}: its length cannot be proved"
        )
    there, promised = size - start, math.prod(shape) * each
    if there < promised:
        raise ValueError(f"cut short: {promised:,} bytes of values are promised, {there:,} there")
    if there > promised:
        raise ValueError(f"{there - promised:,} bytes more than its header says: several arrays?")
    return shape[0]


_PLAIN = re.compile(r"[<>|=]?([biufcmMSUV])(\d{1,9})(?:\[\w+\])?\Z")


def _item_size(descr: object) -> int | None:
    """Bytes of one entry; None for Python objects, whose pickles have any size."""
    if isinstance(descr, str):
        match = _PLAIN.match(descr)
        return int(match[2]) * (4 if match[1] == "U" else 1) if match else None
    if not isinstance(descr, list):
        return None
    whole = 0
    for field in cast("list[object]", descr):  # ('name', '<i8') or ('name', '<f4', (3,))
        parts = list(cast("tuple[object, ...]", field)) if isinstance(field, tuple) else []
        each = _item_size(parts[1]) if len(parts) in (2, 3) else None
        times = parts[2] if len(parts) == 3 else ()
        if each is None or not _is_shape(times):
            return None
        whole += each * math.prod(cast("tuple[int, ...]", times))
    return whole


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
