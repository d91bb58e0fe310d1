"""A differential fuzzer: random ONNX graphs, judged node by node against independent references."""
