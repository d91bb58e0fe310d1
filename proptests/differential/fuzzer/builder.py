"""Builds random graphs step by step. Each step can use the values of the steps before."""

import numpy as np

from . import values
from .graph import Case, Node
from .values import BOOL, F32, FLOATS, I64, INTS

# Values have at most this many elements, so that a graph takes milliseconds.
MOST = 4096
# The weights of the element types when a new tensor may have any of several.
TYPE_WEIGHTS = {F32: 10, values.F64: 3, values.F16: 3, values.BF16: 2, I64: 3, values.I32: 3, values.I8: 1, values.U8: 1, values.U32: 1, BOOL: 1}


class Skip(Exception):
    """Raised by a step that does not fit the graph."""


class Builder:
    """A graph under construction, with the value of each name."""

    def __init__(self, rng, references, opset, mood):
        self.rng, self.references, self.opset, self.mood = rng, references, opset, mood
        self.case = Case(opset, {}, {}, [], [])
        self.env = {}
        self.base = values.shape(rng)

    # Random choices

    def chance(self, p):
        """Returns True with probability p."""
        return bool(self.rng.random() < p)

    def choose(self, options):
        """Returns a random option."""
        return options[int(self.rng.integers(len(options)))]

    def int(self, low, high):
        """Draws an integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def dtype(self, allowed):
        """Draws an element type."""
        weights = np.array([TYPE_WEIGHTS[t] for t in allowed], float)
        return allowed[int(self.rng.choice(len(allowed), p=weights / weights.sum()))]

    def axis(self, rank):
        """Draws an axis, counted from either end."""
        return self.int(-rank, rank - 1)

    def shape(self, rank=None):
        """Draws a shape. It is often the base shape of the graph."""
        if rank is None and self.chance(0.5):
            return self.base
        return values.shape(self.rng, rank)

    def broadcast(self, shape):
        """Draws a shape that broadcasts with a given one to at most MOST elements."""
        kept = [d if self.chance(0.6) else 1 for d in shape]
        drop = self.int(0, len(kept)) if self.chance(0.5) else 0
        kept = kept[drop:]
        grown = [self.choose([2, 3, 5]) if d == 1 and self.chance(0.15) else d for d in kept]
        trial = np.broadcast_shapes(tuple(shape), tuple(kept))
        for i in range(len(grown)):
            if grown[-1 - i] != kept[-1 - i] and shape[len(shape) - 1 - i] != 1:
                grown[-1 - i] = kept[-1 - i]
        result = np.broadcast_shapes(tuple(shape), tuple(grown))
        return tuple(grown) if np.prod(result, dtype=int) <= MOST else tuple(kept) if np.prod(trial, dtype=int) <= MOST else ()

    # Leaves

    def leaf(self, value, constant=None):
        """Adds a tensor: an input of the graph, or a constant in the file."""
        name = f'v{len(self.env)}'
        constant = self.chance(0.3) if constant is None else constant
        (self.case.constants if constant else self.case.inputs)[name] = value
        self.env[name] = value
        return name

    def fresh(self, shape, dtype, constant=None, mood=None):
        """Adds a random tensor."""
        return self.leaf(values.tensor(self.rng, tuple(shape), dtype, mood or self.mood), constant)

    def const(self, value, dtype=I64):
        """Adds a constant that determines shapes or positions."""
        return self.leaf(np.array(value, dtype), constant=True)

    def number(self, dtype, value):
        """Adds a single number of an element type."""
        return self.leaf(np.array(value).astype(dtype), constant=self.chance(0.8))

    # Values

    def __getitem__(self, name):
        return self.env[name]

    def rank(self, name):
        """Returns the rank of a value."""
        return self.env[name].ndim

    def dims(self, name):
        """Returns the dims of a value."""
        return self.env[name].shape

    def take(self, types=FLOATS, ranks=range(6), where=lambda v: True, new=0.2):
        """Returns a value that fits. Usually this is the newest one that fits, and sometimes a new leaf."""
        fits = [n for n, v in self.env.items() if v.dtype in types and v.ndim in ranks and v.size <= MOST and where(v)]
        computed = [n for n in fits if n not in self.case.constants and n not in self.case.inputs]
        if computed and not self.chance(new):
            return computed[-1] if self.chance(0.7) else self.choose(computed)
        if fits and self.chance(0.3):
            return self.choose(fits)
        for _ in range(20):
            dims = self.shape()
            dims = dims if len(dims) in ranks else self.shape(self.choose(list(ranks)))
            value = values.tensor(self.rng, dims, self.dtype(tuple(types)), self.mood)
            if where(value):
                return self.leaf(value)
        raise Skip

    def like(self, name, types=None, shape=None):
        """Returns a value of the type of another value (or of `types`) that broadcasts with it: an older value or a new leaf."""
        x = self.env[name]
        types = types or (x.dtype,)

        def fits(v):
            if v.dtype not in types:
                return False
            try:
                return np.prod(np.broadcast_shapes(v.shape, x.shape), dtype=int) <= MOST
            except ValueError:
                return False
        known = [n for n, v in self.env.items() if fits(v)] if shape is None else []
        if known and self.chance(0.5):
            return self.choose(known)
        shape = self.broadcast(x.shape) if shape is None else shape
        return self.fresh(shape, self.dtype(types))

    # Nodes

    def node(self, op, inputs, outputs=1, captures=(), **attrs):
        """Adds a node and evaluates it. Returns the name of its output, or the list of names if there are several."""
        names = [f'v{len(self.env) + i}' for i in range(outputs)]
        inputs = list(inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        node = Node(op, inputs, names, {k: v for k, v in attrs.items() if v is not None}, list(captures))
        results = self.references.run(node, self.env, self.opset)
        if any(y is None or y.size > 4 * MOST for y in results):
            raise Skip
        self.env.update(zip(names, results))
        self.case.nodes.append(node)
        return names[0] if outputs == 1 else names

    def listed(self, op, x, numbers, name, since, others=(), **attrs):
        """Adds a node whose list of integers is an attribute before op set `since`, and an input from then on."""
        if self.opset < since:
            return self.node(op, [x, *others], **{name: list(numbers)}, **attrs)
        return self.node(op, [x, self.const(numbers), *others], **attrs)


INT_TYPES, FLOAT_TYPES = INTS, FLOATS
