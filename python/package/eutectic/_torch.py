"""Compiles for `torch.compile(model, backend="eutectic")`: `torch.onnx` exports the graph, and the engine loads it.

An op that cannot be exported or computed is an error that names it; nothing runs in torch instead.
"""

from __future__ import annotations

import logging
import pathlib
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import torch

from . import load
from ._native import Error


def compile_graph(
    module: torch.fx.GraphModule, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., list[Any]]:
    """Compiles a graph that dynamo traced; `options` are those of `eutectic.load`.

    Parameters and buffers are loaded once. A call after one of them was written in place is an error.
    """
    _refuse(examples)
    results = _results(module)
    names = [f"input_{number}" for number in range(len(examples))]
    known = {name: value for name, value in zip(names, examples) if _is_static(value)}
    model = _load(_export(module, examples, names), known, dict(options or {}))
    given = {port.name for port in model.inputs}
    outputs = [(port.name, port.dtype) for port in model.outputs]
    loaded = [(value, value._version, value.data_ptr()) for value in known.values()]
    places = [(number, name) for number, name in enumerate(names) if name in given]

    def run(*inputs: Any) -> list[Any]:
        for value, version, place in loaded:
            # A write increments the version; an assignment to `.data` does not.
            if value._version != version or value.data_ptr() != place:
                raise Error(
                    "cannot run because a parameter was written since it was compiled; call torch.compiler.reset()"
                )
        found = model.run({name: inputs[number].detach() for number, name in places})
        computed = (_tensor(found[name], dtype) for name, dtype in outputs)
        return [
            next(computed) if passed is _COMPUTED else inputs[passed] if passed is not None else None
            for passed in results
        ]

    return run


#: Marks a result that the model computes.
_COMPUTED = object()


def _is_static(value: torch.Tensor) -> bool:
    """Returns whether dynamo marks an input as the same tensor in each call: a parameter or a buffer."""
    return isinstance(value, torch.nn.Parameter) or getattr(value, "_dynamo_static_input_type", None) is not None


def _refuse(examples: Sequence[Any]) -> None:
    for value in examples:
        if not isinstance(value, torch.Tensor):
            raise Error("cannot compile for all lengths at once; give torch.compile dynamic=False")
        if value.device.type != "cpu":
            raise Error(f"cannot compile for tensors on {value.device}; move the model and its inputs to the processor")
        if value.requires_grad and torch.is_grad_enabled():
            raise Error("cannot compile for training; call the model within torch.no_grad()")


def _results(module: torch.fx.GraphModule) -> list[Any]:
    """Returns for each result: `_COMPUTED`, the index of an input, or None."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    storages = {_storage(node): node for node in placeholders}
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    results: list[Any] = []
    for value in output.args[0]:
        if value is None or value in placeholders:
            results.append(value if value is None else placeholders.index(value))
        elif not isinstance(value, torch.fx.Node) or not isinstance(value.meta.get("example_value"), torch.Tensor):
            raise Error(f"cannot compute the result {value} because it is not a tensor")
        elif _storage(value) in storages:
            raise Error(
                f"cannot compute the result {value} because it is part of the input {storages[_storage(value)]}; clone it"
            )
        else:
            results.append(_COMPUTED)
    return results


def _storage(node: torch.fx.Node) -> int:
    value = node.meta.get("example_value")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else id(node)


def _export(module: torch.fx.GraphModule, examples: Sequence[Any], names: list[str]) -> torch.onnx.ONNXProgram:
    """Exports the graph without the results that are inputs."""
    exported = _computed_only(module)
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(exported, tuple(examples), input_names=names, dynamo=True, verbose=False)
    except Exception as error:
        raise Error(f"cannot compile because torch.onnx cannot export the graph: {_cause(error)}") from error
    finally:
        logger.setLevel(level)
    if program is None or program.exported_program is None:
        raise Error("cannot compile because torch.onnx exports no program")
    signature = program.exported_program.graph_signature
    written = [*signature.user_inputs_to_mutate.values(), *signature.buffers_to_mutate.values()]
    if written:
        raise Error(f"cannot compile because the graph writes to {', '.join(written)}; return new values instead")
    return program


def _cause(error: BaseException) -> str:
    """Returns the first error of a chain, because later ones only add context."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error)


def _computed_only(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    graph.graph_copy(module.graph, copies)
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    computed = [copies[value] for value in output.args[0] if value is not None and value.op != "placeholder"]
    graph.output(tuple(computed))
    return torch.fx.GraphModule(module, graph)


def _load(program: torch.onnx.ONNXProgram, known: Mapping[str, torch.Tensor], options: dict[str, Any]) -> Any:
    """Loads an exported graph; inputs that are known become its weights."""
    from onnx_ir.tensor_adapters import TorchTensor

    graph = program.model.graph
    for value in list(graph.inputs):
        tensor = known.get(value.name or "")
        if tensor is not None:
            graph.inputs.remove(value)
            value.const_value = TorchTensor(tensor.detach().contiguous(), name=value.name)
            graph.initializers.add(value)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.onnx"
        program.save(path, external_data=True)
        return load(path, **options)


#: The torch types of elements whose arrays may hold bits instead.
_BITS = {"bf16": torch.bfloat16, "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}


def _tensor(array: numpy.ndarray, dtype: str) -> torch.Tensor:
    """Returns the memory of a result as a tensor."""
    if dtype not in _BITS:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"u{array.itemsize}")).view(_BITS[dtype])
