"""Runs the `eutectic` binary on many cases in one model. If some cases fail, the others run without them."""

import json
import re
import resource
import signal
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from .graph import merged
from .values import BF16


class Failure(Exception):
    """A failure of the engine on a case: it refused the case, failed, hung, or crashed. `kind` says which."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class Engine:
    """Runs cases with a binary and the given options of `eutectic run`."""

    def __init__(self, binary, folder=None, timeout=120):
        self.binary = str(binary)
        self.folder = folder
        self.timeout = timeout
        self.runs = 0
        # The cases that run alone but not in one model with others, with the error message.
        self.together = []

    def known_ops(self, opset):
        """Returns the ONNX ops of the op set that the importer knows, according to `eutectic inspect`."""
        from onnx import defs, helper
        names = sorted({s.name for s in defs.get_all_schemas() if s.domain == ''})
        nodes = [helper.make_node(name, ['x'], [f'y{i}'], name=name) for i, name in enumerate(names)]
        port = lambda name: helper.make_tensor_value_info(name, 1, ['N'])
        graph = helper.make_graph(nodes, 'g', [port('x')], [port('y0')])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], ir_version=10)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            path = Path(folder) / 'ops.onnx'
            path.write_bytes(made.SerializeToString())
            done = subprocess.run([self.binary, 'inspect', str(path), '--format', 'json'], capture_output=True, text=True, timeout=self.timeout)
        about = json.loads(done.stdout)
        return set(about['ops']) - {problem['op'] for problem in about['unsupported']}

    def run_one(self, case, types, options=()):
        """Returns the outputs of a case by name, or raises Failure."""
        return self._run([case], [types], options)[0]

    def run(self, cases, types, options=()):
        """Returns the outputs by name, or the Failure, for each case."""
        results = [None] * len(cases)
        self._split(list(range(len(cases))), cases, types, options, results)
        return results

    def _split(self, chosen, cases, types, options, results):
        """Runs the chosen cases together. If this fails, leaves out the cases that the error names, or else halves the set."""
        if not chosen:
            return
        try:
            done = self._run([cases[i] for i in chosen], [types[i] for i in chosen], options)
        except Failure as failure:
            if len(chosen) == 1:
                results[chosen[0]] = failure
                return
            named = {int(n) for n in re.findall(r'\bg(\d+)_', str(failure))}
            named = sorted(n for n in named if n < len(chosen))
            if failure.kind == 'refused' and named and len(named) < len(chosen):
                alone = [chosen[n] for n in named]
                self._split(alone, cases, types, options, results)
                if not any(isinstance(results[i], Failure) for i in alone):
                    self.together.append(([cases[i] for i in chosen], str(failure)))
                self._split([i for i in chosen if i not in alone], cases, types, options, results)
                return
            half = len(chosen) // 2
            self._split(chosen[:half], cases, types, options, results)
            self._split(chosen[half:], cases, types, options, results)
            if not any(isinstance(results[i], Failure) for i in chosen):
                self.together.append(([cases[i] for i in chosen], str(failure)))
        else:
            for i, outputs in zip(chosen, done):
                results[i] = outputs

    def _run(self, cases, types, options):
        made, arrays, outputs = merged(cases, types)
        self.runs += 1
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            path = Path(folder)
            (path / 'm.onnx').write_bytes(made.SerializeToString())
            command = [self.binary, 'run', str(path / 'm.onnx'), '--threads', '1', *options]
            for at, (name, value) in enumerate(arrays.items()):
                np.save(path / f'i{at}.npy', value)
                command += ['--input', f'{name}=@{path}/i{at}.npy']
            for at, (_, _, name) in enumerate(outputs):
                command += ['--output', f'{name}={path}/o{at}.npy']
            self._call(command)
            results = [{} for _ in cases]
            for at, (case, name, _) in enumerate(outputs):
                value = np.load(path / f'o{at}.npy')
                results[case][name] = value.astype(BF16) if types[case][name] == BF16 and value.dtype == np.float32 else value
        return results

    def _call(self, command):
        try:
            # The limit is processor time, so a busy machine does not look like a hang. A process that waits for ever
            # uses none.
            limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (self.timeout, self.timeout))
            done = subprocess.run(command, capture_output=True, text=True, timeout=10 * self.timeout, preexec_fn=limit)
        except subprocess.TimeoutExpired:
            raise Failure('hang', f'no result in {10 * self.timeout} s') from None
        if done.returncode == 0:
            return
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise Failure('hang', f'no result in {self.timeout} s of processor time')
        kind = 'crash' if done.returncode < 0 or done.returncode == 101 else 'refused' if done.returncode == 2 else 'failed'
        raise Failure(kind, done.stderr.strip())
