"""The theoretical memory of a step and its growth, for comparison with measurements.
Memory is counted from the design: a rank's share of the parameters, the activations that forward keeps for backward
under a recompute mode, and the largest set of temporary tensors.
"""
import dataclasses
import math

MASTER_BYTES, GRADIENT_BYTES, MOMENT_BYTES, SUM_BYTES = 4, 4, 8, 4
COMPUTE_BYTES = {"fp32": 4, "bf16": 2}
HEAD_CHUNK_LOGITS, HEAD_CHUNK_ROWS = 16 << 20, 512  # model/head.cpp: a chunk of logits, and its fewest rows

# Elements that a block keeps for each token, in (widths, hidden widths). Without recompute: the block's input, its
# norm, q, k, v, attention's output, the residual stream between attention and feed-forward, its norm; gate, up and
# their product. Selective drops the norms and that product; full keeps only the input.
KEPT = {"none": (8, 3), "selective": (6, 2), "full": (1, 0)}


def unit_parameters(sizes):
    """Parameters of the embedding, each block, and the head with its norm."""
    block = 4 * sizes.dim**2 + 3 * sizes.dim * sizes.hidden + 2 * sizes.dim
    return [sizes.vocab * sizes.dim, *[block] * sizes.layers, sizes.vocab * sizes.dim + sizes.dim]


def state_bytes(sizes, ranks, dtype):
    """Master weights, their copy in the type of computation, gradients and AdamW's moments of one rank."""
    copy = 0 if dtype == "fp32" else COMPUTE_BYTES[dtype]
    return sum(unit_parameters(sizes)) / ranks * (MASTER_BYTES + copy + GRADIENT_BYTES + MOMENT_BYTES)


def gathered_bytes(sizes, ranks, dtype):
    """Whole weights of the current unit and of the next one; gradients of the current unit and of the one whose
    gradients are being summed."""
    if ranks == 1:
        return 0
    units = unit_parameters(sizes)
    pair = max(first + second for first, second in zip(units, units[1:]))
    return pair * (COMPUTE_BYTES[dtype] + GRADIENT_BYTES)


def activation_bytes(sizes, dtype, recompute):
    widths, hiddens = KEPT[recompute]
    elements = widths * sizes.dim + hiddens * sizes.hidden
    return sizes.layers * sizes.tokens * elements * COMPUTE_BYTES[dtype]


def momentary_bytes(sizes, dtype, recompute):
    """The larger of the head's temporaries (its input, norm and their gradients; a chunk's logits, which its gradient
    overwrites) and those of a block's backward (three gradients as wide as the model, three as wide as the hidden
    layer, and the recomputed activations)."""
    size = COMPUTE_BYTES[dtype]
    rows = min(sizes.tokens, max(HEAD_CHUNK_ROWS, HEAD_CHUNK_LOGITS // sizes.vocab))
    head = 4 * sizes.tokens * sizes.dim * size + rows * sizes.vocab * size
    all_widths, all_hiddens = KEPT["none"]
    widths, hiddens = KEPT[recompute]
    elements = (3 + all_widths - widths) * sizes.dim + (3 + all_hiddens - hiddens) * sizes.hidden
    return max(head, sizes.tokens * elements * size)


def context_bytes(sizes, context, rotation, dtype):
    """Attention's backward pass with context parallelism; sizes are those of a rank. Of the rank's tokens: the gradients
    of its output and of the residual stream, copies of queries, outputs and their gradients by chunks, keys and values, and the sum of the queries'
    gradients. Keys and values are two widths. allgather: those of all ranks, copies of those that a chunk sees, their
    gradients, and the sums of these. ring: those that travel and those that come, a chunk's copies and gradients,
    and four sums: the rank's own, the current turn's, those that travel and those that come."""
    if context == 1:
        return 0
    size, width = COMPUTE_BYTES[dtype], sizes.tokens * sizes.dim
    own = width * (7 * size + SUM_BYTES)
    if rotation == "allgather":
        return own + context * width * (6 * size + 2 * SUM_BYTES)
    return own + width * (6 * size + 8 * SUM_BYTES)


def memory_mib(sizes, ranks, dtype, recompute, context=1, rotation="allgather"):
    """Peak of the tensors of one rank."""
    of_rank = dataclasses.replace(sizes, seq=sizes.seq // context)
    momentary = max(momentary_bytes(of_rank, dtype, recompute), context_bytes(of_rank, context, rotation, dtype))
    return (state_bytes(sizes, ranks, dtype) + gathered_bytes(sizes, ranks, dtype) +
            activation_bytes(of_rank, dtype, recompute) + momentary) / 2**20


def exponents(xs, ys):
    """p of y ~ x^p between each point and the previous one; None for the first."""
    pairs = zip(zip(xs, ys), zip(xs[1:], ys[1:]))
    return [None] + [math.log(y2 / y1) / math.log(x2 / x1) for (x1, y1), (x2, y2) in pairs]
