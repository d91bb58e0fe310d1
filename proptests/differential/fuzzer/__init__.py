"""Tests the engine with random ONNX graphs. Each node is compared with independent references."""
