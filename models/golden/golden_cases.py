"""Cases of golden models: a folder each, with `model.onnx`, `in_NAME.npy`, `expected_NAME.npy` and `case.json`. Expected values are ONNX Runtime's."""
import json
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
import onnxruntime


def of_onnx_runtime(model, inputs):
    """Returns the outputs of a model by name. Nodes are not fused, because fused nodes may quantize additional values."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs)))


def write(folder, model, inputs, outputs, relative, absolute):
    """Writes a case."""
    folder.mkdir(parents=True, exist_ok=True)
    # Documentation would be most of a small file.
    model.doc_string = model.graph.doc_string = ""
    onnx.save(model, folder / "model.onnx")
    for kind, arrays in [("in", inputs), ("expected", outputs)]:
        for key, array in arrays.items():
            np.save(folder / f"{kind}_{key}.npy", array)
    about = {"inputs": list(inputs), "outputs": list(outputs), "expect": "values", "rtol": relative, "atol": absolute, "args": [], "subnormals": False}
    (folder / "case.json").write_text(json.dumps(about) + "\n")


def check(binary, cases, relative, absolute):
    """Runs cases (name, model, inputs, outputs) with the command, and prints those that differ or are refused."""
    counts = {"right": 0, "refused": 0, "wrong": 0}
    for name, model, inputs, outputs in cases:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            onnx.save(model, folder / "m.onnx")
            command = [binary, "run", str(folder / "m.onnx"), "--threads", "1"]
            for key, array in inputs.items():
                np.save(folder / f"in_{key}.npy", array)
                command += ["--input", f"{key}=@{folder}/in_{key}.npy"]
            for key in outputs:
                command += ["--output", f"{key}={folder}/out_{key}.npy"]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                counts["refused"] += 1
                print(f"refused {name}: {' '.join(run.stderr.split())[-260:]}")
                continue
            wrong = []
            for key, want in outputs.items():
                got = np.load(folder / f"out_{key}.npy")
                good = got.shape == want.shape and got.dtype == want.dtype
                if not good or not np.allclose(got, want, relative, absolute, equal_nan=True) or want.dtype.kind == "i" and (got != want).any():
                    wrong.append(f"{key}: {got.dtype}{got.shape} {got.ravel()[:6]} for {want.dtype}{want.shape} {want.ravel()[:6]}")
            counts["wrong" if wrong else "right"] += 1
            if wrong:
                print(f"WRONG {name}: {'; '.join(wrong)}")
    print(counts)
