#!/usr/bin/env python3
"""bigram_model.py CORPUS.jsonl TOKENIZER_FOLDER COUNTS.json MODEL_FOLDER: writes the bigram model of a corpus in Hugging
Face's format, so that `eval` scores it as any other model. The bigram model is what a model that learned only pairs of
adjacent tokens knows: it predicts a token from how often the corpus has it after the token before.

The model is a Llama whose single block adds nothing, because all its weights are 0. A token's embedding is 1 in a dimension of
its own, and the head's column of that dimension has the logarithms of the probabilities of the tokens after it.

The corpus is plain ASCII. The script encodes it with the merges of tokenizer.json, and exits with 1 if it does not have as many
tokens as `prepare-data tokenize` printed, in COUNTS.json. It prints {"bigram_entropy"}: the mean of -log p(token | token
before), in nats per token, over all pairs of adjacent tokens. A model whose loss is above it has not learned more than pairs."""
import array
import collections
import json
import math
import pathlib
import re
import shutil
import struct
import sys

EPSILON = 1e-5         # of the RMS norm before the head
UNSEEN = 0.01          # the count of a pair that does not occur
# The pattern of prepare-data's default tokenizer, for ASCII.
PIECES = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{1,3}| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


class Encoder:
    def __init__(self, tokenizer):
        model = json.loads(tokenizer.read_text())["model"]
        self.ids, self.known = model["vocab"], {}
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}

    def __call__(self, piece):
        if piece not in self.known:
            parts = list(piece.replace(" ", "\u0120").replace("\n", "\u010a"))
            while len(parts) > 1:
                rank, at = min((self.ranks.get(pair, math.inf), i) for i, pair in enumerate(zip(parts, parts[1:])))
                if rank == math.inf:
                    break
                parts[at:at + 2] = [parts[at] + parts[at + 1]]
            self.known[piece] = [self.ids[part] for part in parts]
        return self.known[piece]


def pair_counts(corpus, tokenizer):
    """{(token, next token): count}, across documents as well, each of which ends with the end of text."""
    encode, pieces, first_piece = Encoder(tokenizer), collections.Counter(), None
    end = json.loads(tokenizer.read_text())["added_tokens"][0]["id"]
    pairs = collections.Counter()
    for line in corpus.open():
        # Pairs of pieces are far fewer than pieces, and most tokens lie at the same places of the same pieces.
        found = PIECES.findall(json.loads(line)["text"])
        pieces.update(zip([None, *found], [*found, None]))
        first_piece = first_piece or next(iter(found), None)
    for (first, second), count in pieces.items():
        one, other = (encode(piece) if piece else [end] for piece in (first, second))
        pairs[one[-1], other[0]] += count
        for pair in zip(other, other[1:]):
            pairs[pair] += count
    return pairs - collections.Counter([(end, encode(first_piece)[0])])  # nothing is before the first document


def entropy(pairs):
    before = collections.Counter()
    for (token, _), count in pairs.items():
        before[token] += count
    return -sum(count * math.log(count / before[token]) for (token, _), count in pairs.items()) / sum(pairs.values())


def tensors(pairs, size):
    """[(name, shape, values)]"""
    before = [UNSEEN * size] * size
    for (token, _), count in pairs.items():
        before[token] += count
    scale = math.sqrt(1 / size + EPSILON)  # undoes the RMS norm of an embedding
    table, head = (array.array("f", bytes(4 * size * size)) for _ in range(2))
    for token in range(size):
        table[token * size + token] = 1
        for after in range(size):
            head[after * size + token] = scale * math.log((pairs[token, after] + UNSEEN) / before[token])
    layer, hidden = "model.layers.0.", 16
    shapes = {layer + f"self_attn.{letter}_proj.weight": (size, size) for letter in "qkvo"}
    shapes |= {layer + f"mlp.{name}_proj.weight": (hidden, size) for name in ("gate", "up")}
    shapes |= {layer + "mlp.down_proj.weight": (size, hidden)}
    shapes |= {layer + f"{name}_layernorm.weight": (size,) for name in ("input", "post_attention")}
    zeros = [(name, shape, array.array("f", bytes(4 * math.prod(shape)))) for name, shape in shapes.items()]
    return [("model.embed_tokens.weight", (size, size), table), ("lm_head.weight", (size, size), head),
            ("model.norm.weight", (size,), array.array("f", [1] * size)), *zeros]


def write_model(folder, all_tensors, size):
    header, place = {}, 0
    for name, shape, values in all_tensors:
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [place, place + 4 * len(values)]}
        place += 4 * len(values)
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, values in all_tensors:
            values.tofile(file)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": size, "hidden_size": size,
              "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 16,
              "rms_norm_eps": EPSILON, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu",
              "max_position_embeddings": 2048}
    (folder / "config.json").write_text(json.dumps(config))


def main():
    corpus, tokenizer, counts, folder = map(pathlib.Path, sys.argv[1:])
    pairs = pair_counts(corpus, tokenizer / "tokenizer.json")
    expected = json.loads(counts.read_text())
    num_tokens = sum(pairs.values()) + 1
    if num_tokens != expected["tokens"]:
        print(f"bigram_model: the corpus has {num_tokens} tokens, not {expected['tokens']}", file=sys.stderr)
        sys.exit(1)
    folder.mkdir()
    write_model(folder, tensors(pairs, expected["vocab_size"]), expected["vocab_size"])
    for file in tokenizer.glob("*.json"):
        shutil.copy(file, folder)
    print(json.dumps({"bigram_entropy": entropy(pairs)}))


main()
