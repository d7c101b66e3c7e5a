"""Computes the figures of a comparison from its runs, checks their targets, and makes the tables. Pure arithmetic:
starts no process."""
import dataclasses
import math

from results import cell, markdown
from runs import pooled_seconds

PEAK_TARGET, FLOOR_TARGET, ALL_PRODUCTS_TARGET, MEMORY_TARGET, START_TARGET = 0.88, 0.6, 0.9, 0.6, 0.2
EAGER = "PyTorch eager"         # as most people run it
MOST_LOSS_ABOVE_UNIFORM = 0.75  # the head's initial logits have deviation 1, which adds about 1/2 to ln(vocab)
MOST_LOSS_APART = 0.25          # of the first steps: same deviations of the weights, other random numbers


@dataclasses.dataclass(frozen=True)
class Contender:
    """Results of one program in one case over all rounds."""
    name: str
    dtype: str
    best_tokens_per_second: float    # of the fastest warm step
    median_tokens_per_second: float  # of the median of all warm steps
    peak_mib: float | None           # the largest rank's of any round
    first_step_seconds: float        # the quickest round's
    first_loss: float
    full: bool = True                # at the sizes of the comparison; other runs are shown, not compared

    @staticmethod
    def of(name, dtype, runs, full=True):
        best, median = pooled_seconds(runs)
        peaks = [run.peak_mib for run in runs if run.peak_mib]
        return Contender(name, dtype, runs[0].tokens_per_step / best, runs[0].tokens_per_step / median,
                         max(peaks) if peaks else None, min(run.first_step_seconds for run in runs),
                         runs[0].losses[0], full)


@dataclasses.dataclass(frozen=True)
class Floor:
    """Tokens per second of a step that consists of its matrix products only."""
    best_tokens_per_second: float
    median_tokens_per_second: float
    attention_share: float  # FLOPs of attention's products per FLOP of these
    flops_per_token: float  # of all products, attention's included
    peak_gflops: float | None  # of the job's threads; None: there is no loop for this processor


@dataclasses.dataclass(frozen=True)
class Figure:
    name: str
    ours: float | None
    other: float | None
    target: float | None = None  # of ours / other; None: shown without a target
    larger_is_better: bool = True

    @property
    def ratio(self):
        return self.ours / self.other if self.ours and self.other else None

    @property
    def met(self):
        """None if there is no target, or if the other side is missing."""
        if self.target is None or self.ratio is None:
            return None
        return self.ratio >= self.target if self.larger_is_better else self.ratio <= self.target


def check_losses(contenders, vocab):
    """Errors of the runs, as sentences: the speed of a broken run means nothing."""
    faults, uniform = [], math.log(vocab)
    for one in contenders:
        if not -MOST_LOSS_APART < one.first_loss - uniform < MOST_LOSS_ABOVE_UNIFORM:
            faults.append(f"{one.name} {one.dtype}: the first loss is {one.first_loss:.3f}, not near ln({vocab}) = "
                          f"{uniform:.3f}")
    losses = [one.first_loss for one in contenders if one.full]
    if max(losses) - min(losses) > MOST_LOSS_APART:
        faults.append(f"the first losses lie {max(losses) - min(losses):.3f} apart")
    return faults


def best(contenders, attribute, choose):
    values = [getattr(one, attribute) for one in contenders if one.full and getattr(one, attribute) is not None]
    return choose(values) if values else None


def figures(ours, peers, floor):
    """Each figure of the peer is the best over its variants: the fastest variant need not be the smallest."""
    def row(name, attribute, choose, target):
        return Figure(name, getattr(ours, attribute), best(peers, attribute, choose), target, choose is max)

    rows = [Figure("share of the processor's peak, whole step, GFLOP/s",
                   ours.best_tokens_per_second * floor.flops_per_token / 1e9, floor.peak_gflops, PEAK_TARGET),
            row("tokens/s, best step", "best_tokens_per_second", max, None),
            row("tokens/s, median step", "median_tokens_per_second", max, None)]
    rows += [Figure(f"tokens/s, best step, {one.name} {one.dtype}", ours.best_tokens_per_second,
                    one.best_tokens_per_second) for one in peers
             if one.name == EAGER or not one.full]
    return rows + [
        Figure("share of the products' floor, best", ours.best_tokens_per_second, floor.best_tokens_per_second,
               FLOOR_TARGET),
        Figure("share of the products' floor, median", ours.median_tokens_per_second, floor.median_tokens_per_second),
        Figure("share of the floor with attention's products, best", ours.best_tokens_per_second,
               floor.best_tokens_per_second / (1 + floor.attention_share), ALL_PRODUCTS_TARGET),
        row("peak memory of a rank, MiB", "peak_mib", min, MEMORY_TARGET),
        row("command to end of first step, s", "first_step_seconds", min, START_TARGET)]


def verdict(figure):
    if figure.target is None:
        return "", ""
    target = f"{'>=' if figure.larger_is_better else '<='} {figure.target}"
    return target, {None: "not measured", True: "met", False: "missed"}[figure.met]


def figure_table(rows):
    return markdown([("figure", "ours", "other", "ratio", "target", "verdict")] +
                    [(row.name, cell(row.ours), cell(row.other), cell(row.ratio), *verdict(row)) for row in rows])


def contender_table(contenders):
    return markdown([("program", "type", "tokens/s best", "median", "MiB a rank", "first step s", "first loss")] +
                    [(one.name, one.dtype, cell(one.best_tokens_per_second), cell(one.median_tokens_per_second),
                      cell(one.peak_mib), cell(one.first_step_seconds), f"{one.first_loss:.3f}") for one in contenders])
