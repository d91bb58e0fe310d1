"""Makes tensor programs fast by declarative graph rewriting.

    import eutectic, numpy

    model = eutectic.load("model.onnx", shapes={"batch": 8})
    results = model.run({"x": numpy.zeros((8, 64), numpy.float32)})
    print(model.explain())

The types of elements are NumPy's. Elements of `bf16`, `f8e4m3` and `f8e5m2` are those of the package `ml_dtypes`, if it is installed;
otherwise arrays hold their bits (`uint16`, `uint8`). Arrays of bits are accepted in both cases.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ._native import Error, Model, Port, devices
from ._onnxruntime import InferenceSession, NodeArg, get_available_providers

__all__ = ["Error", "InferenceSession", "Model", "NodeArg", "Port", "devices", "get_available_providers", "load"]


def load(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    *,
    backend: str = "cpu",
    shapes: Mapping[str, int | tuple[int, int]] | None = None,
    params: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    rules: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    without: Sequence[str] = (),
    only: Sequence[str] = (),
    costs: str | os.PathLike[str] | None = None,
    fp: Literal["exact", "reassoc", "fast"] = "reassoc",
    precision: Literal["f32", "tf32", "f16", "bf16"] = "f32",
    threads: int | None = None,
) -> Model:
    """Opens a model, compiles it for a backend, and loads its parameters.

    source: an ONNX model (a file `NAME.onnx`, or its bytes) or a graph in text form (any other file, or its bytes).
    backend: the device to run on; `devices()` lists them. A backend that this machine lacks is an error.
    shapes: a number for each open dimension, or `(least, most)` for a run-time extent.
    params: parameters by name, or the path of a `.safetensors` file or of a checkpoint of torch. ONNX models contain their parameters.
    fixed: values of ONNX inputs that become constants, so that shapes may depend on them.
    rules: files or directories of additional rules; `without` and `only` select rules by patterns of names.
    costs: a file of costs, or "default" for the backend's own. By default, those that `eutectic tune` measured on this device.
    fp: the freedom of rules: `exact` keeps all bits, `reassoc` may round in another order, `fast` may approximate.
    precision: the type to which operands of products and attention may be rounded.
    threads: the number of threads of a run. By default, all that the process may use.

    Raises `Error` with everything that is wrong or not supported.
    """
    weights = params if isinstance(params, (str, os.PathLike)) else None
    named = {} if isinstance(params, (str, os.PathLike)) else dict(params or {})
    options = {
        "backend": backend,
        "threads": threads,
        "costs": costs,
        "rules": [rules] if isinstance(rules, (str, os.PathLike)) else list(rules),
        "without": list(without),
        "only": list(only),
        "fp": fp,
        "precision": precision,
    }
    return Model(
        bytes(source) if isinstance(source, memoryview) else source,
        dict(shapes or {}),
        dict(fixed or {}),
        weights,
        named,
        options,
    )
