"""Tests opening models: ONNX and text, paths and bytes, options, and errors."""

import json
import struct

import eutectic
import numpy
import pytest
from conftest import GOLDEN, MLP, golden

ONNX = GOLDEN / "onnx" / "mlp-new.onnx"


@pytest.mark.parametrize("name", ["mlp-new", "mlp-old", "cnn-new", "bert-sdpa-new", "recurrent"])
def test_exported_models_compute_what_their_framework_did(name):
    inputs, outputs = golden(name)
    path = GOLDEN / "onnx" / f"{name}.onnx"
    shapes = lengths(eutectic._native.declared(path)[0], inputs)
    results = eutectic.load(path, shapes=shapes).run(inputs)
    found = numpy.concatenate([results[name].ravel() for name in results])
    numpy.testing.assert_allclose(found, outputs["y"].ravel(), rtol=1e-4, atol=1e-5)


def lengths(ports, inputs):
    pairs = [pair for port in ports for pair in zip(port.dims, inputs[port.name].shape)]
    return {dim: length for dim, length in pairs if isinstance(dim, str)}


@pytest.mark.parametrize(
    "make", [str, lambda path: path, lambda path: path.read_bytes(), lambda path: bytearray(path.read_bytes())]
)
def test_a_model_is_a_path_or_bytes(make):
    inputs, outputs = golden("mlp-new")
    model = eutectic.load(make(ONNX), shapes={"batch": 3})
    numpy.testing.assert_allclose(model.run(inputs)["y"], outputs["y"], rtol=1e-5, atol=1e-6)


def test_text_is_a_file_or_bytes(tmp_path, mlp_params, rng):
    path = tmp_path / "mlp.graph"
    path.write_bytes(MLP)
    x = rng.normal(size=(3, 12)).astype(numpy.float32)
    expected = numpy.maximum(x @ mlp_params["w"] + mlp_params["b"], 0)
    for source in (path, MLP, memoryview(MLP)):
        model = eutectic.load(source, shapes={"B": 3}, params=mlp_params)
        numpy.testing.assert_allclose(model.run({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)


def test_ports_tell_names_types_and_extents(mlp_params):
    model = eutectic.load(MLP, shapes={"B": 3}, params=mlp_params)
    assert [(port.name, port.dtype, port.dims) for port in model.inputs] == [("x", "f32", [3, 12])]
    assert [(port.name, port.dims) for port in model.outputs] == [("y", [3, 8]), ("total", [3])]
    assert model.states == [] and model.extents == {} and model.backend == "cpu"
    assert repr(model) == "<Model on cpu: <Port x f32[3 12]> to <Port y f32[3 8]>, <Port total f32[3]>>"
    assert model.inputs[0] == model.inputs[0] and model.inputs[0] != model.outputs[0]


def test_parameters_come_from_a_file(tmp_path, mlp_params, rng):
    header, data = {}, b""
    for name, array in mlp_params.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path = tmp_path / "mlp.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    x = rng.normal(size=(2, 12)).astype(numpy.float32)
    from_file = eutectic.load(MLP, shapes={"B": 2}, params=path).run({"x": x})
    given = eutectic.load(MLP, shapes={"B": 2}, params=mlp_params).run({"x": x})
    numpy.testing.assert_array_equal(from_file["y"], given["y"])


def test_parameters_are_copied(mlp_params, rng):
    x = rng.normal(size=(2, 12)).astype(numpy.float32)
    model = eutectic.load(MLP, shapes={"B": 2}, params=mlp_params)
    before = model.run({"x": x})["y"]
    mlp_params["w"][:] = 0
    numpy.testing.assert_array_equal(model.run({"x": x})["y"], before)


def test_parameters_of_an_onnx_model_can_be_replaced():
    inputs, _ = golden("mlp-new")
    model = eutectic.load(ONNX, shapes={"batch": 3})
    name, shape = next((name, shape) for name, shape in onnx_params(ONNX) if len(shape) == 2)
    zeros = eutectic.load(ONNX, shapes={"batch": 3}, params={name: numpy.zeros(shape, numpy.float32)})
    assert not numpy.allclose(zeros.run(inputs)["y"], model.run(inputs)["y"])


def onnx_params(path):
    """Returns the names and extents of parameters, as errors about a wrong name and a wrong type state them."""
    with pytest.raises(eutectic.Error) as error:
        eutectic.load(path, shapes={"batch": 3}, params={"no such": numpy.zeros(1, numpy.float32)})
    names = str(error.value).split("it has ")[1].split(", ")
    for name in names:
        with pytest.raises(eutectic.Error) as error:
            eutectic.load(path, shapes={"batch": 3}, params={name: numpy.zeros((0, 0, 0), numpy.float32)})
        dims = str(error.value).split("f32[")[1].split("]")[0]
        yield name, tuple(map(int, dims.split()))


def test_rules_change_the_plan(tmp_path):
    directory = tmp_path / "rules"
    directory.mkdir()
    rule = """
;; some columns of a product are a product with some columns
(rule mine/columns-of-product
  (forall (F float) (?x F[B.. M K]) (?w F[K N] const))
  (=> (slice (matmul ?x ?w) :axis -1 :at I :len L :step 1) (matmul ?x (slice ?w :axis -1 :at I :len L)))
  (eq exact))
"""
    (directory / "mine.rules").write_text(rule)
    graph = b'(graph "g" (input x f32[4 8]) (param w f32[8 6]) (output y (slice (matmul x w) :axis -1 :at 1 :len 2)))'
    params = {"w": numpy.ones((8, 6), numpy.float32)}
    for rules in (directory, [directory], directory / "mine.rules"):
        model = eutectic.load(graph, params=params, rules=rules)
        assert "mine/columns-of-product" in str(model.explain())
    assert "mine/" not in str(eutectic.load(graph, params=params, rules=directory, without=["mine/*"]).explain())
    (tmp_path / "empty").mkdir()
    with pytest.raises(eutectic.Error, match="because it contains none"):
        eutectic.load(graph, params=params, rules=tmp_path / "empty")


def test_graphs_name_ops_that_rules_or_they_themselves_declare(tmp_path):
    declared = """
(op mine/squared-relu (forall (F float) (?x F[A..]) (?k float :default 1.0)) (result F[A..])
  (is (mul (mul (act ?x :kind relu) (act ?x :kind relu)) ?k)))
"""
    graph = '(graph "g" (input x f32[3]) (output y (mine/squared-relu x :k 0.5)))'
    rules = tmp_path / "own.rules"
    rules.write_text(declared)
    x = numpy.array([-1.0, 2.0, 4.0], numpy.float32)
    for model in (eutectic.load(graph.encode(), rules=rules), eutectic.load((declared + graph).encode())):
        assert model.run({"x": x})["y"].tolist() == [0.0, 2.0, 8.0]
        assert "decompose/mine/squared-relu" in str(model.explain())
    with pytest.raises(eutectic.Error, match="there is no op `mine/squared-relu`"):
        eutectic.load(graph.encode())


def test_contracts_and_precisions(mlp_params):
    for fp in ("exact", "reassoc", "fast"):
        eutectic.load(MLP, shapes={"B": 2}, params=mlp_params, fp=fp)
    for precision in ("f32", "tf32", "f16", "bf16"):
        eutectic.load(MLP, shapes={"B": 2}, params=mlp_params, precision=precision)


def test_a_rule_that_is_wrong_is_shown_with_its_place(tmp_path):
    (tmp_path / "wrong.rules").write_text("\n\n(rule mine/wrong (forall (?x f32[A..])) (=> (nop ?x) ?x) (eq exact))")
    with pytest.raises(eutectic.Error, match=r"wrong\.rules:3: .*nop"):
        eutectic.load(MLP, rules=tmp_path)


def test_one_thread_computes_the_same(mlp_params, rng):
    x = rng.normal(size=(64, 12)).astype(numpy.float32)
    one = eutectic.load(MLP, shapes={"B": 64}, params=mlp_params, threads=1).run({"x": x})
    all_threads = eutectic.load(MLP, shapes={"B": 64}, params=mlp_params).run({"x": x})
    numpy.testing.assert_array_equal(one["y"], all_threads["y"])


def test_a_constant_input_may_decide_shapes():
    path = GOLDEN / "onnx" / "mlp-new.onnx"
    inputs, outputs = golden("mlp-new")
    model = eutectic.load(path, shapes={"batch": 3}, fixed=inputs)
    assert model.inputs == []
    numpy.testing.assert_allclose(model.run({})["y"], outputs["y"], rtol=1e-5, atol=1e-6)


GRAPH = b'(graph "g" (input x f32[B 2]) (output y (neg x)))'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r'without a number.*give shapes=\{"B": N\}'),
        ({"shapes": {"C": 1}}, r"no dimension `C`.*B"),
        ({"shapes": {"B": (3, 1)}}, r"cannot set `B` to 3 to 1"),
        ({"shapes": {"B": -1}}, r"-1"),
        ({"shapes": {"B": 1 << 62}}, r"does not fit into memory"),
        ({"shapes": {"B": 1}, "backend": "cqu"}, r"no backend is named `cqu`, did you mean `cpu`"),
        ({"shapes": {"B": 1}, "fp": "loose"}, r'the option fp has the unknown value "loose"; it must be one of exact, reassoc, fast'),
        ({"shapes": {"B": 1}, "precision": "f8"}, r'precision has the unknown value "f8"'),
        ({"shapes": {"B": 1}, "params": {"w": numpy.zeros(1)}}, r"no parameter `w`"),
        ({"shapes": {"B": 1}, "params": "/no/such.safetensors"}, r"/no/such.safetensors"),
        ({"shapes": {"B": 1}, "fixed": {"x": numpy.zeros(1)}}, r"cannot fix `x`"),
        ({"shapes": {"B": 1}, "rules": "/no/such/rules"}, r"cannot read /no/such/rules"),
        ({"shapes": {"B": 1}, "costs": "/no/such/costs"}, r"cannot read /no/such/costs"),
        ({"shapes": {"B": 1}, "without": ["no/such"]}, r"no rule is named `no/such`"),
        ({"shapes": {"B": 1}, "only": ["no/such"]}, r"no rule is named `no/such`"),
    ],
)
def test_wrong_options_are_errors_with_reasons(options, message):
    with pytest.raises(eutectic.Error, match=message):
        eutectic.load(GRAPH, **options)


def test_a_file_that_is_not_of_costs_is_refused(tmp_path):
    (tmp_path / "costs").write_text("no costs")
    with pytest.raises(eutectic.Error, match="costs"):
        eutectic.load(GRAPH, shapes={"B": 1}, costs=tmp_path / "costs")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("no-such.graph", None, "cannot read .*no-such.graph"),
        ("no-such.onnx", None, "no-such.onnx"),
        ("broken.onnx", b"\x08\x07garbage", "not a valid ONNX model"),
        ("empty.onnx", b"", "not a valid ONNX model"),
        ("empty.graph", b"", "error"),
        ("binary.graph", b"\xff\xfe\x00", "it is not text"),
        ("language.gguf", b"GGUF", "language model"),
        ("two.graph", b'(graph "a")\n(graph "b")', "not a single graph"),
        ("open.graph", b'(graph "a"', "error"),
        ("unknown.graph", b'\n(graph "a" (input x f32[2]) (output y (nop x)))', r"unknown.graph:2: .*nop"),
    ],
)
def test_files_that_hold_no_model_say_so(tmp_path, name, data, message):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(eutectic.Error, match=message):
        eutectic.load(tmp_path / name)
    with pytest.raises(eutectic.Error, match="Is a directory|cannot read"):
        eutectic.load(tmp_path)


@pytest.mark.parametrize("data", [b"", b"\x08\x07garbage", b"(graph", b"\x00" * 64, b"(\xff"])
def test_bytes_that_hold_no_model_say_so(data):
    with pytest.raises(eutectic.Error, match="<bytes>"):
        eutectic.load(data)


def test_missing_parameters_are_all_named():
    with pytest.raises(eutectic.Error, match=r"(?s)`w` f32\[12 8\].*`b` f32\[8\]"):
        eutectic.load(MLP, shapes={"B": 2})


def test_parameters_of_types_that_numpy_lacks_are_bits():
    text = b'(graph "g" (input x bf16[2]) (param w bf16[2]) (output y (mul x w)))'
    # 1.5 and −2 in the upper halves of f32.
    two, w = numpy.array([0x4000, 0x4000], numpy.uint16), numpy.array([0x3FC0, 0xC000], numpy.uint16)
    y = eutectic.load(text, params={"w": w}).run({"x": two})["y"]
    assert y.view(numpy.uint16).tolist() == [0x4040, 0xC080]
    with pytest.raises(eutectic.Error, match=r"`w` is bf16\[2\], but i16\[2\] was given"):
        eutectic.load(text, params={"w": w.astype(numpy.int16)})


def test_arguments_of_other_types_are_type_errors():
    for arguments in ((1,), (None,), ([],)):
        with pytest.raises(TypeError):
            eutectic.load(*arguments)
    for options in ({"shapes": {"B": "1"}}, {"shapes": {"B": 1.5}}, {"shapes": {"B": (1, 2, 3)}}, {"threads": "2"}):
        with pytest.raises(TypeError):
            eutectic.load(GRAPH, **options)
    with pytest.raises((ValueError, TypeError)):
        eutectic.load(GRAPH, shapes={"B": 1}, threads=0)


def test_devices_are_listed_with_the_reasons_for_missing_ones():
    devices = {name: problem for name, _, problem in eutectic.devices()}
    assert set(devices) == {"cpu", "cuda", "vulkan"} and devices["cpu"] is None
    for name, problem in devices.items():
        if problem is not None:
            with pytest.raises(eutectic.Error, match=f"cannot open the backend `{name}`"):
                eutectic.load(GRAPH, shapes={"B": 1}, backend=name)
