"""Contains the models that tests share, and their expected results."""

import json
import pathlib

import numpy
import pytest

GOLDEN = pathlib.Path(__file__).parents[2] / "models" / "golden"

#: A dense layer for any number of rows.
MLP = b"""
(graph "mlp"
  (input x f32[B 12])
  (param w f32[12 8])
  (param b f32[8])
  (output y (act (add (matmul x w) b) :kind relu))
  (output total (reduce-sum (matmul x w) :axes [1] :keep false)))
"""


def golden(name: str) -> tuple[dict[str, numpy.ndarray], dict[str, numpy.ndarray]]:
    """Returns the inputs of an exported model, and the outputs that its framework computed."""
    data = (GOLDEN / "onnx" / f"{name}.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    types = {"F32": numpy.float32, "I64": numpy.int64, "I32": numpy.int32}
    arrays = {}
    for key, entry in json.loads(data[8:start]).items():
        if key != "__metadata__":
            first, last = entry["data_offsets"]
            arrays[key] = numpy.frombuffer(data[start + first : start + last], types[entry["dtype"]]).reshape(
                entry["shape"]
            )

    def of(kind: str) -> dict[str, numpy.ndarray]:
        return {key.removeprefix(kind): array for key, array in arrays.items() if key.startswith(kind)}

    return of("in."), of("out.")


@pytest.fixture
def rng() -> numpy.random.Generator:
    return numpy.random.default_rng(1)


@pytest.fixture
def mlp_params(rng: numpy.random.Generator) -> dict[str, numpy.ndarray]:
    return {"w": rng.normal(size=(12, 8)).astype(numpy.float32), "b": rng.normal(size=8).astype(numpy.float32)}
