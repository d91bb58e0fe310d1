"""Tests runs: inputs of every layout and type, outputs, and errors."""

import eutectic
import numpy
import pytest
from conftest import MLP

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

#: The NumPy types of the element types that ops compute with.
COMPUTED = {
    "f32": numpy.float32,
    "f64": numpy.float64,
    "f16": numpy.float16,
    "i8": numpy.int8,
    "u8": numpy.uint8,
    "i32": numpy.int32,
    "u32": numpy.uint32,
    "i64": numpy.int64,
}
STORED = {"i16": numpy.int16, "u16": numpy.uint16}
#: Element types that NumPy lacks, each with the type of its bits and its name in ml_dtypes.
BITS = {
    "bf16": (numpy.uint16, "bfloat16"),
    "f8e5m2": (numpy.uint8, "float8_e5m2"),
    "f8e4m3": (numpy.uint8, "float8_e4m3fn"),
}


def graph(body: str) -> bytes:
    return f'(graph "g" {body})'.encode()


def transposed(dtype: str, dims: str = "3 4") -> eutectic.Model:
    return eutectic.load(graph(f"(input x {dtype}[{dims}]) (output y (transpose x :perm [1 0]))"))


@pytest.mark.parametrize("dtype", COMPUTED)
def test_each_type_that_computes(dtype, rng):
    model = eutectic.load(graph(f"(input x {dtype}[5 7]) (input z {dtype}[5 7]) (output y (add x z))"))
    x, z = (rng.integers(0, 50, size=(5, 7)).astype(COMPUTED[dtype]) for _ in range(2))
    y = model.run({"x": x, "z": z})["y"]
    assert y.dtype == COMPUTED[dtype]
    numpy.testing.assert_array_equal(y, x + z)


@pytest.mark.parametrize("dtype", {**COMPUTED, **STORED, "bool": bool})
def test_each_type_is_moved_bit_for_bit(dtype, rng):
    numpy_type = numpy.dtype({**COMPUTED, **STORED, "bool": bool}[dtype])
    x = rng.integers(0, 2, size=(3, 4)).astype(bool)
    if dtype != "bool":
        x = rng.integers(0, 256, size=(3, 4 * numpy_type.itemsize), dtype=numpy.uint8).view(numpy_type)
    y = transposed(dtype).run({"x": x})["y"]
    assert y.dtype == numpy_type and y.tobytes() == x.T.tobytes()


@pytest.mark.parametrize("dtype", BITS)
def test_types_that_numpy_lacks_are_bits_or_ml_dtypes(dtype, rng):
    bits, name = BITS[dtype]
    x = rng.integers(0, 100, size=(3, 4)).astype(bits)
    y = transposed(dtype).run({"x": x})["y"]
    assert y.dtype == (bits if ml_dtypes is None else getattr(ml_dtypes, name))
    assert y.view(bits).tobytes() == x.T.tobytes()


@pytest.mark.skipif(ml_dtypes is None, reason="ml_dtypes is not installed")
@pytest.mark.parametrize("dtype", BITS)
def test_arrays_of_ml_dtypes(dtype, rng):
    x = rng.normal(size=(4, 3)).astype(getattr(ml_dtypes, BITS[dtype][1]))
    for given in (x.T, numpy.ascontiguousarray(x.T)):
        y = transposed(dtype).run({"x": given})["y"]
        assert y.dtype == x.dtype and y.tobytes() == x.tobytes()


def test_truth_values_are_numpys():
    model = eutectic.load(graph("(input x bool[4]) (output y (not x))"))
    y = model.run({"x": numpy.array([0, 1, 2, 255], numpy.uint8).view(bool)})["y"]
    assert y.dtype == bool and y.tolist() == [True, False, False, False]


LAYOUTS = {
    "row by row": lambda x: x,
    "column by column": numpy.asfortranarray,
    "every second row": lambda x: numpy.repeat(x, 2, axis=0)[::2],
    "every second column": lambda x: numpy.repeat(x, 2, axis=1)[:, ::2],
    "rows backwards": lambda x: numpy.ascontiguousarray(x[::-1])[::-1],
    "columns backwards": lambda x: numpy.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "both backwards": lambda x: numpy.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "within a larger one": lambda x: numpy.pad(x, 1)[1:-1, 1:-1],
    "at an odd address": lambda x: numpy.frombuffer(b"!" + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
    "a field": lambda x: as_field(x),
    "read-only": lambda x: read_only(x),
}


def as_field(x):
    records = numpy.zeros(x.shape, numpy.dtype([("tag", "u1"), ("x", x.dtype)]))
    records["x"] = x
    return records["x"]


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(3, 4), (1, 1), (1, 7), (7, 1), (37, 53), (0, 3), (3, 0), (0, 0)])
def test_each_layout_of_an_array(layout, dims, rng):
    x = rng.normal(size=dims).astype(numpy.float32)
    given = LAYOUTS[layout](x)
    numpy.testing.assert_array_equal(given, x)
    y = transposed("f32", f"{dims[0]} {dims[1]}").run({"x": given})["y"]
    assert y.shape == dims[::-1] and y.flags.c_contiguous and y.flags.writeable and y.flags.owndata
    numpy.testing.assert_array_equal(y, x.T)


def test_a_row_that_is_repeated_by_its_stride(rng):
    row = rng.normal(size=4).astype(numpy.float32)
    numpy.testing.assert_array_equal(transposed("f32").run({"x": numpy.broadcast_to(row, (3, 4))})["y"].T, [row] * 3)


def test_arrays_without_axes():
    model = eutectic.load(graph("(input x f64[]) (output y (neg x))"))
    for given in (numpy.array(2.5), numpy.float64(2.5), numpy.array([1.0, 2.5])[1:].reshape(())):
        y = model.run({"x": given})["y"]
        assert isinstance(y, numpy.ndarray) and y.shape == () and y == -2.5


def test_nan_and_infinities_and_signs_of_zero():
    x = numpy.array([numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0], numpy.float32)
    y = eutectic.load(graph("(input x f32[5]) (output y (neg x))")).run({"x": x})["y"]
    numpy.testing.assert_array_equal(y, -x)
    numpy.testing.assert_array_equal(numpy.signbit(y[1:]), numpy.signbit(-x[1:]))


class Exporter:
    """An array of another library, which supports DLPack but no other interface of NumPy's arrays."""

    def __init__(self, array, versions=True, device=None):
        self.array, self.versions, self.device, self.calls = array, versions, device, 0

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        self.calls += 1
        if not self.versions and options:
            raise TypeError("no such argument")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("versions", [True, False])
def test_arrays_of_any_library_with_dlpack(versions, rng):
    x = rng.normal(size=(3, 4)).astype(numpy.float32)
    for array in (x, x.T.copy().T):
        given = Exporter(array, versions)
        numpy.testing.assert_array_equal(transposed("f32").run({"x": given})["y"], x.T)
        assert given.calls > 0


def test_results_are_exported_without_a_copy():
    y = transposed("f32").run({"x": numpy.ones((3, 4), numpy.float32)})["y"]
    shared = numpy.from_dlpack(y)
    y[0, 0] = 5
    assert shared[0, 0] == 5


def test_inputs_are_not_changed_and_results_are_new(rng):
    x = rng.normal(size=(3, 4)).astype(numpy.float32)
    before, model = x.copy(), transposed("f32")
    first = model.run({"x": x})["y"]
    kept = first.copy()
    second = model.run({"x": x + 1})["y"]
    assert not numpy.shares_memory(first, second)
    numpy.testing.assert_array_equal(first, kept)
    numpy.testing.assert_array_equal(x, before)


def test_only_some_outputs(mlp_params, rng):
    model = eutectic.load(MLP, shapes={"B": 2}, params=mlp_params)
    x = rng.normal(size=(2, 12)).astype(numpy.float32)
    everything = model.run({"x": x})
    assert list(everything) == ["y", "total"]
    some = model.run({"x": x}, ["total"])
    assert list(some) == ["total"]
    numpy.testing.assert_allclose(some["total"], everything["total"], rtol=1e-5)
    assert model.run({"x": x}, outputs=[]) == {}
    with pytest.raises(eutectic.Error, match="no output `z`; it has y, total"):
        model.run({"x": x}, ["z"])


X = numpy.zeros((3, 4), numpy.float32)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"input `x` f32\[3 4\] has no value"),
        ({"x": X, "z": X}, r"no input `z`; it has x"),
        ({"z": X}, r"(?s)input `x` f32\[3 4\] has no value.*no input `z`"),
        ({"x": X, 7: X}, r"no input `7`"),
        ({"x": X.astype(numpy.float64)}, r"`x` is f32\[3 4\], but f64\[3 4\] was given"),
        ({"x": X.astype(numpy.int32)}, r"but i32\[3 4\] was given"),
        ({"x": X.T}, r"but f32\[4 3\] was given"),
        ({"x": X[:0]}, r"but f32\[0 4\] was given"),
        ({"x": X[None]}, r"but f32\[1 3 4\] was given"),
        ({"x": numpy.float32(1)}, r"but f32\[\] was given"),
        ({"x": X.astype(">f4")}, r"cannot read input `x`"),
        ({"x": X.astype(numpy.complex64)}, r"cannot read input `x`.*no element type"),
        ({"x": X.astype(numpy.longdouble)}, r"cannot read input `x`"),
        ({"x": X.astype(numpy.uint64)}, r"cannot read input `x`"),
        ({"x": X.astype(object)}, r"cannot read input `x`"),
        ({"x": numpy.array("text")}, r"cannot read input `x`"),
        ({"x": X.astype("datetime64[s]")}, r"cannot read input `x`"),
        ({"x": X.tolist()}, r"cannot read input `x`: a list is not an array; give numpy.asarray"),
        ({"x": None}, r"a NoneType is not an array"),
        ({"x": 1.0}, r"a float is not an array"),
        ({"x": "text"}, r"a str is not an array"),
    ],
)
def test_inputs_that_do_not_fit_say_why(inputs, message):
    model = transposed("f32")
    with pytest.raises(eutectic.Error, match=message):
        model.run(inputs)
    # The model still works.
    assert model.run({"x": X})["y"].shape == (4, 3)


class Broken:
    """An array whose `__dlpack__` fails or returns something else than a capsule."""

    def __init__(self, export):
        self.export = export

    def __dlpack__(self, **options):
        return self.export()


def test_exporters_that_fail_are_errors():
    def fails():
        raise RuntimeError("it is gone")

    for export in (fails, lambda: None, lambda: 7):
        with pytest.raises(eutectic.Error, match="cannot read input `x`"):
            transposed("f32").run({"x": Broken(export)})


def test_inputs_other_than_a_dictionary_are_a_type_error():
    for inputs in (None, [X], X):
        with pytest.raises(TypeError):
            transposed("f32").run(inputs)


def test_an_id_out_of_range_ends_a_run_and_not_the_model():
    model = eutectic.load(graph("(input table f32[3 2]) (input ids i64[2]) (output y (gather table ids :axis 0))"))
    table = numpy.arange(6, dtype=numpy.float32).reshape(3, 2)
    with pytest.raises(eutectic.Error, match="7"):
        model.run({"table": table, "ids": numpy.array([0, 7])})
    assert model.run({"table": table, "ids": numpy.array([2, 0])})["y"].tolist() == [[4, 5], [0, 1]]


def test_a_result_larger_than_the_memory_is_an_error():
    with pytest.raises((eutectic.Error, MemoryError)):
        huge = graph("(input x f32[1]) (output y (expand x :shape [70368744177664]))")
        eutectic.load(huge).run({"x": numpy.zeros(1, numpy.float32)})


@pytest.mark.parametrize("backend", [name for name, _, problem in eutectic.devices() if problem is None])
def test_each_backend_that_is_here_computes_the_same(backend, mlp_params, rng):
    model = eutectic.load(MLP, shapes={"B": 5}, params=mlp_params, backend=backend)
    x = rng.normal(size=(5, 12)).astype(numpy.float32)
    results = model.run({"x": x})
    product = x @ mlp_params["w"]
    numpy.testing.assert_allclose(results["y"], numpy.maximum(product + mlp_params["b"], 0), rtol=1e-4, atol=1e-5)
    numpy.testing.assert_allclose(results["total"], product.sum(axis=1), rtol=1e-4, atol=1e-4)
