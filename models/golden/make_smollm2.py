#!/usr/bin/env python3
"""Makes smollm2/golden.json: the tokens of texts and the continuations of prompts by transformers, for the file of fetch-smollm2.sh.

transformers reads the same GGUF file and computes in float32. Run once, by hand, with torch, transformers, accelerate and gguf:
    python models/golden/make_smollm2.py DIR
"""
import json
import pathlib
import sys

import torch
import transformers
from tokenizers import pre_tokenizers

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
TOKENS = 64
# Prompts as plain text, then as a user's message.
PLAIN = [
    "The capital of France is", "Once upon a time", "def fibonacci(n):", "1, 2, 3, 4,", "Water boils at", "Dear Sir or Madam,",
    "The quick brown fox", "In 1969, humans", "Q: What is 2 + 2?\nA:", "La capitale de l'Espagne est",
]
CHAT = [
    "Who are you?", "Name three metals.", "What is an e-graph?", "Write a haiku about rust.", "Translate 'good morning' into German.",
    "Is 17 a prime number?", "Give me a recipe for bread.", "Why is the sky blue?", "List the planets.", "Say nothing.",
]
TEXTS = [
    "", " ", "  two spaces", "tab\tand\nnewline\n\n\nend ", "3333+777 = 4110, 1234567890 0.5e-3", "don't I'll WE'VE it's",
    "Gr\u00fc\u00dfe aus M\u00fcnchen, na\u00efve caf\u00e9", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u6771\u4eac\u90fd\u3068\u4eac\u90fd\u5e02\u3001\u4e2d\u6587\u5b57\u7b26",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\U0001f642\U0001f469\u200d\U0001f680\U0001f1e9\U0001f1ea e\u0301 \u00e9",
    "fn main() {\n    let x: Vec<u8> = vec![0; 16];\n\tprintln!(\"{:?}\", &x[..4]);\n}\n", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "a<|endoftext|>b", "https://example.org/a?b=c&d=%20#e", "\u00a0non\u2003breaking\u3000", "x\u00b2 + y\u00b3 \u2260 \u00bd \u2167", "\ufeffBOM \ufffd",
]


def read_tokenizer(folder):
    """The tokenizer of the file, with the digits one by one that `tokenizer.ggml.pre` stands for and the model's tokenizer.json has.

    transformers passes over `pre`; signs as \u00bd after a space would be other tokens.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=FILE)
    parts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    return tokenizer


def greedy(model, ids):
    """Returns the most likely tokens, each with the distance of its logit to the second largest one. Tokens that end a text do not end the list."""
    tokens, margins, past = [], [], None
    step = torch.tensor([ids])
    for _ in range(TOKENS):
        with torch.no_grad():
            out = model(step, past_key_values=past, use_cache=True)
        past = out.past_key_values
        best = out.logits[0, -1].topk(2)
        tokens.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 5))
        step = torch.tensor([[tokens[-1]]])
    return tokens, margins


def main():
    folder = sys.argv[1]
    tokenizer = read_tokenizer(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=FILE, dtype=torch.float32).eval()
    prompts = []
    for text in PLAIN:
        prompts.append(dict(text=text, chat=False, ids=tokenizer(text)["input_ids"]))
    for text in CHAT:
        message = [dict(role="user", content=text)]
        written = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        prompts.append(dict(text=text, chat=True, written=written, ids=tokenizer(written)["input_ids"]))
    for prompt in prompts:
        prompt["tokens"], prompt["margins"] = greedy(model, prompt["ids"])
        print(repr(prompt["text"]), min(prompt["margins"]), repr(tokenizer.decode(prompt["tokens"]))[:80])
    texts = [dict(text=text, ids=tokenizer(text)["input_ids"]) for text in TEXTS]
    out = pathlib.Path(__file__).resolve().parent / "smollm2" / "golden.json"
    out.parent.mkdir(exist_ok=True)
    lines = lambda items: "[\n" + ",\n".join(json.dumps(item) for item in items) + "\n]"
    out.write_text('{"texts": ' + lines(texts) + ', "prompts": ' + lines(prompts) + "}\n")


if __name__ == "__main__":
    main()
