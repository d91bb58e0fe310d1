#!/usr/bin/env bash
# Makes what the peers' benchmarks need: a Python environment, the MiniLM weights and their ONNX exports.
# Usage: setup.sh [BATCHxSEQ ...]   (default: 1x128)   Into ${PEERS_DIR:-$HOME/.cache/eutectic-peers}; needs 8 GB.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
peers=${PEERS_DIR:-$HOME/.cache/eutectic-peers}
python=$peers/venv/bin/python

die() { echo "setup: $*" >&2; exit 1; }

mkdir -p "$peers"/{onnx,minilm} || die "cannot create $peers; set PEERS_DIR to a folder that can be written"
[ -x "$python" ] || python3 -m venv "$peers/venv" ||
  die "python3 cannot make a virtual environment in $peers/venv; install it (Debian: apt-get install python3-venv)"

# PyPI's torch for Linux does not import without its CUDA libraries, hence the size. It makes the ONNX export and the
# golden embeddings, and is never measured here.
"$python" -m pip install --quiet torch==2.15.0 numpy==2.4.6 onnx==1.23.2 onnxruntime==1.31.1 \
  safetensors==0.8.0 tokenizers==0.23.3 transformers==5.23.0 ||
  die "pip could not install the peers into $peers/venv; check that PyPI can be reached (pip's message is above)"

"$here/../../models/scripts/fetch-minilm.sh" "$peers/minilm"
for shape in "${@:-1x128}"; do
  [[ $shape =~ ^([1-9][0-9]*)x([1-9][0-9]*)$ ]] || die "'$shape' is not BATCHxSEQ; write for example 8x128"
  "$python" "$here/export_minilm.py" --weights "$peers/minilm" --out "$peers/onnx/minilm-$shape.onnx" \
    --batch "${BASH_REMATCH[1]}" --seq "${BASH_REMATCH[2]}"
done
