"""Tests the interface of ONNX Runtime."""

import eutectic
import numpy
import pytest
from conftest import GOLDEN, golden

MLP = GOLDEN / "onnx" / "mlp-new.onnx"


@pytest.mark.parametrize("make", [str, lambda path: path, lambda path: path.read_bytes()])
def test_a_session_runs(make):
    inputs, outputs = golden("mlp-new")
    session = eutectic.InferenceSession(make(MLP), providers=["CPUExecutionProvider"])
    assert session.get_inputs() == [eutectic.NodeArg("x", "tensor(float)", ["batch", 12])]
    assert [(arg.name, arg.type) for arg in session.get_outputs()] == [("y", "tensor(float)")]
    assert session.get_providers() == ["CPUExecutionProvider"]
    for names in (None, ["y"], ["y", "y"]):
        results = session.run(names, inputs)
        assert len(results) == len(names or ["y"])
        numpy.testing.assert_allclose(results[-1], outputs["y"], rtol=1e-5, atol=1e-6)


def test_open_dimensions_get_the_lengths_of_arrays(rng):
    session = eutectic.InferenceSession(MLP)
    x = rng.normal(size=(20, 12)).astype(numpy.float32)
    whole = session.run(None, {"x": x})[0]
    # These are more lengths than a session keeps programs.
    for length in [*range(1, 20), 1, 5]:
        part = session.run(None, {"x": x[:length]})[0]
        numpy.testing.assert_allclose(part, whole[:length], rtol=1e-5, atol=1e-6)
    assert len(session._programs) == 16


def test_one_program_serves_bounded_dimensions(rng):
    session = eutectic.InferenceSession(MLP, shapes={"batch": (1, 20)})
    x = rng.normal(size=(20, 12)).astype(numpy.float32)
    whole = session.run(None, {"x": x})[0]
    for length in [20, 1, 7]:
        part = session.run(None, {"x": x[:length]})[0]
        numpy.testing.assert_allclose(part, whole[:length], rtol=1e-5, atol=1e-6)
    assert len(session._programs) == 1
    assert eutectic.load(MLP, shapes={"batch": (1, 20)}).extents == {"batch": (1, 20)}


def test_shapes_are_given_in_advance():
    session = eutectic.InferenceSession(MLP, shapes={"batch": 3})
    assert session.get_inputs()[0].shape == [3, 12] and session.get_outputs()[0].shape == [3, 5]
    with pytest.raises(eutectic.Error, match=r"but f32\[4 12\] was given"):
        session.run(None, {"x": numpy.zeros((4, 12), numpy.float32)})


class Options:
    intra_op_num_threads = 1


def test_supported_options_are_used():
    inputs, outputs = golden("mlp-new")
    session = eutectic.InferenceSession(MLP, Options(), fp="exact")
    numpy.testing.assert_allclose(session.run(None, inputs)[0], outputs["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"providers": ["TensorrtExecutionProvider", "CPUExecutionProvider"]}, "unknown providers: TensorrtExecutionProvider"),
        ({"providers": [("CPUExecutionProvider", {"arena": 1})]}, "cannot use options of providers"),
        ({"provider_options": [{"arena": 1}]}, "cannot use options of providers"),
        ({"shapes": {"b": 1}}, "no dimension `b`; did you mean `batch`"),
    ],
)
def test_unsupported_options_are_errors(arguments, message):
    with pytest.raises(eutectic.Error, match=message):
        session = eutectic.InferenceSession(MLP, **arguments)
        session.run(None, {"x": numpy.zeros((1, 12), numpy.float32)})


def test_a_missing_provider_is_an_error_and_no_other_is_used():
    available = eutectic.get_available_providers()
    assert "CPUExecutionProvider" in available
    for provider in {"CUDAExecutionProvider", "VulkanExecutionProvider"} - set(available):
        with pytest.raises(eutectic.Error, match="cannot open the backend"):
            eutectic.InferenceSession(MLP, providers=[provider, "CPUExecutionProvider"], shapes={"batch": 1})


def test_runs_that_do_not_fit_say_why():
    session = eutectic.InferenceSession(MLP)
    x = numpy.zeros((2, 12), numpy.float32)
    with pytest.raises(eutectic.Error, match="cannot run because no input determines batch"):
        session.run(None, {})
    with pytest.raises(eutectic.Error, match="no output `z`"):
        session.run(["z"], {"x": x})
    with pytest.raises(eutectic.Error, match="no input `z`"):
        session.run(None, {"x": x, "z": x})
    with pytest.raises(eutectic.Error, match="run_options"):
        session.run(None, {"x": x}, object())
    with pytest.raises(eutectic.Error, match="f64"):
        session.run(None, {"x": x.astype(numpy.float64)})
    for wrong in (b"", b"garbage"):
        with pytest.raises(eutectic.Error, match="not a valid ONNX model"):
            eutectic.InferenceSession(wrong)
