"""Tests `torch.compile(model, backend="eutectic")`. Skipped unless torch and onnxscript are installed."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import eutectic
from torch import nn
from torch.nn import functional as F


class Of(nn.Module):
    """A module that calls a function with the modules that the function needs."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *inputs):
        return self.function(self, *inputs)


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.qkv, self.out, self.causal = nn.Linear(32, 96), nn.Linear(32, 32), causal

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2))


class Llama(nn.Module):
    """A layer with rotary positions, a root mean square norm and a gated network."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention, self.last = nn.RMSNorm(32), Attention(True), nn.RMSNorm(32)
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((32, 48), (32, 48), (48, 32)))

    def forward(self, x):
        angle = torch.arange(x.shape[1])[:, None] / 100.0 ** (torch.arange(16) / 16)
        a, b = x.chunk(2, -1)
        x = torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)
        x = x + self.attention(self.norm(x))
        y = self.last(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, x):
        return F.relu(x + self.body(x))


def rows(*dims):
    return lambda: (torch.randn(*dims),)


MODULES = {
    "linear": (lambda: nn.Linear(12, 5), rows(3, 12)),
    "linear without bias": (lambda: nn.Linear(12, 5, bias=False), rows(2, 3, 12)),
    "bilinear": (lambda: nn.Bilinear(4, 5, 6), lambda: (torch.randn(3, 4), torch.randn(3, 5))),
    "perceptron": (lambda: nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 5)), rows(7, 12)),
    "relu": (nn.ReLU, rows(5, 7)),
    "gelu": (nn.GELU, rows(5, 7)),
    "gelu by tanh": (lambda: nn.GELU(approximate="tanh"), rows(5, 7)),
    "silu": (nn.SiLU, rows(5, 7)),
    "mish": (nn.Mish, rows(5, 7)),
    "softplus": (nn.Softplus, rows(5, 7)),
    "elu": (nn.ELU, rows(5, 7)),
    "leaky relu": (nn.LeakyReLU, rows(5, 7)),
    "prelu": (nn.PReLU, rows(5, 7)),
    "hard swish": (nn.Hardswish, rows(5, 7)),
    "tanh and sigmoid": (lambda: nn.Sequential(nn.Tanh(), nn.Sigmoid()), rows(5, 7)),
    "softmax": (lambda: nn.Softmax(-1), rows(5, 7)),
    "log softmax": (lambda: nn.LogSoftmax(1), rows(5, 7, 3)),
    "glu": (lambda: nn.GLU(-1), rows(5, 8)),
    "layer norm": (lambda: nn.LayerNorm(16), rows(3, 5, 16)),
    "group norm": (lambda: nn.GroupNorm(2, 8), rows(2, 8, 5, 3)),
    "instance norm": (lambda: nn.InstanceNorm2d(8, affine=True), rows(2, 8, 5, 3)),
    "batch norm": (lambda: nn.BatchNorm1d(8), rows(5, 8)),
    "rms norm": (lambda: nn.RMSNorm(16), rows(3, 16)),
    "embedding": (lambda: nn.Embedding(11, 6), lambda: (torch.randint(0, 11, (3, 4)),)),
    "convolution 1d": (lambda: nn.Conv1d(3, 8, 3, stride=2), rows(2, 3, 17)),
    "convolution": (lambda: nn.Conv2d(3, 8, 3, padding=1), rows(2, 3, 9, 7)),
    "convolution in groups": (lambda: nn.Conv2d(8, 8, 3, groups=8, dilation=2), rows(1, 8, 9, 9)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(4, 3, 3, stride=2), rows(1, 4, 5, 6)),
    "max pool": (lambda: nn.MaxPool2d(3, 2, 1), rows(1, 4, 9, 8)),
    "average pool": (lambda: nn.AvgPool2d(2), rows(1, 4, 8, 8)),
    "adaptive pool": (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), rows(2, 4, 5, 7)),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="nearest"), rows(1, 2, 4, 5)),
    "upsample bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), rows(1, 2, 4, 5)),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), rows(1, 8, 3, 4)),
    "pad": (lambda: nn.ReflectionPad2d(2), rows(1, 2, 5, 6)),
    "residual block": (Residual, rows(2, 8, 7, 7)),
    "attention": (lambda: Attention(False), rows(2, 9, 32)),
    "causal attention": (lambda: Attention(True), rows(2, 9, 32)),
    "multi-head attention": (
        lambda: Of(
            lambda m, x: m.attention(x, x, x, need_weights=False)[0],
            attention=nn.MultiheadAttention(32, 4, batch_first=True),
        ),
        rows(2, 6, 32),
    ),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), rows(2, 6, 32)),
    "decoder layer": (
        lambda: nn.TransformerDecoderLayer(32, 4, 64, batch_first=True, norm_first=True),
        lambda: (torch.randn(2, 6, 32), torch.randn(2, 9, 32)),
    ),
    "llama layer": (Llama, rows(2, 7, 32)),
    "cosine": (lambda: nn.CosineSimilarity(-1), lambda: (torch.randn(3, 8), torch.randn(3, 8))),
    "where and comparisons": (lambda: Of(lambda m, x: torch.where(x > 0, x.exp(), x.abs().sqrt())), rows(5, 7)),
    "reductions": (lambda: Of(lambda m, x: (x.sum(0), x.mean(1), x.amax(0), x.var(-1), x.argmax(1))), rows(5, 7)),
    "several results": (lambda: Of(lambda m, x: (x + 1, None, x.to(torch.int64), x > 0)), rows(5, 7)),
    "a result that is an input": (lambda: Of(lambda m, x, y: (x, x + y)), lambda: (torch.randn(3), torch.randn(3))),
    "einsum": (
        lambda: Of(lambda m, x, y: torch.einsum("bij,bjk->bik", x, y)),
        lambda: (torch.randn(2, 3, 4), torch.randn(2, 4, 5)),
    ),
    "gather and top k": (lambda: Of(lambda m, x: x.gather(1, x.topk(3).indices)), rows(5, 7)),
    "cumulative sum": (lambda: Of(lambda m, x: x.cumsum(1)), rows(5, 7)),
    "f64": (lambda: nn.Linear(12, 5).double(), lambda: (torch.randn(3, 12, dtype=torch.float64),)),
}


def check(module, inputs, tolerance=1e-4):
    module = module.eval()
    torch._dynamo.reset()
    with torch.no_grad():
        expected = module(*inputs)
        # Without fullgraph, dynamo runs the parts that it cannot trace in torch.
        compiled = torch.compile(module, backend="eutectic", fullgraph=True)
        found = compiled(*inputs)
        again = compiled(*inputs)
    for results in (found, again):
        same(results, expected, tolerance)


def same(found, expected, tolerance):
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            same(one, other, tolerance)
    elif expected is None:
        assert found is None
    else:
        assert found.dtype == expected.dtype and found.shape == expected.shape
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)


@pytest.mark.parametrize("name", MODULES)
def test_modules_compute_what_torch_does(name):
    make, inputs = MODULES[name]
    # Turns off torch's own fused layer, which torch cannot export.
    torch.backends.mha.set_fastpath_enabled(False)
    check(make(), inputs())


def test_bf16_is_kept():
    check(nn.Linear(16, 8).bfloat16(), (torch.randn(3, 16).bfloat16(),), 2e-2)


def test_the_parameters_are_constants_and_a_write_to_them_is_noticed():
    module, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(module, backend="eutectic")
        compiled(x)
        for write in (lambda: module.weight.mul_(2), lambda: setattr(module.bias, "data", torch.randn(3))):
            write()
            with pytest.raises(eutectic.Error, match="parameter was written"):
                compiled(x)
            torch._dynamo.reset()
            torch.testing.assert_close(compiled(x), module(x))


def test_each_length_is_compiled_if_dynamic_is_off():
    module = nn.Linear(4, 3).eval()
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(module, backend="eutectic", dynamic=False)
        for length in (1, 5, 2):
            x = torch.randn(length, 4)
            torch.testing.assert_close(compiled(x), module(x))


def test_options_are_those_of_load():
    module, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(module, backend="eutectic", options={"threads": 1, "fp": "exact"})
        torch.testing.assert_close(compiled(x), module(x))


def refused(module, inputs, message, grad=False, **options):
    torch._dynamo.reset()
    with torch.set_grad_enabled(grad), pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message):
        torch.compile(module.eval(), backend="eutectic", fullgraph=True, **options)(*inputs)


def test_a_model_that_cannot_be_compiled_is_an_error_and_does_not_run_in_torch():
    x = torch.randn(3, 4)
    refused(nn.Linear(4, 3), (x,), "cannot compile for training", grad=True)
    refused(
        Of(lambda m, x: torch.special.bessel_j0(x) + torch.linalg.svdvals(x)[0]),
        (x,),
        "No ONNX function found for .*(bessel_j0|svd)",
    )
    refused(Of(lambda m, x: x.add_(1) * 2), (x,), "writes to")
    refused(Of(lambda m, x: x[1:]), (x,), "part of the input")
    refused(nn.Linear(4, 3), (x,), "dynamic=False", dynamic=True)


def test_a_model_may_be_split_into_several_graphs():
    # Dynamo cuts the model at the call that it does not trace.
    module, x = (
        Of(lambda m, x: m.last(untraced(m.first(x))), first=nn.Linear(4, 5), last=nn.Linear(5, 3)).eval(),
        torch.randn(2, 4),
    )
    torch._dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(module, backend="eutectic")(x), module(x))


@torch._dynamo.disable
def untraced(x):
    return x.relu()


def test_copies_of_a_compiled_module_are_modules():
    module, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(copy.deepcopy(module), backend="eutectic")
        torch.testing.assert_close(compiled(x), module(x))
