"""Facts about ONNX ops that the judge needs: how they round, and which are discontinuous."""

EXACT, MOVE, ULP, SUM = 'exact', 'move', 'ulp', 'sum'

# Ops that are one correctly rounded operation of IEEE 754.
_EXACT = 'Add Sub Mul Div Sqrt Reciprocal Cast CastLike Sum DequantizeLinear'

# Ops that do not round: they move, choose or compare values, or compute integers.
_MOVE = '''
Abs Neg Sign Floor Ceil Round Relu Max Min Clip Where IsNaN IsInf Not And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual
Reshape Flatten Squeeze Unsqueeze Transpose Expand Tile Concat Shape Size DepthToSpace SpaceToDepth Slice Split Pad Identity
Gather GatherElements GatherND ArgMax ArgMin Hardmax OneHot TopK Constant ConstantOfShape EyeLike Trilu Scatter ScatterElements
ScatterND TensorScatter ReduceMax ReduceMin MaxPool GlobalMaxPool Dropout QuantizeLinear Mod Upsample ReverseSequence
MatMulInteger ConvInteger QLinearMatMul QLinearConv DynamicQuantizeLinear
'''

# Elementwise functions. The error is a few units in the last place.
_ULP = '''
Exp Log Erf Sin Cos Tan Atan Asin Acos Sinh Cosh Asinh Acosh Atanh Sigmoid Tanh Softplus LeakyRelu PRelu ThresholdedRelu Elu
Celu Selu HardSigmoid HardSwish Softsign Gelu Mish Swish Shrink Pow Mean Range HannWindow HammingWindow BlackmanWindow
'''

# Ops that combine several elements of their inputs in an unspecified order.
_SUM = '''
MatMul Gemm Einsum Softmax LogSoftmax LayerNormalization RMSNormalization InstanceNormalization GroupNormalization
BatchNormalization LpNormalization MeanVarianceNormalization LRN ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceLogSum
ReduceSumSquare ReduceLogSumExp CumSum CumProd Conv ConvTranspose AveragePool LpPool GlobalAveragePool GlobalLpPool Resize
GridSample Attention RotaryEmbedding RNN GRU LSTM If Loop Scan DFT STFT MelWeightMatrix
'''

ROUNDING = {op: kind for kind, ops in ((EXACT, _EXACT), (MOVE, _MOVE), (ULP, _ULP), (SUM, _SUM)) for op in ops.split()}

DISCONTINUOUS = set('''
Floor Ceil Round Mod Sign Equal Less LessOrEqual Greater GreaterOrEqual ArgMax ArgMin Hardmax TopK QuantizeLinear DynamicQuantizeLinear
ThresholdedRelu Shrink OneHot Not And Or Xor If Loop Range
'''.split())

# Ops with absolute errors, even if the result is small: cancelling sums of terms of size 1, and saturating gates.
ABSOLUTE = {op: 2.0**-23 for op in ('HannWindow', 'HammingWindow', 'BlackmanWindow', 'MelWeightMatrix')}
ABSOLUTE |= {op: 2.0**-20 for op in ('RNN', 'GRU', 'LSTM')}

# Ops with errors relative to the largest element of the first operand. Weights are differences of positions.
RELATIVE = {op: 2.0**-19 for op in ('Resize', 'GridSample', 'DFT', 'STFT')}

# Ops that subtract rounded terms. The error is in units of the result's type, at the size of the largest operand or of
# 1.
CANCELLING = {'Range': 4.0, 'LogSoftmax': 2.0, 'ReduceLogSumExp': 2.0}
# Ops that do so for each element: x/6 + 1/2 is rounded near its zero at −3, and then multiplied by x.
GATES = {'HardSwish': 2.0, 'HardSigmoid': 2.0}

# Ops of several terms. No single term determines the sign of a zero.
ZERO_SIGN_OPEN = set(_SUM.split()) | set('Celu Elu Selu HardSwish Gelu Mish Swish Softsign ThresholdedRelu Shrink LeakyRelu PRelu Mean'.split())
# For these ops, ONNX does not specify the sign of a zero (Sign, Range) or the order of 0 and −0 (Relu, Max, Min, …).
ZERO_SIGN_OPEN |= set('Sign Range Relu Max Min Clip MaxPool GlobalMaxPool ReduceMax ReduceMin Scatter ScatterElements ScatterND'.split())

# Ops that sum products. In some order of the terms, the sum may be infinite.
LINEAR = set('''
MatMul Gemm Einsum ReduceSum ReduceMean ReduceL1 ReduceLogSum CumSum Conv ConvTranspose AveragePool GlobalAveragePool Resize GridSample
'''.split())

# Ops that multiply many factors. In some order of the factors, the product may be infinite or 0.
PRODUCTS = {'CumProd', 'ReduceProd'}

# Ops that square their input or its difference from a mean. The square may overflow.
SQUARES = set('''
LayerNormalization RMSNormalization InstanceNormalization GroupNormalization MeanVarianceNormalization LRN LpNormalization LpPool
GlobalLpPool ReduceL2 ReduceSumSquare
'''.split())

# Ops that take roots of sums of squares. The squares of small numbers are subnormal.
ROOTS = set('LpPool GlobalLpPool ReduceL2'.split())

# Ops with a pole. If rounding moves a divisor to 0, the result is infinite.
DIVIDING = set('''
Div Reciprocal Pow Mod Log Tan Atanh Softsign LpNormalization LayerNormalization RMSNormalization InstanceNormalization GroupNormalization
BatchNormalization MeanVarianceNormalization LRN ReduceLogSum ReduceLogSumExp
'''.split())

# Ops that use differences from the largest element. Differences between numbers of at least this size are 0 or huge.
OF_DIFFERENCES = {'Softmax', 'LogSoftmax'}
HUGE = 2.0**92

# Ops whose operands after the first determine the shape of the result.
SHAPED = {'Resize', 'Upsample'}
# Ops that read only the extents of their operand.
UNREAD = {'Shape', 'Size'}

# Ops whose sums of whole numbers are exact in any order if the numbers are small.
WHOLE_SUMS = set('MatMul Gemm ReduceSum CumSum Conv Sum'.split())

# Elementwise ops. Inside a cone, their results are rounded as the graph is written.
POINTWISE = set(_EXACT.split()) | set(_ULP.split()) | set('''
Abs Neg Sign Floor Ceil Round Relu Max Min Clip Where IsNaN IsInf Not And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual Mod
'''.split())


def rounding(op):
    """Returns how an op rounds. An unknown op rounds like a sum."""
    return ROUNDING.get(op, SUM)


def rounding_of(node):
    """Returns how a node rounds. Updates that add or multiply are sums and products in an unspecified order."""
    return SUM if node.attrs.get('reduction') in ('add', 'mul') else rounding(node.op)


def is_reordered(node):
    """Returns whether a node adds so many terms that `reassoc` allows another order than the written one."""
    return node.op == 'Sum' and len(node.inputs) > 2


def weights(nodes):
    """Returns the softmaxes by the name of their weights. A softmax may be in primitives: e/Σe for e = exp(x − max x).

    The value is the name of e, whose logarithm determines which weights are 0, or None for the op Softmax.
    """
    makers = {name: node for node in nodes for name in node.outputs}
    found = {node.outputs[0]: None for node in nodes if node.op == 'Softmax'}
    for node in nodes:
        if node.op == 'Div' and _is_softmax(node, makers):
            found[node.outputs[0]] = node.inputs[0]
    return found


# Ops that pass weights on to the product of attention, and ops that pass scores on to their softmax.
_GUARDS = set('Where IsNaN Identity Dropout Cast Reshape Transpose Squeeze Unsqueeze Slice Expand'.split())
_VIEWS = set('Identity Cast Reshape Transpose Squeeze Unsqueeze Expand'.split())


def biases(nodes):
    """Returns the sums of scores and a bias whose softmax attention takes: from the name of the sum to those of scores and bias."""
    makers = {name: node for node in nodes for name in node.outputs}
    softmaxes, read, found = weights(nodes), set(), {}
    for node in reversed(nodes):
        if node.op == 'MatMul':
            read.add(node.inputs[0])
        elif node.outputs[0] in read and node.outputs[0] in softmaxes:
            exp = softmaxes[node.outputs[0]]
            total = _behind(makers, makers[makers[exp].inputs[0]].inputs[0] if exp else node.inputs[0], _VIEWS)
            if total and total.op == 'Add':
                for scores, bias in (total.inputs, total.inputs[::-1]):
                    source = _behind(makers, scores, _VIEWS | {'Mul', 'Div'})
                    if source and source.op == 'MatMul':
                        found[total.outputs[0]] = scores, bias
        elif node.outputs[0] in read and node.op in _GUARDS:
            read |= set(node.reads())
    return found


def regrouped(nodes):
    """Returns the names of products that have a product as an operand. `reassoc` may multiply the others first."""
    makers = {name: node for node in nodes for name in node.outputs}
    is_product = lambda node: node is not None and node.op in ('MatMul', 'Gemm')
    return {node.outputs[0] for node in nodes if is_product(node) and any(is_product(_behind(makers, name, _VIEWS)) for name in node.inputs[:2])}


def _behind(makers, name, through):
    """Returns the node that computes a value, looking through the first operands of some ops, or None for a leaf."""
    while name in makers and makers[name].op in through:
        name = makers[name].inputs[0]
    return makers.get(name)


def _is_softmax(quotient, makers):
    """Returns whether a Div divides exp(x − max x) by its sum."""
    made = lambda name, op: makers[name] if name in makers and makers[name].op == op else None
    above, below = quotient.inputs
    exp, total = made(above, 'Exp'), made(below, 'ReduceSum')
    less = exp and made(exp.inputs[0], 'Sub')
    most = less and made(less.inputs[1], 'ReduceMax')
    return bool(most and total and total.inputs[0] == above and most.inputs[0] == less.inputs[0])


def is_discontinuous(node, dtypes):
    """Returns whether rounding of the inputs can change the output by a whole step. `dtypes` has the type of each value."""
    if node.op in ('Cast', 'CastLike'):
        return dtypes[node.outputs[0]].kind in 'iub' and dtypes[node.inputs[0]].kind not in 'iub'
    return node.op in DISCONTINUOUS


def observed(nodes, dtypes):
    """Returns the values that a discontinuous op reads, also through pointwise ops and views. They are rounded op by op."""
    found = set()
    for node in reversed(nodes):
        if node.op in UNREAD:
            continue
        through = rounding_of(node) in (MOVE, EXACT, ULP) and any(name in found for name in node.outputs)
        if through or is_discontinuous(node, dtypes):
            found |= set(node.reads())
        elif node.op in SHAPED:
            found |= set(node.inputs[1:])
    return found
