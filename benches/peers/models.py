"""The models of the workloads, in PyTorch. Attention consists of primitive ops if exporters write it in this form."""
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention, silu

HEADS = 12
# Our names of modules within a layer, with the names in the checkpoint.
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "ln1": "attention.output.LayerNorm",
    "f1": "intermediate.dense",
    "f2": "output.dense",
    "ln2": "output.LayerNorm",
}


def seeded(make):
    """Returns a module with random weights, which are the same in every process."""
    torch.manual_seed(0)
    return make().eval()


class Layer(nn.Module):
    """A post-norm encoder layer. `fused` uses torch's own attention. Without it, each peer may fuse."""

    def __init__(self, hidden, inner):
        super().__init__()
        self.fused = False
        self.scale = (hidden // HEADS) ** -0.5
        self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden) for _ in range(4))
        self.f1, self.f2 = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.ln1, self.ln2 = nn.LayerNorm(hidden, 1e-12), nn.LayerNorm(hidden, 1e-12)

    def forward(self, x, mask):
        batch, seq, hidden = x.shape
        q, k, v = (f(x).view(batch, seq, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.fused:
            a = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            a = torch.softmax(q @ k.transpose(-1, -2) * self.scale + mask, -1) @ v
        x = self.ln1(x + self.o(a.transpose(1, 2).reshape(batch, seq, hidden)))
        return self.ln2(x + self.f2(gelu(self.f1(x))))


class Bert(nn.Module):
    """The encoder; token types are all zero."""

    def __init__(self, hidden=384, inner=1536, layers=6, vocabulary=30522, positions=512):
        super().__init__()
        self.word, self.pos = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        self.typ, self.ln = nn.Embedding(2, hidden), nn.LayerNorm(hidden, 1e-12)
        self.layers = nn.ModuleList(Layer(hidden, inner) for _ in range(layers))

    def forward(self, ids, mask):
        x = self.ln(self.word(ids) + self.typ.weight[0] + self.pos.weight[: ids.shape[1]])
        bias = (1.0 - mask.to(x.dtype))[:, None, None, :] * -3.4028e38
        for layer in self.layers:
            x = layer(x, bias)
        return x


def minilm(path):
    """Returns MiniLM with the checkpoint's weights, which must include every parameter."""
    names = {
        "word": "embeddings.word_embeddings",
        "pos": "embeddings.position_embeddings",
        "typ": "embeddings.token_type_embeddings",
        "ln": "embeddings.LayerNorm",
    }
    model = Bert().eval()
    for at in range(len(model.layers)):
        names |= {f"layers.{at}.{ours}": f"encoder.layer.{at}.{theirs}" for ours, theirs in LAYER.items()}
    tensors = load_file(path)
    state = {}
    for name in model.state_dict():
        module, kind = name.rsplit(".", 1)
        state[name] = tensors[f"{names[module]}.{kind}"].float()
    model.load_state_dict(state)
    return model


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class DecoderLayer(nn.Module):
    """Grouped-query attention (the queries of a group are rows of one product) and a gated inner layer."""

    def __init__(self, hidden=2048, heads=32, groups=8, inner=5632):
        super().__init__()
        self.heads, self.groups, self.depth = heads, groups, hidden // heads

        def linear(n, m):
            return nn.Linear(n, m, bias=False)

        self.q, self.o = linear(hidden, hidden), linear(hidden, hidden)
        self.k, self.v = linear(hidden, groups * self.depth), linear(hidden, groups * self.depth)
        self.gate, self.up, self.down = linear(hidden, inner), linear(hidden, inner), linear(inner, hidden)
        self.n1, self.n2 = RmsNorm(hidden), RmsNorm(hidden)

    def forward(self, x, cos, sin, past, mask):
        batch, seq, hidden = x.shape
        h = self.n1(x)
        q = rotated(self.q(h).view(batch, seq, self.heads, self.depth).transpose(1, 2), cos, sin)
        k = rotated(self.k(h).view(batch, seq, self.groups, self.depth).transpose(1, 2), cos, sin)
        v = self.v(h).view(batch, seq, self.groups, self.depth).transpose(1, 2)
        if past:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        rows, keys = self.heads // self.groups, k.shape[2]
        a = q.reshape(batch, self.groups, rows * seq, self.depth) @ k.transpose(-1, -2) * self.depth**-0.5
        if mask is not None:
            a = (a.view(batch, self.groups, rows, seq, keys) + mask).view(batch, self.groups, rows * seq, keys)
        a = torch.softmax(a, -1) @ v
        a = a.view(batch, self.heads, seq, self.depth).transpose(1, 2).reshape(batch, seq, hidden)
        x = x + self.o(a)
        h = self.n2(x)
        return x + self.down(silu(self.gate(h)) * self.up(h)), k, v


class Llama(nn.Module):
    """Decoder layers. They take a prompt with a mask, or a step with keys and values of the past (two for each layer)."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(layers))
        self.norm = RmsNorm(2048)

    def forward(self, x, cos, sin, *rest):
        past, mask = (rest, None) if len(rest) > 1 else ((), rest[0])
        caches = []
        for at, layer in enumerate(self.layers):
            x, *cache = layer(x, cos, sin, past[2 * at : 2 * at + 2], mask)
            caches += cache
        return self.norm(x), *caches


class Chain(nn.Module):
    def forward(self, x, a, b, c, d):
        return gelu(x * a + b) * torch.sigmoid(c) + d


class SoftmaxLayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(768)

    def forward(self, x):
        return self.norm(torch.softmax(x, -1))


def resnet50():
    import torchvision

    return torchvision.models.resnet50(weights=None)


class SamAttention(nn.Module):
    """Attention with decomposed relative positions, on [batch rows columns width]."""

    def __init__(self, width, heads, size):
        super().__init__()
        self.heads, self.depth = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.down, self.across = (nn.Parameter(0.02 * torch.randn(2 * size - 1, self.depth)) for _ in range(2))
        at = torch.arange(size)
        self.register_buffer("distance", at[:, None] - at[None, :] + size - 1, persistent=False)

    def forward(self, x):
        batch, rows, columns, width = x.shape
        tokens = rows * columns
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.heads, self.depth).permute(2, 0, 3, 1, 4).flatten(1, 2)
        image = q.reshape(-1, rows, columns, self.depth)
        down = torch.einsum("bhwc,hkc->bhwk", image, self.down[self.distance])
        across = torch.einsum("bhwc,wkc->bhwk", image, self.across[self.distance])
        bias = (down[:, :, :, :, None] + across[:, :, :, None, :]).reshape(-1, tokens, tokens)
        a = torch.softmax((q * self.depth**-0.5) @ k.transpose(-2, -1) + bias, -1) @ v
        a = a.view(batch, self.heads, rows, columns, self.depth).permute(0, 2, 3, 1, 4)
        return self.out(a.reshape(batch, rows, columns, width))


class SamBlock(nn.Module):
    """A block of SAM's ViT-B. It attends in windows of the given size, or to the whole image if this size is 0."""

    def __init__(self, window, side=64, width=768, heads=12):
        super().__init__()
        self.window, self.pad = window, -side % window if window else 0
        self.n1, self.n2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.attention = SamAttention(width, heads, window or side)
        self.f1, self.f2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        if not self.window:
            return self.attention(x)
        (batch, side, _, width), size = x.shape, self.window
        padded = side + self.pad
        n = padded // size
        x = nn.functional.pad(x, (0, 0, 0, self.pad, 0, self.pad)).view(batch, n, size, n, size, width)
        x = self.attention(x.permute(0, 1, 3, 2, 4, 5).reshape(batch * n * n, size, size, width))
        x = x.view(batch, n, n, size, size, width).permute(0, 1, 3, 2, 4, 5).reshape(batch, padded, padded, width)
        return x[:, :side, :side]

    def forward(self, x):
        x = x + self.attend(self.n1(x))
        return x + self.f2(gelu(self.f1(self.n2(x))))


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of [batch channels rows columns]."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, 1e-6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Sam(nn.Module):
    """SAM's image encoder, ViT-B at 1024 × 1024."""

    def __init__(self, out=256):
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 16, 16)
        self.positions = nn.Parameter(0.02 * torch.randn(1, 64, 64, 768))
        self.blocks = nn.ModuleList(SamBlock(0 if at % 3 == 2 else 14) for at in range(12))
        convolutions = nn.Conv2d(768, out, 1, bias=False), nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.neck = nn.Sequential(convolutions[0], ChannelNorm(out), convolutions[1], ChannelNorm(out))

    def forward(self, x):
        x = self.patches(x).permute(0, 2, 3, 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.neck(x.permute(0, 3, 1, 2))
