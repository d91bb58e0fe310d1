#!/usr/bin/env python3
"""Runs ONNX Runtime on MiniLM by the command line of `eutectic bench minilm`, so that minilm.py treats both alike.

--weights is the folder of setup.sh's exports; --format is always json.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import onnxruntime as ort


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs=2, metavar=("bench", "minilm"), help="those two words")
    for name in ("batch", "seq", "threads", "iters", "warmup"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("weights", "ids", "output"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--format", choices=["json"])
    args = parser.parse_args()

    shape = f"{args.batch}x{args.seq}"
    model = args.weights / f"minilm-{shape}.onnx"
    if not model.is_file():
        raise SystemExit(f"{model} is missing; run benches/peers/setup.sh {shape}")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    ids = np.load(args.ids)
    feeds = {"ids": ids, "mask": np.ones_like(ids)}
    times = []
    for at in range(args.warmup + args.iters):
        start = time.perf_counter()
        output = session.run(["hidden"], feeds)[0]
        if at >= args.warmup:
            times.append((time.perf_counter() - start) * 1e3)
    np.save(args.output, output)
    print(json.dumps({"times_ms": times, "version": ort.__version__}))


if __name__ == "__main__":
    main()
