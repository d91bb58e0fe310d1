"""The native part of the package `eutectic`."""

from os import PathLike
from typing import Any, final

import numpy

from ._explain import Explanation

class Error(Exception):
    """The reason why the engine cannot load or run a model."""

@final
class Port:
    """An input, an output or a state of a model."""

    @property
    def name(self) -> str:
        """The name."""
    @property
    def dtype(self) -> str:
        """The element type: `f32`, `bf16`, `i64`, `bool`, …"""
    @property
    def dims(self) -> list[int | str]:
        """The extents: numbers, or names of run-time extents."""

@final
class Model:
    """A compiled model with its parameters, its states, and memory for its runs. `eutectic.load` makes one.

    Any number of threads may use it. Runs of one model are computed one after the other, and a `fork` can run at the
    same time.
    """

    def __new__(
        cls,
        source: str | PathLike[str] | bytes | bytearray,
        shapes: dict[str, int | tuple[int, int]],
        fixed: dict[str, Any],
        weights: str | PathLike[str] | None,
        params: dict[str, Any],
        options: dict[str, Any],
        /,
    ) -> Model: ...
    def run(self, inputs: dict[str, Any], /, outputs: list[str] | None = None) -> dict[str, numpy.ndarray]:
        """Runs the model once, and returns the outputs by name; `outputs` names those that are wanted.

        Inputs are arrays with `__dlpack__` in host memory: of NumPy, torch, JAX and others. They are read in place if
        they are contiguous in row-major order, and copied otherwise. They must not change during the run. Results are
        new arrays. Other threads continue during a run.
        """
    def read(self, state: str) -> numpy.ndarray:
        """Returns the values of a state."""
    def write(self, state: str, value: Any) -> None:
        """Sets the values of a state."""
    def clear(self) -> None:
        """Sets all states to zeros, as in a new model."""
    def set_length(self, name: str, length: int) -> None:
        """Sets the length of a run-time extent that no input determines, such as that of a state."""
    def fork(self) -> Model:
        """Returns a model that shares the parameters and has its own copies of the states."""
    def kernels(self) -> list[dict[str, Any]]:
        """Returns the kernels of the plan. Repeated layers count once."""
    def explain(self) -> Explanation:
        """Explains the kernels, as text or as a table in a notebook."""
    @property
    def inputs(self) -> list[Port]:
        """The inputs, in order."""
    @property
    def outputs(self) -> list[Port]:
        """The outputs, in order."""
    @property
    def states(self) -> list[Port]:
        """The states, which persist between runs."""
    @property
    def extents(self) -> dict[str, tuple[int, int]]:
        """The run-time extents, each with its least and largest length."""
    @property
    def backend(self) -> str:
        """The name of the backend that the model runs on."""

def devices() -> list[tuple[str, str, str | None]]:
    """Returns each backend: its name, its kind of device, and `None` or the reason why it cannot be opened."""

def declared(source: str | PathLike[str] | bytes, /) -> tuple[list[Port], list[Port], list[str]]:
    """Returns the inputs and the outputs that an ONNX model declares, and the names of its dimensions that need a number."""
