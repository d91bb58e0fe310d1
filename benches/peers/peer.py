#!/usr/bin/env python3
"""Runs a peer on a workload with the command line of `eutectic bench MODEL.onnx`, so that compare.py treats all equally."""
import argparse
import json
import os
import pathlib
import time

import numpy as np


def onnxruntime(args, inputs):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(str(args.model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    # Some exporters drop inputs that a model does not read.
    read = {given.name: inputs[given.name] for given in session.get_inputs()}
    return lambda: session.run(names, read)[0]


def openvino(args, inputs):
    import openvino as ov

    config = {
        "INFERENCE_NUM_THREADS": args.threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        "PERFORMANCE_HINT": "LATENCY",
    }
    core = ov.Core()
    model = core.compile_model(core.read_model(str(args.model)), "CPU", config)
    request = model.create_infer_request()
    for name in (given.any_name for given in model.inputs):
        request.set_tensor(name, ov.Tensor(inputs[name]))

    def run():
        request.infer()
        return request.get_output_tensor(0).data

    return run


def torch_eager(args, inputs):
    return torch_module(args, inputs, lambda module: module)


def torch_compile(args, inputs):
    import torch

    return torch_module(args, inputs, lambda module: torch.compile(module, dynamic=False))


def torch_module(args, inputs, made):
    import torch
    import workloads

    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    model = workloads.model(args.model.stem, args.weights)
    for module in model.modules():
        if hasattr(module, "fused"):
            module.fused = True
    compiled = made(model)
    tensors = [torch.from_numpy(array) for array in inputs.values()]

    def run():
        result = compiled(*tensors)
        return (result[0] if isinstance(result, tuple) else result).numpy()

    return run


def tract(args, inputs):
    # Its wheel has no setting for threads and uses one.
    import tract as peer

    types = {"float32": "f32", "int64": "i64", "int32": "i32", "bool": "bool"}
    loaded = peer.onnx().load(str(args.model))
    arrays = [inputs[loaded.input_name(at)] for at in range(loaded.input_count())]
    for at, array in enumerate(arrays):
        loaded.set_input_fact(at, ",".join([*map(str, array.shape), types[str(array.dtype)]]))
    runnable = peer.runtime_for_name("default").prepare(loaded.into_model())
    return lambda: runnable.run(arrays)[0].to_numpy()


PEERS = {"openvino": openvino, "onnxruntime": onnxruntime, "torch": torch_compile, "eager": torch_eager, "tract": tract}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("command", choices=["bench"])
    parser.add_argument("model", type=pathlib.Path, help="the ONNX file, for torch named after its workload")
    parser.add_argument("--weights", type=pathlib.Path, help="folder of MiniLM's, for torch")
    for name in ("threads", "iters", "warmup"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--input", action="append", default=[], metavar="NAME=@FILE.npy")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--format", choices=["json"])
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)

    given = (text.split("=@", 1) for text in args.input)
    inputs = {name: np.load(path) for name, path in given}
    start = time.perf_counter()
    run = PEERS[args.peer](args, inputs)
    opened = (time.perf_counter() - start) * 1e3
    times = []
    for at in range(args.warmup + args.iters):
        start = time.perf_counter()
        output = run()
        if at >= args.warmup:
            times.append((time.perf_counter() - start) * 1e3)
    np.save(args.output, output)
    print(json.dumps({"times_ms": times, "open_ms": opened}))


if __name__ == "__main__":
    main()
