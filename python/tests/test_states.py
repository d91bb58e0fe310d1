"""Tests states, run-time extents, and forks of models."""

import eutectic
import numpy
import pytest

SUM = b"""
(graph "sum"
  (input x f32[3])
  (state sum f32[3])
  (let all (add sum x))
  (update sum all)
  (output y all))
"""

ATTEND = b"""
(graph "attend"
  (dim S :least 1 :most 64)
  (input x f32[S 8])
  (output y (softmax x :axis -1))
  (output first (reduce-max x :axes [0] :keep false)))
"""


def test_states_are_kept_read_written_and_cleared():
    model = eutectic.load(SUM)
    assert [(port.name, port.dtype, port.dims) for port in model.states] == [("sum", "f32", [3])]
    one = numpy.ones(3, numpy.float32)
    assert model.read("sum").tolist() == [0, 0, 0]
    for count in range(1, 4):
        assert model.run({"x": one})["y"].tolist() == [count] * 3
    assert model.read("sum").tolist() == [3, 3, 3]
    model.write("sum", numpy.array([9, 5, 1, 0, 7], numpy.float32)[::-2])
    assert model.run({"x": one})["y"].tolist() == [8, 2, 10]
    model.clear()
    assert model.run({"x": one})["y"].tolist() == [1, 1, 1]


def test_a_fork_has_states_of_its_own():
    model = eutectic.load(SUM)
    one = numpy.ones(3, numpy.float32)
    model.run({"x": one})
    fork = model.fork()
    model.run({"x": one})
    assert fork.read("sum").tolist() == [1, 1, 1] and model.read("sum").tolist() == [2, 2, 2]
    assert fork.inputs == model.inputs and str(fork.explain()) == str(model.explain())


def test_states_that_do_not_fit_say_why():
    model = eutectic.load(SUM)
    with pytest.raises(eutectic.Error, match="no state `total`; it has sum"):
        model.read("total")
    with pytest.raises(eutectic.Error, match="no state `total`"):
        model.write("total", numpy.zeros(3, numpy.float32))
    with pytest.raises(eutectic.Error, match=r"state `sum` is f32\[3\], but f64\[3\] was given"):
        model.write("sum", numpy.zeros(3))
    with pytest.raises(eutectic.Error, match=r"but f32\[2\] was given"):
        model.write("sum", numpy.zeros(2, numpy.float32))
    with pytest.raises(eutectic.Error, match="cannot read state `sum`"):
        model.write("sum", [0, 0, 0])


def check_lengths(model, rng, lengths):
    for length in lengths:
        x = rng.normal(size=(length, 8)).astype(numpy.float32)
        results = model.run({"x": x})
        exps = numpy.exp(x - x.max(axis=-1, keepdims=True))
        numpy.testing.assert_allclose(results["y"], exps / exps.sum(axis=-1, keepdims=True), rtol=1e-5)
        numpy.testing.assert_array_equal(results["first"], x.max(axis=0))


def test_each_run_decides_its_extents(rng):
    model = eutectic.load(ATTEND)
    assert model.extents == {"S": (1, 64)} and model.inputs[0].dims == ["S", 8]
    check_lengths(model, rng, (64, 1, 7, 33, 2, 64))
    for length in (0, 65):
        with pytest.raises(eutectic.Error, match="S must be from 1 to 64"):
            model.run({"x": numpy.zeros((length, 8), numpy.float32)})
    check_lengths(model, rng, (5,))


def test_an_open_dimension_may_become_an_extent_of_each_run(rng):
    text = ATTEND.replace(b"(dim S :least 1 :most 64)", b"")
    model = eutectic.load(text, shapes={"S": (1, 16)})
    assert model.extents == {"S": (1, 16)}
    check_lengths(model, rng, (16, 1, 3))


def test_an_extent_may_become_a_number_or_narrower(rng):
    fixed = eutectic.load(ATTEND, shapes={"S": 7})
    assert fixed.extents == {} and fixed.inputs[0].dims == [7, 8]
    assert eutectic.load(ATTEND, shapes={"S": (2, 8)}).extents == {"S": (2, 8)}
    for wrong in (0, 65, (0, 8), (1, 65)):
        with pytest.raises(eutectic.Error, match="it is 1 to 64"):
            eutectic.load(ATTEND, shapes={"S": wrong})


def test_lengths_of_states_are_set_by_name(rng):
    text = b"""
    (graph "attend"
      (dim S :least 1 :most 16)
      (input query f32[1 1 8])
      (state keys f32[1 S 8])
      (output y (sdpa query keys keys :scale 0.5 :mask none)))
    """
    model = eutectic.load(text)
    query = rng.normal(size=(1, 1, 8)).astype(numpy.float32)
    for length in (16, 3, 1):
        model.set_length("S", length)
        keys = rng.normal(size=(1, length, 8)).astype(numpy.float32)
        model.write("keys", keys)
        numpy.testing.assert_array_equal(model.read("keys"), keys)
        weights = numpy.exp(0.5 * query @ keys.transpose(0, 2, 1))
        expected = weights / weights.sum(axis=-1, keepdims=True) @ keys
        numpy.testing.assert_allclose(model.run({"query": query})["y"], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(eutectic.Error, match="1 to 16"):
        model.set_length("S", 17)
    with pytest.raises(eutectic.Error, match="no extent `T`; it has S"):
        model.set_length("T", 1)
