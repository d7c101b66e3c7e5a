"""Reduces the object `experts` of metrics.jsonl (lib/trainer/observe/FORMAT.md): the figures of all layers to a few curves, and
the counts to heat maps of experts by layer, each over a stretch of steps.

A cell is the tokens of an expert over the mean of its layer, in the steps of the stretch that have counts. It is one byte on a
logarithmic scale, and a page has at most MAX_CELLS of them, whatever the model and the number of steps.
"""
import array
import base64
import dataclasses
import math
import operator
import statistics

from run_record import is_number

MAX_STRETCHES, MIN_STRETCHES, MAX_CELLS = 24, 4, 300_000
LEVELS = 127  # on each side of the mean; byte 0: no tokens
OCTAVES = 3  # the bytes end at 1/8 and 8 times the mean
LOSSES = ("sequence_loss", "step_loss", "z_loss")


def numbers(experts, key):
    """The values of a list that are known."""
    values = experts.get(key)
    return [value for value in values if is_number(value)] if isinstance(values, list) else []


def curves_of(experts):
    """What is drawn of a step over all layers, by name."""
    loads, entropy, unused = (numbers(experts, key) for key in ("load_max_over_mean", "entropy", "unused"))
    ranges = [high - low for low, high in zip(numbers(experts, "bias_min"), numbers(experts, "bias_max"))]
    curves = {f"experts.{name}": experts[name] for name in LOSSES if name in experts}
    if loads:
        curves |= {"experts.load.worst": max(loads), "experts.load.median": statistics.median(loads)}
    if entropy:
        curves |= {"experts.entropy.lowest": min(entropy), "experts.entropy.highest": max(entropy)}
    if unused:
        curves["experts.unused"] = sum(unused)
    if ranges:
        curves["experts.bias_range"] = max(ranges)
    return curves


def in_words(experts):
    """The newest step, for the top of the page."""
    loads, layers, unused = (numbers(experts, key) for key in ("load_max_over_mean", "layers", "unused"))
    if not loads or len(loads) != len(layers):
        return "unknown"
    worst = max(range(len(loads)), key=loads.__getitem__)
    forced = "FORCED BALANCE: experts take turns, whatever the routers say; " if experts.get("forced_balance") else ""
    return (f"{forced}largest load {loads[worst]:.2f} times the mean (layer {layers[worst]} of {len(layers)} with experts), "
            f"{sum(unused)} experts without tokens in the newest step")


@dataclasses.dataclass
class Stretch:
    first: int
    last: int
    steps: int  # that have counts
    counts: list  # of each layer: an array with the tokens of each expert

    def add(self, more):
        self.last, self.steps = more.last, self.steps + more.steps
        self.counts = [array.array("q", map(operator.add, own, others)) for own, others in zip(self.counts, more.counts)]


class Loads:
    """The stretches have equally many steps with counts, the newest one as many or fewer. The number doubles when there are too
    many stretches."""

    def __init__(self):
        self.layers, self.num_experts, self.stretches, self.steps_of_stretch = [], 0, [], 1

    def add(self, step, experts):
        """Takes the steps in order; those without counts do not matter. A step of another model begins anew."""
        layers, counts = experts.get("layers"), experts.get("counts")
        if not isinstance(layers, list) or not isinstance(counts, list) or not counts or len(counts) != len(layers):
            return
        rows = [array.array("q", row) for row in counts if isinstance(row, list) and all(type(count) is int for count in row)]
        sizes = {len(row) for row in rows}
        if len(rows) != len(layers) or len(sizes) != 1 or sizes == {0}:
            return
        if (layers, len(rows[0])) != (self.layers, self.num_experts):
            self.layers, self.num_experts, self.stretches, self.steps_of_stretch = layers, len(rows[0]), [], 1
        self.merge(Stretch(step, step, 1, rows))
        if len(self.stretches) > self.max_stretches():
            self.steps_of_stretch *= 2
            old, self.stretches = self.stretches, []
            for stretch in old:
                self.merge(stretch)

    def merge(self, more):
        if self.stretches and self.stretches[-1].steps + more.steps <= self.steps_of_stretch:
            self.stretches[-1].add(more)
        else:
            self.stretches.append(more)

    def max_stretches(self):
        return max(MIN_STRETCHES, min(MAX_STRETCHES, MAX_CELLS // (len(self.layers) * self.num_experts)))

    def cut(self, step):
        """Removes the stretches that have steps from `step` on, which another start trains again."""
        while self.stretches and self.stretches[-1].last >= step:
            self.stretches.pop()

    def page_data(self, experts):
        """What the page draws; {} without counts. `experts` is the newest object."""
        if not self.stretches:
            return {}
        return {"layers": self.layers, "num_experts": self.num_experts, "octaves": OCTAVES, "forced": experts.get("forced_balance") is True,
                "stretches": [{"first": one.first, "last": one.last, "steps": one.steps, "cells": cells_of(one)} for one in self.stretches]}


def cells_of(stretch):
    """The bytes of the cells, layer by layer."""
    def byte(load):
        return 1 + LEVELS + round(LEVELS * max(-1.0, min(1.0, math.log2(load) / OCTAVES))) if load > 0 else 0
    cells = bytearray()
    for row in stretch.counts:
        mean = sum(row) / len(row) or 1
        byte_of_count = {count: byte(count / mean) for count in set(row)}
        cells.extend(byte_of_count[count] for count in row)
    return base64.b64encode(cells, b"+-").decode()  # no "//", which looks like the address of another page
