"""Types the commands of docs/journeys.md and records what they show.

    python docs/journeys.py target/release/eutectic            all of them; on an idle machine, in about five minutes
    python docs/journeys.py target/release/eutectic --quick    the quick ones; the others keep what they showed last
    python docs/journeys.py target/release/eutectic --only 8   one of them

Needs only the command, with all features. Python's and Rust's transcripts have tests of their own, which the page names.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "journeys.md"

OP = """\
;; k·max(x, 0)²
(op mine/squared-relu (forall (F float) (?x F[A..]) (?k float :default 1.0))
  (result F[A..])
  (is (mul (mul (act ?x :kind relu) (act ?x :kind relu)) ?k)))
"""

DIFFERENCE = """\
;; −(a − b) = b − a
(rule mine/difference
  (forall (F float) (?a F[A..]) (?b F[A..]))
  (=> (neg (sub ?a ?b)) (sub ?b ?a))
  (eq exact))
"""

PADDED = """\
;; K is padded to a multiple of 8, where it is none
(rule mine/pad-k
  (forall (F float) (?x F[M K]) (?w F[K N]))
  (where (not (divides 8 K)) (equal P (- 8 (mod K 8))))
  (=> (matmul ?x ?w)
      (matmul (pad ?x :axis -1 :before 0 :after P :value 0.0) (pad ?w :axis -2 :before 0 :after P :value 0.0)))
  (eq reassoc)
  (backend cuda vulkan)
  (device (least memory 1e9))
  (once) (canonical))
"""

PHASE = """\
(phase mine/late (after main))

;; x + x = 2·x, after everything else
(rule mine/twice
  (forall (F float) (?x F[A..]))
  (=> (add ?x ?x) (mul ?x 2.0))
  (eq exact)
  (phase mine/late)
  (canonical))
"""

TURNED = """\
;; −x = log(1/eˣ)
(rule mine/turned
  (forall (F float) (?x F[A..]))
  (=> (neg ?x) (log (reciprocal (exp ?x))))
  (eq reassoc)
  (canonical))
"""

NEG = """\
(graph "neg"
  (input x f32[64 256])
  (output y (neg x)))
"""

LOOKUPS = """\
;; lookups by the same ids are one lookup in the joined tables
(rule mine/joined-lookups
  (forall (F any) (?t F[V D]) (?i i64[S]))
  (group ?y (gather ?t ?i :axis -2))
  (=> ?y (slice (gather (concat ?t.. :axis -1) ?i :axis -2) :axis -1 :at (offset ?y) :len D))
  (eq exact))
"""

LOOKUPS_GRAPH = """\
(graph "lookups"
  (input i i64[4])
  (param t f32[1000 64])
  (param u f32[500 32])
  (output a (gather t i :axis -2))
  (output b (gather u i :axis -2)))
"""

SQUARED = """\
(graph "squared"
  (input x f32[2 4])
  (output y (mine/squared-relu x :k 0.5)))
"""

MLP = """\
(graph "mlp"
  (input x f32[B 128])
  (param w f32[128 64])
  (param b f32[64])
  (output y (act (add (matmul x w) b) :kind gelu-erf)))
"""

GUESS = """\
(graph "guess"
  (input x f32[4])
  (output y (relu (mul 2.0 x))))
"""

PACK = 'name = "mine"\nversion = "1.0.0"\nlanguage = 1\n'

ONNX = ROOT / "models" / "golden" / "onnx" / "mlp-new.onnx"
GGUF = ROOT / "models" / "golden" / "gguf" / "llama.gguf"

# Number, improvement, files, commands, slow, note. A command may end in `| lines A..B`, which shows these lines of it only.
JOURNEYS = [
    (1, "Ops as data", {"own/own.rules": OP, "squared.graph": SQUARED},
     ["eutectic ops 'mine/*' --rules own", "eutectic rules check 'decompose/mine/*' --rules own",
      "eutectic run squared.graph --rules own"], False, None),
    (2, "One ONNX program for every length", {},
     [f"eutectic run {ONNX} --shape batch=1..64 | lines 1..6", f"eutectic opt {ONNX} --shape batch=1..64 | lines 1..10"], False, None),
    (3, "Honest predictions out of the box", {}, ["eutectic bench demo --explain --duration 2 | lines 1..16"], True, None),
    (4, "A noise guard", {}, ["eutectic bench demo --duration 2 | lines 1..8"], True,
     "Commands that measure read the time for which the scheduler let the process wait; on a busy machine they warn, and `tune` writes nothing without `--anyway`."),
    (5, "`tune` that can be watched and stopped", {}, ["eutectic tune --quick --anyway --out costs.toml 2>&1 | lines 1..12"], True, None),
    (6, "Tuned costs are found again", {}, ["eutectic tune --quick --anyway 2>&1 | lines -3..", "eutectic bench demo --duration 1 | lines 1..6"], True, None),
    (7, "Cost files with units, and their differences", {"half.toml": '[memory]\ndram = "5 GB/s"\n'},
     ["eutectic costs | lines 1..14", "eutectic costs diff half.toml default demo | lines 1..14"], False, None),
    (8, "The text of a rule, and the language", {},
     ["eutectic rules show fuse/rmsnorm", "eutectic rules language | lines 1..4"], False, None),
    (9, "Python", {}, [], False,
     "`pip install ./python`; `python/tests` types these: `eutectic.load(\"model.onnx\").run({\"x\": x})`, `model.explain()`, `torch.compile(m, backend=\"eutectic\")`."),
    (10, "Guards as data", {"own/pad.rules": PADDED},
     ["eutectic rules check mine/pad-k --rules own"], False, None),
    (11, "The price of a rule", {"turned.rules": TURNED, "neg.graph": NEG},
     ["eutectic opt neg.graph --rules turned.rules --force mine/turned --print kernels --costs default",
      "eutectic rules why mine/turned neg.graph --rules turned.rules --costs default"], False, None),
    (12, "One call in Rust", {}, [], False,
     "`eutectic::open(\"m.onnx\")?.run(&[(\"x\", x)])`, `tensor.values::<f32>()`, and `tensor.view::<f32>()` with the feature `ndarray`; each is a tested example of the crate's first page."),
    (13, "Language models from GGUF files", {},
     [f"eutectic run {GGUF} --prompt 'The cat and the hat' --max-tokens 8", f"eutectic bench {GGUF} --prompt 16 --generate 16"], False, None),
    (14, "Kernels named as data", {}, [], False,
     "Left out: no backend takes a kernel's source from a file. A composite that one kernel computes needs no such file, and a backend in Rust can recognise it."),
    (15, "Packs that travel", {"mine/pack.toml": PACK, "mine/own.rules": OP},
     ["eutectic rules pack mine --quick --backend none", "eutectic rules list 'decompose/mine/*' --rules mine-1.0.0.epack"], False, None),
    (16, "Phases of one's own", {"own/late.rules": PHASE}, ["eutectic rules list mine/twice --rules own"], False, None),
    (17, "Group agreement", {"own/lookups.rules": LOOKUPS, "lookups.graph": LOOKUPS_GRAPH},
     ["eutectic opt lookups.graph --rules own --print kernels"], False,
     "Tables of different heights are not joined, and the program stays as it is. `rules check` still draws such tables as members of one group, and calls the rule wrong."),
    (18, "Editor support", {"own/own.rules": ";; x\n(rule mine/a (forall (F float) (?x F[A..]))\n (=> (neg (neg ?x))    ?x)\n (eq exact))\n"},
     ["eutectic rules fmt --check own", "eutectic rules fmt own && cat own/own.rules"], False,
     "`eutectic lsp` serves editors; [editors.md](editors.md) says how, and `cli/tests/lsp.rs` types a session."),
    (19, "`compare`", {"mlp.graph": MLP}, ["eutectic compare mlp.graph --shape B=4 --with cpu"], False, None),
    (20, "Two settings in turns", {}, ['eutectic bench demo --against "--without fuse/*" --duration 4'], True, None),
    (21, "A folded explanation", {}, ["eutectic explain demo 4 --threads 1 --costs default | lines 1..24"], False, None),
    (22, "Quick starts, and quick new lengths", {}, [], False,
     "`cargo run --release -p eutectic-benches --example start` and `--example decode` measure them."),
    (23, "Numbers and names in graph text", {"guess.graph": GUESS}, ["eutectic opt guess.graph"], False,
     "Left out: numbers are not operands of graphs, because they have no element type there, and the help says how to write a constant. `relu` gets no guess yet; `(sub …)` names bodies in the place of `(def …)`."),
    (24, "State programs from the command", {}, [], False,
     "Left out: `run` makes one run, and states begin with zeros. `generate` in Rust and `chat` run many steps."),
    (25, "README for a stranger", {}, [], False, "[README](../README.md) and [examples](../examples/README.md)."),
]


def cut(text, lines):
    """Returns the lines `A..B` of a text, counted from 1; a negative A counts from the end."""
    all_lines = text.rstrip().splitlines()
    first, last = re.fullmatch(r"(-?\d+)\.\.(\d*)", lines).groups()
    start = int(first) - 1 if int(first) > 0 else len(all_lines) + int(first)
    end = int(last) if last else len(all_lines)
    kept = all_lines[max(start, 0):end]
    more = len(all_lines) - max(start, 0) - len(kept)
    return "\n".join(kept + ([f"… and {more} more lines"] if more > 0 else []))


def transcript(binary, files, commands):
    """Returns the commands with what they showed, as a session of a shell."""
    shown = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        path = os.pathsep.join([str(binary.parent), os.environ["PATH"]])
        env = {**os.environ, "PATH": path, "HOME": folder, "COLUMNS": "100", "NO_COLOR": "1"}
        for command in commands:
            line, _, lines = command.partition(" | lines ")
            done = subprocess.run(["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=600)
            text = (done.stdout + done.stderr).replace(str(ROOT) + "/", "").replace(folder, "~").rstrip()
            text = cut(text, lines) if lines else text
            code = f"\n[exit code {done.returncode}]" if done.returncode else ""
            line = line.replace(str(ROOT) + "/", "").replace(" 2>&1", "")
            shown.append(f"$ {line}\n{text}{code}".rstrip())
    return "\n\n".join(shown)


def sections(page):
    """Returns the sections of a page by their numbers."""
    parts = re.split(r"^(?=## \d+\. )", page, flags=re.M)[1:]
    return {int(re.match(r"## (\d+)\.", part).group(1)): part for part in parts}


def section(binary, journey):
    """Returns a section of the page."""
    number, title, files, commands, _, note = journey
    text = f"## {number}. {title}\n\n"
    for name, content in files.items():
        language = "toml" if name.endswith(".toml") else "lisp"
        text += f"`{name}`:\n\n```{language}\n{content.rstrip()}\n```\n\n"
    if commands:
        text += f"```text\n{transcript(binary, files, commands)}\n```\n\n"
    return text + (f"{note}\n\n" if note else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", type=int, action="append")
    args = parser.parse_args()
    old = sections(PAGE.read_text()) if PAGE.exists() else {}
    page = [
        "# What users asked for, tried\n\n"
        "Three kinds of new users tried everything once, and asked for 25 improvements. This page types a command for each and shows what it prints.\n"
        "`python docs/journeys.py target/release/eutectic` writes it.\n\n"
    ]
    for journey in JOURNEYS:
        number, slow = journey[0], journey[4]
        kept = number in old and (args.quick and slow or args.only and number not in args.only)
        print(f"{number}. {journey[1]}" + (" (kept)" if kept else ""), file=sys.stderr)
        page.append(old[number] if kept else section(args.binary.resolve(), journey))
    PAGE.write_text("".join(page).rstrip() + "\n")


main()
