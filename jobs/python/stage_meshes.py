#!/usr/bin/env python3
"""stage_meshes.py NODES RANKS_PER_NODE TEMPLATE [--parallelism.KEY VALUE ...] < SETTINGS
The stages of bringup.sh and the mesh of each: 1, 2, 4, ... ranks of one node, then 2, 4, ... NODES nodes. SETTINGS is what
`pretrain --print-config` prints. Needs Python 3.9.

The last stage has the mesh of SETTINGS with the degrees on the command line: those of TEMPLATE on all nodes (mesh_words in
shell/fill.sh), then the user's; the last one of equal options counts. A smaller stage has fewer ranks, and loses replicas first,
then shards, then pipeline stages, then the context axis, then tensor parallelism. So each stage divides its ranks in the opposite
order: an axis gets the greatest common divisor of its degree and the ranks that are left. Ranks that no axis takes become
replicas. No number of ranks is wrong for TEMPLATE `any`.

Prints a line for each stage, with tabs between: the number of ranks; `yes` if the stage has the target's tensor, context and
pipeline degrees and as many shards as the configuration demands (a whole node, if it demands all ranks), so that a GPU holds no
more than the configuration says (always for the last stage); the degrees that are not of data parallelism; the mesh; the options that make it."""
import math
import sys

from run_record import AXES, product, read_config

ALL = -1  # shards over all ranks that are left


def stages(nodes, here):
    """The numbers of ranks."""
    inside = [1 << i for i in range(here.bit_length()) if 1 << i < here]
    between = [here << i for i in range(nodes.bit_length()) if 1 << i < nodes]
    return [*inside, *between, nodes * here]


def mesh_of(target, ranks):
    """The degrees of a stage; their product is its number of ranks."""
    mesh, left = {}, ranks
    for axis in ("tp", "cp", "pp", "dp_shard", "dp_replicate"):
        if axis == "dp_shard" and target[axis] == ALL:
            mesh[axis] = left // math.gcd(target["dp_replicate"], left)
        else:
            mesh[axis] = left if axis == "dp_replicate" else math.gcd(target[axis], left)
        left //= mesh[axis]
    return {axis: mesh[axis] for axis in AXES}


def in_words(mesh):
    return " x ".join(f"{axis} {degree}" for axis, degree in mesh.items() if degree > 1) or "one rank"


def lines(settings, nodes, here, template, words):
    keys, _ = read_config(settings)
    axes = {"parallelism." + key: axis for axis, key in AXES.items()}
    configured = {axis: int(keys[key]) for key, axis in axes.items()}
    given = {axes[name[2:]]: int(value) for name, value in zip(words, words[1:]) if name[2:] in axes}
    target = {**configured, **given}
    model = {axis: target[axis] for axis in ("pp", "cp", "tp")}
    min_ranks = product(model.values()) * configured["dp_shard"] if configured["dp_shard"] != ALL else here
    whole = mesh_of(target, nodes * here)
    if template != "any" and any(target[axis] not in (whole[axis], ALL) for axis in AXES):
        sys.exit(f"stage_meshes: the mesh of the template '{template}' is {in_words(target)}, which {nodes} nodes with {here} ranks cannot have: "
                 f"change --nodes, --ranks-per-node or the degrees")
    for ranks in stages(nodes, here):
        mesh = mesh_of(target, ranks)
        kept = {axis: mesh[axis] for axis in model}
        enough = ranks == nodes * here or (kept == model and ranks >= min_ranks)
        options = " ".join(f"--parallelism.{AXES[axis]} {degree}" for axis, degree in mesh.items())
        yield "\t".join([str(ranks), "yes" if enough else "no", in_words(kept), in_words(mesh), options])


if __name__ == "__main__":
    print(*lines(sys.stdin.read(), int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]), sep="\n")
