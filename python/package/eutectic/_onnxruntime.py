"""Runs ONNX models with the interface of ONNX Runtime. Cases in which ONNX Runtime falls back are errors."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from . import _native
from ._native import Error, Model, Port

#: The backend for each provider of ONNX Runtime.
_PROVIDERS = {
    "CPUExecutionProvider": "cpu",
    "CUDAExecutionProvider": "cuda",
    "VulkanExecutionProvider": "vulkan",
}

#: ONNX Runtime's names of element types.
_TYPES = {
    "f32": "float",
    "f64": "double",
    "f16": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "u16": "uint16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "bool": "bool",
    "f8e4m3": "float8e4m3fn",
    "f8e5m2": "float8e5m2",
}

#: The number of programs that a session keeps, each for a combination of lengths of open dimensions.
_MOST_PROGRAMS = 16


class NodeArg(NamedTuple):
    """An input or an output: `shape` has numbers, and names of open dimensions."""

    name: str
    type: str
    shape: list[int | str]


def get_available_providers() -> list[str]:
    """Returns the providers whose backends this machine can run."""
    usable = {name for name, _, problem in _native.devices() if problem is None}
    return [provider for provider, backend in _PROVIDERS.items() if backend in usable]


class InferenceSession:
    """Runs an ONNX model.

    Only the first of `providers` is used. A missing backend, or an op that it cannot compute, is an error. The inputs of a run
    determine open dimensions. Each new combination of lengths is compiled, and the last 16 programs are kept. `shapes` sets
    numbers in advance, or `(least, most)` for one program of all lengths. Other options are those of `eutectic.load`.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        shapes: Mapping[str, int | tuple[int, int]] | None = None,
        **options: Any,
    ) -> None:
        self._provider = _provider(providers, provider_options)
        threads = getattr(sess_options, "intra_op_num_threads", 0)
        if threads:
            options.setdefault("threads", threads)
        self._source = path_or_bytes
        self._options = {**options, "backend": _PROVIDERS[self._provider]}
        self._shapes = dict(shapes or {})
        self._lock = threading.Lock()
        self._programs: dict[tuple[tuple[str, int], ...], Model] = {}
        self._inputs, self._outputs, open_dims = _native.declared(path_or_bytes)
        self._open = [name for name in open_dims if name not in self._shapes]
        if not self._open:
            model = self._program({})
            self._inputs, self._outputs = model.inputs, model.outputs

    def get_inputs(self) -> list[NodeArg]:
        """Returns the inputs, in order."""
        return [_node_arg(port) for port in self._inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Returns the outputs, in order."""
        return [_node_arg(port) for port in self._outputs]

    def get_providers(self) -> list[str]:
        """Returns the provider that the model runs on, in a list."""
        return [self._provider]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[numpy.ndarray]:
        """Runs the model once, and returns the outputs of these names, or all of them, in order."""
        if run_options is not None:
            raise Error("cannot use run_options because no option of a run is supported; leave them out")
        names = [port.name for port in self._outputs] if output_names is None else list(output_names)
        results = self._program(self._lengths(input_feed)).run(dict(input_feed), names)
        return [results[name] for name in names]

    def _lengths(self, feed: Mapping[str, Any]) -> dict[str, int]:
        """Returns the lengths of open dimensions from arrays. A run refuses arrays that do not fit."""
        if not self._open:
            return {}
        lengths: dict[str, int] = {}
        for port in self._inputs:
            dims = getattr(feed.get(port.name), "shape", ())
            for dim, length in zip(port.dims, dims):
                if dim in self._open:
                    lengths.setdefault(str(dim), int(length))
        missing = [name for name in self._open if name not in lengths]
        if missing:
            raise Error(f"cannot run because no input determines {', '.join(missing)}; give the arrays of all inputs")
        return lengths

    def _program(self, lengths: dict[str, int]) -> Model:
        key = tuple(sorted(lengths.items()))
        with self._lock:
            model = self._programs.pop(key, None)
            if model is None:
                from . import load

                model = load(self._source, shapes={**self._shapes, **lengths}, **self._options)
                while len(self._programs) >= _MOST_PROGRAMS:
                    del self._programs[next(iter(self._programs))]
            # The most recently used program is last, so that the first one is deleted.
            self._programs[key] = model
            return model


def _provider(
    providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
) -> str:
    if any(provider_options or ()) or any(not isinstance(name, str) and name[1] for name in providers or ()):
        raise Error("cannot use options of providers because none is supported; leave them out")
    names = [name if isinstance(name, str) else name[0] for name in providers or ["CPUExecutionProvider"]]
    unknown = [name for name in names if name not in _PROVIDERS]
    if unknown:
        raise Error(f"unknown providers: {', '.join(unknown)}; known are {', '.join(_PROVIDERS)}")
    return names[0]


def _node_arg(port: Port) -> NodeArg:
    return NodeArg(port.name, f"tensor({_TYPES[port.dtype]})", list(port.dims))
