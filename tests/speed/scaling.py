#!/usr/bin/env python3
"""How the cost of a step grows with sequence length, layers, width and ranks (FSDP or context parallel): each sweep
varies one of them.

Every point is a run of pretrain on random tokens, once a round. Time is the fastest warm step's, memory the peak of
tensors and of resident pages of a rank; each is compared with the theory (SCALING.md beside this file) by the exponent
between successive points. Writes a figure per sweep and a table; exits with 3 when --check is given and something
grows faster than the theory.
"""
import argparse
import dataclasses
import datetime
import os
import pathlib
import sys
import tempfile
import time

import theory
from results import cell, markdown, publish
from runs import HERE, SOURCE, Failure, Layout, Sizes, busy, end_on_signal, machine
from workload import Workload

sys.path.insert(0, str(SOURCE / "jobs/python"))
from plot import Line, Panel, svg  # noqa: E402

BASE = Sizes(dim=256, layers=4, heads=4, hidden=704, vocab=2048, seq=256, batch=2)
HEAD_DIM, HIDDEN_TO_DIM = 64, 11 / 4
# Tolerances of an exponent: 11, 3.5 and 7 % more at twice the size. Resident memory includes malloc's rounding and
# buffers of the libraries.
TIME_TOLERANCE, MEMORY_TOLERANCE, RESIDENT_TOLERANCE = 0.15, 0.05, 0.1


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    sizes: Sizes
    ranks: int = 1
    recompute: str = "none"
    context: int = 1  # ranks that share a sequence
    rotation: str = "allgather"


@dataclasses.dataclass(frozen=True)
class Sweep:
    name: str  # of its figure's file
    title: str
    x_label: str
    points: list


@dataclasses.dataclass(frozen=True)
class Measured:
    step_ms: float
    flops: float  # model FLOPs of the job's step, causal (lib/trainer/observe/peak_flops.h), as the run reports them
    tensor_mib: float
    resident_mib: float
    theory_mib: float


def vary(**changes):
    return dataclasses.replace(BASE, **changes)


def wide(dim):
    return vary(dim=dim, heads=dim // HEAD_DIM, hidden=int(dim * HIDDEN_TO_DIM))


def sweeps():
    def layers(recompute):
        name = "layers" if recompute == "none" else f"layers_{recompute}_recompute"
        title = "Layers" if recompute == "none" else f"Layers, {recompute} recompute"
        return Sweep(name, title, "layers", [Point(x, vary(layers=x), 1, recompute) for x in (1, 2, 4, 8, 16)])

    def sequences(rotation):
        return Sweep(f"sequence_{rotation}", f"Sequence length, 2 ranks of context parallel, {rotation}",
                     "tokens of a sequence", [Point(x, vary(seq=x), 2, "none", 2, rotation)
                                              for x in (256, 512, 1024, 2048, 4096)])

    return [Sweep("sequence", "Sequence length", "tokens of a sequence",
                  [Point(x, vary(seq=x)) for x in (128, 256, 512, 1024, 2048)]),
            sequences("allgather"), sequences("ring"),
            Sweep("context", "Ranks of context parallel, ring", "ranks",
                  [Point(x, vary(seq=2048), x, "none", x, "ring") for x in (1, 2, 4)]),
            layers("none"), layers("selective"), layers("full"),
            Sweep("width", "Width", "width", [Point(x, wide(x)) for x in (64, 128, 256, 512, 1024)]),
            Sweep("ranks", "Ranks, FSDP, each with samples of its own", "ranks",
                  [Point(x, BASE, x) for x in (1, 2, 4)])]


def measure(point, options, folder):
    """Results of one run."""
    workload = Workload(folder, point.sizes, point.ranks // point.context * point.sizes.batch * options.steps)
    run = workload.pretrain(Layout(point.ranks, 1), options.dtype, options.steps, options.limit,
                            {"activation_checkpoint.mode": point.recompute,
                             "parallelism.context_parallel_degree": point.context,
                             "parallelism.context_parallel_rotate_method": point.rotation})
    if run.cut_short:
        raise Failure(f"{options.steps} steps took more than {options.limit:.0f} s; --limit gives more")
    return Measured(1000 * min(run.warm_seconds), run.flops_per_step, max(run.tensor_mib), run.peak_mib,
                    theory.memory_mib(point.sizes, point.ranks, options.dtype, point.recompute, point.context,
                                      point.rotation))


def best(rounds):
    """Results of several runs of a point: the fastest step, the largest memory."""
    return dataclasses.replace(rounds[0], step_ms=min(one.step_ms for one in rounds),
                               tensor_mib=max(one.tensor_mib for one in rounds),
                               resident_mib=max(one.resident_mib for one in rounds))


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One measured series of a sweep beside its theory."""
    name: str
    unit: str
    values: list
    expected: list
    tolerance: float

    def excess(self, xs):
        """For each point, the amount by which the exponent exceeds the theory's plus the tolerance; None if it does
        not."""
        pairs = zip(theory.exponents(xs, self.values), theory.exponents(xs, self.expected))
        return [found - right if found is not None and found > right + self.tolerance else None
                for found, right in pairs]


def quantities(sweep, measured):
    """Theory of time: the job's FLOPs divided by the cores that its ranks can use, at the best rate of the sweep.
    Theory of resident memory: the first point's, plus the growth of the tensors."""
    cores = len(os.sched_getaffinity(0))
    work = [one.flops / min(point.ranks, cores) for point, one in zip(sweep.points, measured)]
    best = min(one.step_ms / share for one, share in zip(measured, work))
    tensors = [one.theory_mib for one in measured]
    resident = [measured[0].resident_mib + mib - tensors[0] for mib in tensors]
    return [Quantity("step", "ms", [one.step_ms for one in measured], [share * best for share in work], TIME_TOLERANCE),
            Quantity("tensors", "MiB", [one.tensor_mib for one in measured], tensors, MEMORY_TOLERANCE),
            Quantity("resident", "MiB", [one.resident_mib for one in measured], resident, RESIDENT_TOLERANCE)]


def faster(sweep, series):
    """Sentences, one for each growth above the theory."""
    xs = [point.x for point in sweep.points]
    return [f"{sweep.title}: {one.name} from {before} to {x} grows by an exponent {excess:.2f} above the theory's"
            for one in series for before, x, excess in zip(xs, xs[1:], one.excess(xs)[1:]) if excess is not None]


def table(sweep, series):
    xs = [point.x for point in sweep.points]
    header, columns = [sweep.x_label], [map(str, xs)]
    for one in series:
        header += [f"{one.name} {one.unit}", "theory", "exponent", "theory"]
        columns += [map(cell, one.values), map(cell, one.expected)]
        columns += [map(exponent, theory.exponents(xs, values)) for values in (one.values, one.expected)]
    return markdown([header, *zip(*columns)])


def exponent(value):
    return "" if value is None else f"{value + 0:.2f}".replace("-0.00", "0.00")


def figure(sweep, series, subtitle):
    xs = [point.x for point in sweep.points]
    step, tensors, resident = series

    def line(label, values, is_theory=False):
        return Line(label, list(zip(xs, values)), is_theory)

    return svg(f"{sweep.title} ({subtitle})", [
        Panel(sweep.x_label, "step, ms", [line("measured", step.values), line("theory", step.expected, True)]),
        Panel(sweep.x_label, "memory of a rank, MiB",
              [line("tensors", tensors.values), line("resident", resident.values),
               line("theory, tensors", tensors.expected, True)])])


def subtitle(sweep, dtype):
    """The parameters that are the same in a whole sweep."""
    base = sweep.points[0].sizes
    fixed = {"layers": f"{base.layers} layers", "width": f"{base.dim} wide",
             "sequence": f"{base.batch} x {base.seq} tokens"}
    kept = [words for name, words in fixed.items() if not sweep.name.startswith(name)]
    if sweep.name.startswith("sequence"):
        kept.append(f"{base.batch} sequences")
    return ", ".join([*kept, dtype])


def parse(words):
    names = [sweep.name for sweep in sweeps()]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweep", choices=names, action="append", help="default: all")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16", help="default bf16")
    parser.add_argument("--steps", type=int, default=5, help="steps of a run; the first does not count; default 5")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each point, alternating; default 2")
    parser.add_argument("--quick", action="store_true", help="one run of three steps at a sweep's two smallest points")
    parser.add_argument("--limit", type=float, default=120, help="time limit of one run in seconds; default 120")
    parser.add_argument("--output", type=pathlib.Path, default=SOURCE / "outputs" / "scaling",
                        help="folder of the figures and of table.md; default outputs/scaling")
    parser.add_argument("--publish", action="store_true", help="put figures and table into tests/speed and its SCALING.md")
    parser.add_argument("--check", action="store_true", help="exit with 3 if a cost grows faster than the theory")
    options = parser.parse_args(words)
    if options.rounds < 1 or options.steps < 2:
        parser.error("--rounds must be at least 1 and --steps at least 2: the first step of a run is not counted")
    if options.publish and (options.sweep or options.quick):
        parser.error("--publish wants all sweeps, whole")
    if options.publish:
        options.output = HERE / "scaling"
    if options.quick:
        options.rounds, options.steps = 1, 3
    return options


def chosen(options):
    for sweep in sweeps():
        if sweep.name in (options.sweep or [sweep.name]):
            yield dataclasses.replace(sweep, points=sweep.points[:2]) if options.quick else sweep


def run_sweep(sweep, options):
    """Writes the figures; returns (Markdown, growths above the theory)."""
    runs = [[] for _ in sweep.points]
    for _ in range(options.rounds):
        for point, found in zip(sweep.points, runs):
            with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
                found.append(measure(point, options, folder))
            print(f"{time.strftime('%H:%M:%S')} {sweep.title}, {point.x}: {found[-1].step_ms:.1f} ms, "
                  f"{found[-1].tensor_mib:.1f} MiB", file=sys.stderr, flush=True)
    measured = [best(found) for found in runs]
    series = quantities(sweep, measured)
    (options.output / f"{sweep.name}.svg").write_text(figure(sweep, series, subtitle(sweep, options.dtype)))
    link = f"{options.output.name + '/' if options.publish else ''}{sweep.name}.svg"
    return (f"**{sweep.title}** ({subtitle(sweep, options.dtype)})\n\n![{sweep.title}]({link})\n\n"
            f"{table(sweep, series)}"), faster(sweep, series)


def main(words):
    options = parse(words)
    end_on_signal()
    options.output.mkdir(parents=True, exist_ok=True)
    before, remarks, parts, growths = os.getloadavg()[0], busy(), [], []
    try:
        for sweep in chosen(options):
            part, found = run_sweep(sweep, options)
            parts.append(part)
            growths += found
    except Failure as failure:
        print(f"scaling: {failure}", file=sys.stderr)
        return 1
    head = (f"{datetime.date.today().isoformat()}, {machine()}; load {before:.1f} before, {os.getloadavg()[0]:.1f} "
            f"after; `tests/speed/scaling.py {' '.join(words)}`")
    verdict = ("Faster than the theory:\n\n" + "\n".join(f"- {growth}" for growth in growths) if growths else
               "Nothing grows faster than the theory.")
    text = "\n\n".join([head, *remarks, verdict, *parts])
    if options.publish:
        publish("scaling", text)
    else:
        (options.output / "table.md").write_text(text + "\n")
    print(text)
    return 3 if options.check and growths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
