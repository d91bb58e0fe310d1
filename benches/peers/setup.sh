#!/usr/bin/env bash
# Makes the prerequisites of the peers' benchmarks: a Python environment, the MiniLM weights and the workloads' ONNX exports.
# Usage: setup.sh [WORKLOAD ...]   (default: all)   Into ${PEERS_DIR:-$HOME/.cache/eutectic-peers}; needs 10 GB.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
peers=${PEERS_DIR:-$HOME/.cache/eutectic-peers}
python=$peers/venv/bin/python

die() { echo "setup: $*" >&2; exit 1; }

mkdir -p "$peers"/{onnx,minilm} || die "cannot create $peers; set PEERS_DIR to a folder that can be written"
[ -x "$python" ] || python3 -m venv "$peers/venv" ||
  die "python3 cannot make a virtual environment in $peers/venv; install it (Debian: apt-get install python3-venv)"
command -v g++ >/dev/null || die "torch.compile needs g++; install it (Debian: apt-get install g++)"

# PyPI's torch for Linux does not import without its CUDA libraries, hence the size.
"$python" -m pip install --quiet torch==2.15.0 torchvision==0.29.2 numpy==2.4.6 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.31.1 \
  openvino==2026.4.1 tract==0.23.9 safetensors==0.8.0 tokenizers==0.23.3 transformers==5.23.0 ||
  die "pip could not install the peers into $peers/venv; check that PyPI can be reached (pip's message is above)"

"$here/../../models/scripts/fetch-minilm.sh" "$peers/minilm"
"$python" "$here/export.py" "$peers/minilm" "$peers/onnx" "$@"
