"""The table of generators: an op, or a pattern of several, to a function that adds it to a graph."""

from . import elementwise, indexing, layout, loops, patterns, quantised, reductions, shapes, spatial

FAMILIES = (elementwise, layout, indexing, reductions, spatial, quantised, loops)

# A step for each op of the importer's table: (first op set, function of the builder).
STEPS = {name: step for family in FAMILIES for name, step in family.STEPS.items()}

# Steps of several nodes, as exporters and people write them.
PATTERNS = {**patterns.PATTERNS, **shapes.PATTERNS}

# Ops of the importer's table without a generator, with the reason.
_NODE_TESTS = 'judged by its node tests of ONNX and by the suite of kernels; a generator changes every graph, and with it what the tests of the judge meet'
WITHOUT = dict.fromkeys('''
AffineGrid BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im Compress DeformConv Det MaxUnpool
NegativeLogLikelihoodLoss NonMaxSuppression NonZero OptionalGetElement OptionalHasElement ReverseSequence RoiAlign SoftmaxCrossEntropyLoss
TfIdfVectorizer Unique
'''.split(), _NODE_TESTS)
WITHOUT.update(dict.fromkeys(
    'Bernoulli RandomNormalLike RandomUniformLike'.split(),
    'draws: another engine draws other values; judged by the moments and the range of its values (models/onnx/src/tests/random.rs)',
))
