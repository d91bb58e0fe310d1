#!/usr/bin/env bash
# Runs every example and checks its output. Usage: run.sh BINARY, which must have the feature `text`. It needs neither a network nor a GPU,
# and takes seconds.
set -euo pipefail
eutectic=$(realpath -e "${1:?Usage: run.sh BINARY}")
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
count_wrong=0

# Ends an example, which runs in a separate shell.
fault() {
  printf '  %s\n' "$1" >&2
  exit 1
}

# Runs the command with the arguments after the first one. The first one is the expected exit code. The output goes to $said.
try() {
  local expected=$1 code=0
  shift
  said=$("$eutectic" "$@" 2>&1) || code=$?
  [ "$code" = "$expected" ] || fault "\`eutectic $*\` ended with exit code $code, not $expected: $said"
}

# Checks that the output contains each of these texts.
says() {
  for text; do
    [[ "$said" == *"$text"* ]] || fault "it did not print \`$text\`, but: $said"
  done
}

# Runs an example, which is a function, and prints one line about it.
example() {
  if ("$1"); then
    printf 'right  %-15s %s\n' "$1" "$2"
  else
    printf 'WRONG  %-15s %s\n' "$1" "$2"
    count_wrong=$((count_wrong + 1))
  fi
}

dense() {
  try 0 run dense/dense.graph --input x=@dense/x.npy --param w=@dense/w.npy --param b=@dense/b.npy --format json
  says '"values":[11.0,0.0,9.0,0.0,0.0,4.0,0.0,12.0]'
}

fusion() {
  try 0 opt fusion/residual-norm.graph --print kernels
  says '1 kernel a run'
  try 0 opt fusion/residual-norm.graph --print kernels --strategy unfused
  says '14 kernels a run'
  try 0 explain fusion/residual-norm.graph
  says 'by decompose/layernorm'
  # docs/pipeline.md quotes these.
  try 0 opt fusion/residual-norm.graph --print plan
  says '  rows [4096 | 768]' '    v5 = reduce-sum:f32 v2' '    store v17 at s5[768*i0+i1]'
  try 0 run fusion/residual-norm.graph --verify
  says 'all results agree up to rounding'
  try 0 explain fusion/residual-norm.graph --html "$scratch/page.html" --iters 0
  [ -s "$scratch/page.html" ] || fault 'no page was written'
}

lengths() {
  try 0 run lengths/rows.graph --param w=@lengths/w.npy --input x=@lengths/one-row.npy --format json
  says '"values":[18.0,4.0]'
  try 0 run lengths/rows.graph --param w=@lengths/w.npy --input x=@lengths/three-rows.npy --format json
  says '"values":[18.0,4.0,2.0,-12.0,18.0,4.0]'
}

onnx() {
  try 0 inspect onnx/perceptron.onnx
  says 'x f32[batch 6]' 'Gemm'
  try 0 run onnx/perceptron.onnx --input x=@onnx/x.npy --format json
  says '"values":[25.0,18.0,35.0,81.0,50.0,107.0]'
  try 0 bench onnx/perceptron.onnx --input x=@onnx/x.npy --reference onnx/y.npy --iters 1
  says 'largest error 0.00e0'
}

# The reference, transformers, computed these tokens: models/golden/gguf/llama.json.
language_model() {
  try 0 run ../models/golden/gguf/llama.gguf --prompt 'The cat and the 12 hats, in on is' --max-tokens 8 --format json
  says '"tokens":[4,0,56,56,5,65,5,65]'
}

own_rule() {
  try 0 rules check --rules own-rule
  says 'mine/max-of-negated' 'holds' '0 wrong'
  try 0 rules lint 'mine/*' --rules own-rule
  says '0 findings'
  try 0 opt own-rule/range.graph --print plan
  [[ "$said" != *reduce-min* ]] || fault "the plan has a reduce-min without the rule: $said"
  try 0 opt own-rule/range.graph --rules own-rule --print plan
  says 'reduce-min'
  try 0 rules ablate own-rule/range.graph --rules own-rule --iters 0
  says 'mine/max-of-negated'
}

own_op() {
  try 0 ops 'mine/*' --rules own-op
  says 'mine/squared-relu' '(F float) F[A..] -> F[A..]'
  try 0 rules check --rules own-op
  says 'decompose/mine/squared-relu' 'mine/square-of-absolute' '0 wrong'
  try 0 run own-op/squared.graph --rules own-op --verify
  says 'all results agree up to rounding'
  try 0 explain own-op/squared.graph --rules own-op
  says 'decompose/mine/squared-relu' 'mine/square-of-absolute'
  try 2 run own-op/squared.graph
  says 'there is no op `mine/squared-relu`'
}

wrong_rule() {
  try 1 rules check --rules wrong-rule
  says 'mine/max-of-scaled is wrong' 'mine/rmsnorm-of-scaled is wrong' '2 wrong'
  try 1 run wrong-rule/largest.graph --rules wrong-rule --verify
  says 'rule mine/max-of-scaled' 'without it the result is right'
  try 0 run wrong-rule/largest.graph --verify
}

near_miss() {
  try 0 rules why fuse/rmsnorm near-miss/norm.graph
  says 'does not match' '5 of 7 ops match' 'there with :axes [-2]'
}

saved_plan() {
  try 0 bench fusion/residual-norm.graph --save-plan "$scratch/norm.plan" --iters 1
  try 0 bench fusion/residual-norm.graph --plan "$scratch/norm.plan" --iters 1
  try 2 bench own-rule/range.graph --plan "$scratch/norm.plan" --iters 1
  says 'the plan does not fit'
}

embed() {
  local program
  program=$(dirname "$eutectic")/examples/embed
  said=$("$program" 2>&1) || fault "it ended with an error: $said"
  says '1 kernel' 'y = [11.0, 0.0, 9.0, 0.0]' 'y = [0.0, 4.0, 0.0, 12.0]'
}

example dense 'a graph in text form, run on arrays'
example fusion 'a residual sum and a LayerNorm become one kernel'
example lengths 'one program for any number of rows'
example onnx 'an ONNX model: what is in it, and its result'
example language_model 'a GGUF file continues a text'
example own_rule 'a rule of your own holds, fires and pays'
example own_op 'an op of your own is listed, checked, run and rewritten'
example wrong_rule 'two wrong rules are refuted, and blamed for a wrong result'
example near_miss 'why a rule does not fire'
example saved_plan 'a plan is kept and used again, for the same program only'
if [ -x "$(dirname "$eutectic")/examples/embed" ]; then
  example embed 'a Rust program compiles and runs a graph'
else
  echo 'left out: embed; `cargo build -p eutectic --example embed` makes it'
fi
[ "$count_wrong" = 0 ] || {
  echo "$count_wrong examples are wrong" >&2
  exit 1
}
