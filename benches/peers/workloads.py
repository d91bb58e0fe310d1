"""The workloads of the comparison with peers: their inputs, and their models in PyTorch."""
import numpy as np

HIDDEN, LAYERS, PAST, PROMPT = 2048, 4, 512, 128


def ids(batch, seq):
    return lambda random: {
        "ids": random.integers(1000, 30000, (batch, seq), dtype=np.int64),
        "mask": np.ones((batch, seq), dtype=np.int64),
    }


def normal(**shapes):
    return lambda random: {n: random.standard_normal(shape, dtype=np.float32) for n, shape in shapes.items()}


def rotation(first, count, depth=64):
    """Returns cosines and sines of rotary positions, one row for each position."""
    angles = np.outer(np.arange(first, first + count), 10000.0 ** (-np.arange(0, depth, 2) / depth))
    angles = np.concatenate([angles, angles], axis=1).astype(np.float32)
    return {"cos": np.cos(angles), "sin": np.sin(angles)}


def decode(random):
    past = {f"kv{i}": (1, 8, PAST, 64) for i in range(2 * LAYERS)}
    return normal(x=(1, 1, HIDDEN))(random) | rotation(PAST, 1) | normal(**past)(random)


def prefill(random):
    mask = np.triu(np.full((PROMPT, PROMPT), -np.inf, dtype=np.float32), 1)
    return normal(x=(1, PROMPT, HIDDEN))(random) | rotation(0, PROMPT) | {"mask": mask}


# By name, a function from a random generator to the inputs, in the order in which models take them.
INPUTS = {
    "minilm-1x16": ids(1, 16),
    "minilm-1x128": ids(1, 128),
    "minilm-8x128": ids(8, 128),
    "decode": decode,
    "prefill": prefill,
    "resnet50": normal(x=(1, 3, 224, 224)),
    "chain": normal(**{name: (4096, 1024) for name in "xabcd"}),
    "softmax-layernorm": normal(x=(4096, 768)),
    "sam-window": normal(x=(1, 64, 64, 768)),
    "sam-global": normal(x=(1, 64, 64, 768)),
    "sam": normal(x=(1, 3, 1024, 1024)),
}


def model(name, weights):
    """Returns the workload's module in evaluation mode. `weights` is the folder of MiniLM's weights."""
    import models

    if name.startswith("minilm"):
        return models.minilm(weights / "model.safetensors")
    make = {
        "decode": lambda: models.Llama(LAYERS),
        "prefill": lambda: models.Llama(LAYERS),
        "resnet50": models.resnet50,
        "chain": models.Chain,
        "softmax-layernorm": models.SoftmaxLayerNorm,
        "sam-window": lambda: models.SamBlock(14),
        "sam-global": lambda: models.SamBlock(0),
        "sam": models.Sam,
    }
    return models.seeded(make[name])
