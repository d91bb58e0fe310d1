"""Tests explanations of plans, as text and as a table."""

import eutectic
from conftest import GOLDEN, MLP


def test_kernels_are_explained_as_text_and_as_a_table(mlp_params):
    model = eutectic.load(MLP, shapes={"B": 64}, params=mlp_params)
    kernels = model.kernels()
    assert kernels and all(kernel["seconds"] > 0 for kernel in kernels)
    assert {"matmul"} <= {kernel["op"] for kernel in kernels}
    numbers = [number for kernel in kernels for number in kernel["numbers"]]
    assert len(numbers) == len(set(numbers))
    explanation = model.explain()
    text, html = str(explanation), explanation._repr_html_()
    assert repr(explanation) == text and explanation.kernels == kernels
    for kernel in kernels:
        assert f"{kernel['numbers'][0]}: {kernel['op']} in" in text
        assert kernel["op"] in html
        for rule, doc in kernel["rules"]:
            assert rule in text and doc in text and rule in html
    assert html.count("<tr>") == 1 + len(kernels) and html.count("<table>") == html.count("</table>") == 1


def test_repeated_layers_are_explained_once():
    path = GOLDEN / "onnx" / "bert-sdpa-new.onnx"
    _, _, dims = eutectic._native.declared(path)
    model = eutectic.load(path, shapes=dict.fromkeys(dims, 4))
    kernels = model.kernels()
    total = sum(len(kernel["numbers"]) for kernel in kernels if not kernel["load"])
    assert str(model.explain()).startswith(f"{total} kernels a run on cpu, predicted ")


def test_names_in_a_model_are_escaped_in_html():
    model = eutectic.load(b'(graph "g" (input x f32[2]) (output y (neg x) :origin layer<b>))')
    assert "in layer<b>" in str(model.explain())
    assert "<td>layer&lt;b&gt;</td>" in model.explain()._repr_html_()
