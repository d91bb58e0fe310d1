"""Converts arrays that DLPack cannot export to arrays that it can."""

from typing import Any

import numpy

#: The types of ml_dtypes that programs have, each with the NumPy type for its bits.
_BITS = {"bfloat16": numpy.uint16, "float8_e4m3fn": numpy.uint8, "float8_e5m2": numpy.uint8}


def plain(value: Any) -> tuple[numpy.ndarray, str | None]:
    """Returns a copy of an array in NumPy's memory, and the name of its element type if NumPy does not have it."""
    if not hasattr(value, "dtype"):
        raise TypeError(f"a {type(value).__name__} is not an array; give numpy.asarray(value, dtype=…)")
    array = numpy.array(value, order="C")
    bits = _BITS.get(array.dtype.name)
    if bits is None:
        return array, None
    return array.view(bits), array.dtype.name
