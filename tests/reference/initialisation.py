"""Argosy's initial weights, implemented a second time in numpy from their definition in README.md.
A weight is a pure function of the seed, its parameter's name and its row-major index in the whole tensor.
"""

import math

import numpy as np

LOW32 = 0xFFFFFFFF


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC'11) of four uint64[n] that hold 32-bit words, under a key of two ints."""
    c0, c1, c2, c3 = counter
    low32, shift = np.uint64(LOW32), np.uint64(32)
    for step in range(10):
        key0 = np.uint64((key[0] + step * 0x9E3779B9) & LOW32)
        key1 = np.uint64((key[1] + step * 0xBB67AE85) & LOW32)
        product0 = np.uint64(0xD2511F53) * c0
        product1 = np.uint64(0xCD9E8D57) * c2
        c0, c1 = (product1 >> shift) ^ c1 ^ key0, product1 & low32
        c2, c3 = (product0 >> shift) ^ c3 ^ key1, product0 & low32
    return np.stack([c0, c1, c2, c3])


def name_key(name):
    """FNV-1a, 64 bits, as the two words of a Philox key."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value & LOW32, value >> 32


def random_words(name, count, seed):
    """uint64[4, count]: the four 32-bit words of each index 0 .. count-1 under `name` and `seed`."""
    index = np.arange(count, dtype=np.uint64)
    seed_low, seed_high = np.full_like(index, seed & LOW32), np.full_like(index, seed >> 32)
    return philox([index & np.uint64(LOW32), index >> np.uint64(32), seed_low, seed_high], name_key(name))


def bell(name, shape, std, seed):
    """Approximately normal: the sum of eight uniform 16-bit integers, centred and scaled to `std`, in float32."""
    words = random_words(name, math.prod(shape), seed)
    total = ((words & np.uint64(0xFFFF)) + (words >> np.uint64(16))).sum(axis=0).astype(np.int64)
    scale = np.float32(std / math.sqrt(8 * (2**32 - 1) / 12))
    return ((total - 8 * 65535 // 2).astype(np.float32) * scale).reshape(shape)


def standard_deviation(name, dim, tied):
    if name == "output.weight" or (name == "tok_embeddings.weight" and tied):
        return 1 / math.sqrt(dim)
    if name == "tok_embeddings.weight":
        return 1.0
    if name.endswith(("wo.weight", "w2.weight", "w3.weight")):
        layer = int(name.split(".")[1])
        return 0.02 / math.sqrt(2 * (layer + 1))
    return 0.02


def initial_weight(name, shape, dim, tied, seed, norms_add_one=False):
    if name.endswith(("norm.weight", ".bias")):
        return np.full(shape, 0 if name.endswith(".bias") or norms_add_one else 1, np.float32)
    return bell(name, shape, standard_deviation(name, dim, tied), seed)
