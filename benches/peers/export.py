#!/usr/bin/env python3
"""Exports workloads to ONNX, for peers that read it. Usage: export.py WEIGHTS FOLDER [WORKLOAD ...]"""
import pathlib
import sys
import warnings

import numpy as np
import torch
import workloads


def main():
    weights, folder, *names = sys.argv[1:]
    # The TorchScript exporter gives the graph that peers' fusions know; torch warns that it is no longer the default.
    warnings.simplefilter("ignore", DeprecationWarning)
    for name in names or workloads.INPUTS:
        path = pathlib.Path(folder) / f"{name}.onnx"
        if path.exists():
            continue
        inputs = workloads.INPUTS[name](np.random.default_rng(0))
        with torch.no_grad():
            torch.onnx.export(
                workloads.model(name, pathlib.Path(weights)),
                tuple(torch.from_numpy(x) for x in inputs.values()),
                str(path),
                input_names=list(inputs),
                opset_version=17,
                dynamo=False,
                do_constant_folding=True,
            )
        print(f"{path}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
