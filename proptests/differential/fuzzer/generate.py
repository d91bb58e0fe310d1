"""Generates random graphs of one to eight steps. Each step is an op of the table or a pattern. A seed and a number identify a graph."""

import numpy as np

from .builder import Builder, Skip
from .references import Unable
from .specs import PATTERNS, STEPS

# The op sets of batches. All graphs of a batch share one, because they are in one file.
OPSETS = [23, 23, 23, 23, 23, 24, 21, 20, 18, 18, 17, 13, 13, 12, 11, 9, 26]
SINCE = {
    'Gelu': 20, 'Swish': 24, 'Mish': 18, 'HardSwish': 14, 'Celu': 12, 'Trilu': 14, 'CastLike': 15, 'LayerNormalization': 17,
    'RMSNormalization': 23, 'GroupNormalization': 21, 'Attention': 23, 'RotaryEmbedding': 23, 'Einsum': 12, 'DFT': 17, 'STFT': 17,
    'HannWindow': 17, 'HammingWindow': 17, 'BlackmanWindow': 17, 'MelWeightMatrix': 17, 'GridSample': 16, 'TensorScatter': 24,
    'CumProd': 26, 'CumSum': 11, 'LessOrEqual': 12, 'GreaterOrEqual': 12, 'Round': 11, 'GatherND': 11, 'GatherElements': 11,
    'ScatterElements': 11, 'ScatterND': 11, 'Range': 11, 'IsInf': 10, 'QuantizeLinear': 10, 'DequantizeLinear': 10, 'Resize': 11,
    'Pad': 11, 'Clip': 11, 'Slice': 10, 'TopK': 10, 'Shrink': 9, 'Hardmax': 13, 'Softmax': 13, 'LogSoftmax': 13, 'Mod': 10, 'ThresholdedRelu': 10,
    'ArgMax': 11, 'ArgMin': 11, 'MatMulInteger': 10, 'ConvInteger': 10, 'QLinearMatMul': 10, 'QLinearConv': 10,
    'DynamicQuantizeLinear': 11,
}


def graph(references, seed, number, opset):
    """Returns the graph of that number, or None if no step fits."""
    rng = np.random.default_rng([seed, number])
    mood = ['tame', 'mixed', 'wild'][int(rng.choice(3, p=[0.5, 0.3, 0.2]))]
    b = Builder(rng, references, opset, mood)
    ops = [op for op in STEPS if SINCE.get(op, 1) <= opset]
    steps, most, done = int(rng.integers(1, 9)), 40, 0
    while len(b.case.nodes) < steps and most:
        most -= 1
        pattern = opset >= 13 and rng.random() < 0.25
        step = PATTERNS[list(PATTERNS)[int(rng.integers(len(PATTERNS)))]] if pattern else STEPS[ops[int(rng.integers(len(ops)))]]
        try:
            step(b)
        except (Skip, Unable):
            continue
    if not b.case.nodes:
        return None
    b.case.outputs = outputs(b)
    case = b.case.pruned()
    return case


def outputs(b):
    """Returns the values that no node reads, and sometimes intermediate values too."""
    read = {name for node in b.case.nodes for name in node.reads()}
    made = [name for node in b.case.nodes for name in node.outputs]
    ends = [name for name in made if name not in read]
    return ends + [name for name in made if name in read and b.chance(0.08)]
