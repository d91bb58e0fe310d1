"""Tests the use of models by several threads and processes."""

import concurrent.futures
import os
import sys
import threading
import time

import eutectic
import numpy
import pytest
from conftest import MLP

LARGE = b'(graph "g" (input x f32[1024 1024]) (param w f32[1024 1024]) (output y (matmul (matmul x w) w)))'


def test_one_model_serves_many_threads(mlp_params, rng):
    model = eutectic.load(MLP, shapes={"B": 16}, params=mlp_params)
    inputs = [rng.normal(size=(16, 12)).astype(numpy.float32) for _ in range(64)]
    expected = [model.run({"x": x})["y"] for x in inputs]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: model.run({"x": x})["y"], inputs * 8))
    for one, other in zip(expected * 8, found):
        numpy.testing.assert_array_equal(one, other)


def test_states_lose_no_run():
    text = b'(graph "g" (input x f32[]) (state n f32[]) (let all (add n x)) (update n all) (output y all))'
    model = eutectic.load(text)
    one = numpy.array(1, numpy.float32)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = sorted(float(y["y"]) for y in pool.map(lambda _: model.run({"x": one}), range(500)))
    assert found == list(range(1, 501))


def test_errors_of_one_thread_do_not_stop_another(mlp_params, rng):
    model = eutectic.load(MLP, shapes={"B": 256}, params=mlp_params)
    x = rng.normal(size=(256, 12)).astype(numpy.float32)

    def use(number):
        if number % 2:
            return model.run({"x": x})["y"]
        for inputs, outputs in (({"x": x, "z": x}, None), ({"x": x}, ["z"]), ({}, None), ({"x": x[1:]}, None)):
            with pytest.raises(eutectic.Error):
                model.run(inputs, outputs)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(use, range(400), timeout=60))) == 400


def test_forks_run_at_the_same_time(mlp_params, rng):
    model = eutectic.load(MLP, shapes={"B": 16}, params=mlp_params)
    x = rng.normal(size=(16, 12)).astype(numpy.float32)
    expected = model.run({"x": x})["y"]
    forks = [model.fork() for _ in range(4)]
    del model
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for y in pool.map(lambda fork: [fork.run({"x": x})["y"] for _ in range(50)][-1], forks):
            numpy.testing.assert_array_equal(y, expected)


def test_other_threads_continue_during_a_run(rng):
    model = eutectic.load(LARGE, params={"w": rng.normal(size=(1024, 1024)).astype(numpy.float32)})
    x = rng.normal(size=(1024, 1024)).astype(numpy.float32)
    model.run({"x": x})
    counted, going_on = [0], threading.Event()

    def count():
        while not going_on.is_set():
            counted[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    # The other thread continues only if a run releases the interpreter's lock.
    before, interval = sys.getswitchinterval(), 1000.0
    sys.setswitchinterval(interval)
    try:
        thread.start()
        start = counted[0]
        for _ in range(5):
            model.run({"x": x})
        gained = counted[0] - start
    finally:
        going_on.set()
        sys.setswitchinterval(before)
        thread.join()
    assert gained > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_of_the_process_gets_an_error_and_does_not_hang(mlp_params, rng):
    model = eutectic.load(MLP, shapes={"B": 16}, params=mlp_params)
    x = rng.normal(size=(16, 12)).astype(numpy.float32)
    model.run({"x": x})
    child = os.fork()
    if child == 0:
        told = 0
        for use in (lambda: model.run({"x": x}), lambda: eutectic.load(MLP, shapes={"B": 1}, params=mlp_params)):
            try:
                use()
            except eutectic.Error as error:
                told += "fork of a process" in str(error)
        os._exit(0 if told == 2 else 1)
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0)


def test_runs_do_not_leak_memory(mlp_params, rng):
    resource = pytest.importorskip("resource")
    model = eutectic.load(MLP, shapes={"B": 1024}, params=mlp_params)
    x = rng.normal(size=(1024, 12)).astype(numpy.float32)

    def some():
        for _ in range(200):
            model.run({"x": x})
            model.run({"x": numpy.asfortranarray(x)})

    some()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        some()
    # A leak of a thousand inputs or results would be 48 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10
