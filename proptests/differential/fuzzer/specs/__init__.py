"""The table of generators: from an op or a pattern of several ops to a function that adds it to a graph."""

from . import elementwise, indexing, layout, loops, patterns, quantised, reductions, shapes, spatial

FAMILIES = (elementwise, layout, indexing, reductions, spatial, quantised, loops)

# The step of each op in the importer's table: (first op set, function of the builder).
STEPS = {name: step for family in FAMILIES for name, step in family.STEPS.items()}

# Steps of several nodes, in the forms that exporters and people write.
PATTERNS = {**patterns.PATTERNS, **shapes.PATTERNS}

# The ops of the importer's table without a generator, with the reason.
_NODE_TESTS = 'judged by the node tests of ONNX and by the suite of kernels; a new generator would change every random graph, also those in the tests of the judge'
WITHOUT = dict.fromkeys('''
AffineGrid BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im Compress DeformConv Det MaxUnpool
NegativeLogLikelihoodLoss NonMaxSuppression NonZero OptionalGetElement OptionalHasElement ReverseSequence RoiAlign SoftmaxCrossEntropyLoss
TfIdfVectorizer Unique
'''.split(), _NODE_TESTS)
WITHOUT.update(dict.fromkeys(
    'Bernoulli RandomNormalLike RandomUniformLike'.split(),
    'random: each engine draws other values; judged by the moments and the range of its values (models/onnx/src/tests/random.rs)',
))
