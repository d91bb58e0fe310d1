#!/usr/bin/env python3
"""Makes gguf/o200k.json: texts and their tokens by tiktoken, with the splitting rule of o200k and a small vocabulary.

The vocabulary has all bytes, and all pairs of a few letters and signs, so that tokens show where texts are split.
Run once, by hand, with tiktoken (0.14) and transformers:
    python models/golden/make_o200k.py
"""
import inspect
import json
import pathlib
import re

import tiktoken
import tiktoken_ext.openai_public
from transformers.convert_slow_tokenizer import bytes_to_unicode

OUT = pathlib.Path(__file__).resolve().parent / "gguf" / "o200k.json"
SIGNS = "aBs1' \n/!-"
TEXTS = ["aBs's Bs'S 1a", "BaBs11111'sa", "  a\n\n 1/\n/", "!a's-Ba -aB '1", " a B  1   \n", "a\u0301Bs \u01c5a \u4e00a1\u0663 \U0001f642a'sB", "B'SBa's'ss"]


def pattern():
    """Reads the rule from tiktoken's source, because its function downloads the vocabulary."""
    source = inspect.getsource(tiktoken_ext.openai_public.o200k_base)
    return "|".join(re.findall(r'r"""(.*?)"""', source))


def main():
    pairs = [(a + b).encode() for a in SIGNS for b in SIGNS]
    tokens = [bytes([n]) for n in range(256)] + pairs
    encoding = tiktoken.Encoding("small", pat_str=pattern(), mergeable_ranks={token: n for n, token in enumerate(tokens)}, special_tokens={})
    letters = bytes_to_unicode()
    word = lambda token: "".join(letters[byte] for byte in token)
    golden = dict(
        tokens=[word(token) for token in tokens],
        merges=[f"{word(pair[:1])} {word(pair[1:])}" for pair in pairs],
        texts=[dict(text=text, ids=encoding.encode(text)) for text in TEXTS],
    )
    OUT.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
