#!/usr/bin/env python3
"""Writes small models in rare forms, which the tests of the command run (`cli/tests/onnx.rs`): onnx/forms/NAME.onnx.

    python models/golden/make_forms.py models/golden/onnx/forms

`default`: an initializer that is also an input. `branch`: an If whose branches have different shapes. `while`: a Loop that only a condition ends.
"""
import pathlib
import sys

import onnx
import onnx.parser


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    models = {
        "default": """<ir_version: 8, opset_import: ["": 17]>
            g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {10, 20}> { y = Add (x, w) }""",
        "branch": """<ir_version: 8, opset_import: ["": 17]>
            g (float[2, 3] x, bool c) => (y) {
                y = If (c) <
                    then_branch = t () => (float total) { total = ReduceSum <keepdims = 0> (x) },
                    else_branch = e () => (float[2, 3] same) { same = Identity (x) }
                >
            }""",
        "while": """<ir_version: 8, opset_import: ["": 17]>
            g (float x) => (float y) <float limit = {50}> {
                y = Loop ("", "", x) <body = b (int64 i, bool going, float v) => (bool on, float twice) {
                    twice = Add (v, v)
                    on = Less (twice, limit)
                }>
            }""",
    }
    for name, text in models.items():
        (folder / name).with_suffix(".onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())


if __name__ == "__main__":
    main()
