"""Argosy's training step against PyTorch's FSDP2, alternating in one run so that both see the same noise.
PYTORCH.md beside this file defines every number. Tables go to stdout, progress to stderr. Exits with 3 if --check is
given and a target is missed, with 1 if a run fails or its losses differ from the others'.
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import sys
import tempfile
import time

import comparison
import peer
from results import publish
from runs import Failure, Layout, Sizes, busy, end_on_signal, machine
from workload import Workload

CASES = {"fsdp": ("2 ranks, FSDP, one thread each", Layout(2, 1)), "threads": ("1 rank, 2 threads", Layout(1, 2))}
FEWEST_RATE = 0.5  # bf16 products slower than this part of fp32's: no user would pick bf16


def parse(words):
    parser = argparse.ArgumentParser(prog="compare_pytorch.sh", description=__doc__)
    for field in dataclasses.fields(Sizes):
        parser.add_argument("--" + field.name, type=int, default=field.default, help=f"default {field.default}")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16", help="type of Argosy's run; default bf16")
    parser.add_argument("--case", choices=CASES, action="append", help="default: all")
    parser.add_argument("--rounds", type=int, default=2, help="rounds; each runs every program once; default 2")
    parser.add_argument("--steps", type=int, default=4, help="steps of a run; the first does not count; default 4")
    parser.add_argument("--quick", action="store_true", help="one round of three steps")
    parser.add_argument("--limit", type=float, default=150, help="time limit of one run in seconds; default 150")
    parser.add_argument("--peer-types", choices=("auto", "bf16", "fp32", "both"), default="auto",
                        help="auto: the type of Argosy's run, or fp32 if PyTorch's bf16 is slower on this processor")
    parser.add_argument("--without-peer", action="store_true", help="compare Argosy only with the products' floor")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of Argosy's run")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="file for all measurements")
    parser.add_argument("--check", action="store_true",
                        help="exit with 3 if a target is missed, or the peer has no figure for it")
    parser.add_argument("--publish", action="store_true", help="put the tables into tests/speed/PYTORCH.md")
    options = parser.parse_args(words)
    if options.quick:
        options.rounds, options.steps = 1, 3
    if options.rounds < 1 or options.steps < 2:
        parser.error("--rounds must be at least 1 and --steps at least 2: the first step of a run is not counted")
    if not all("=" in setting for setting in options.set):
        parser.error("--set wants KEY=VALUE")
    return options


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def in_type(dtype):
    """The variants of the peer in one type."""
    return [peer.Variant(dtype), peer.Variant(dtype, "blocks"), peer.Variant(dtype, "all"),
            peer.Variant(dtype, "all", keeps_memory=True)]


def variants(options, their_peer):
    """Returns (the variants to run, remarks about the choice)."""
    if options.peer_types != "auto":
        return [one for dtype in ("bf16", "fp32") if options.peer_types in (dtype, "both")
                for one in in_type(dtype)], []
    if options.dtype == "fp32":
        return in_type("fp32"), []
    rates = their_peer.gflops()
    if rates["bf16_gflops"] >= FEWEST_RATE * rates["fp32_gflops"]:
        return in_type("bf16"), []
    remark = (f"PyTorch has no fast bf16 products on this processor: {rates['bf16_gflops']:.1f} GFLOP/s against "
              f"{rates['fp32_gflops']:.1f} in fp32 on one thread. A user would pick fp32 here, so the targets are "
              f"against the peer in fp32; its bf16 is one short run of eager.")
    return [*in_type("fp32"), peer.Variant("bf16", short=True)], [remark]


class Case:
    """One layout: the programs that run in it, round after round."""

    def __init__(self, options, workload, layout, their_peer, choices):
        self.options, self.workload, self.layout = options, workload, layout
        self.peer, self.variants = their_peer, choices
        self.ours, self.floors, self.theirs, self.remarks = [], [], {one: [] for one in choices}, []

    def round(self, number):
        say(f"  round {number + 1} of {self.options.rounds}: ours")
        more = dict(setting.split("=", 1) for setting in self.options.set)
        self.ours.append(self.workload.pretrain(self.layout, self.options.dtype, self.options.steps,
                                                self.options.limit, more))
        if self.ours[-1].cut_short:
            self.remarks.append(f"our run did {len(self.ours[-1].step_seconds)} steps in {self.options.limit:.0f} s")
        for variant in self.variants:
            if not variant.short or number == 0:
                self.run_peer(variant)
        say("    products alone")
        seconds = min(10, sum(self.ours[-1].warm_seconds))
        self.floors.append(self.workload.products(self.layout, self.options.dtype, seconds))

    def run_peer(self, variant):
        say(f"    {variant.name} {variant.dtype}")
        run = self.peer.train(self.workload.sizes, self.layout, variant, self.options.steps, self.options.limit)
        if run is None:
            self.remarks.append(f"{variant.name} {variant.dtype} was ended after {self.options.limit:.0f} s")
        else:
            self.theirs[variant].append(run)

    def peaks(self):
        """The highest rate of each of the processor's instruction sets in any round, GFLOP/s."""
        return {name: max(peaks[name] for *_, peaks in self.floors) for name in self.floors[0][2]}

    def result(self):
        """(contenders, Argosy first; figures)"""
        sizes = self.workload.sizes
        tokens = self.layout.ranks * sizes.tokens
        floor = comparison.Floor(*(tokens / min(floor[i] for floor in self.floors) for i in (0, 1)),
                                 sizes.attention_share, sizes.flops_per_token, max(self.peaks().values(), default=None))
        ours = comparison.Contender.of("Argosy", self.options.dtype, self.ours)
        theirs = [comparison.Contender.of(one.name, one.dtype, runs, not one.short)
                  for one, runs in self.theirs.items() if runs]
        return [ours, *theirs], comparison.figures(ours, theirs, floor)


def measure(options, their_peer, folder):
    """Returns the report as plain values."""
    sizes = Sizes(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Sizes)})
    workload = Workload(folder, sizes, 2 * sizes.batch * options.steps)
    remarks = busy()
    choices, more = variants(options, their_peer) if their_peer else ([], ["the peer was left out"])
    report = dict(machine=machine(), date=datetime.date.today().isoformat(), load_before=os.getloadavg()[0],
                  sizes=dataclasses.asdict(sizes), dtype=options.dtype, settings=options.set, rounds=options.rounds,
                  steps=options.steps, remarks=remarks + more, cases=[])
    for key in options.case or CASES:
        name, layout = CASES[key]
        say(name)
        case = Case(options, workload, layout, their_peer, choices)
        for number in range(options.rounds):
            case.round(number)
        contenders, figures = case.result()
        faults = comparison.check_losses(contenders, sizes.vocab)
        if faults:
            raise Failure("; ".join(faults))
        report["cases"].append(dict(name=name, contenders=contenders, figures=figures, remarks=case.remarks,
                                    peaks=case.peaks()))
    return report | dict(load_after=os.getloadavg()[0])


def tables(report, words):
    sizes = report["sizes"]
    parts = [f"{report['date']}, {report['machine']}; load {report['load_before']:.1f} before, "
             f"{report['load_after']:.1f} after; `tests/speed/compare_pytorch.sh {' '.join(words)}`",
             f"{sizes['dim']} x {sizes['layers']} layers x {sizes['heads']} heads, hidden {sizes['hidden']}, "
             f"vocabulary {sizes['vocab']}, {sizes['batch']} x {sizes['seq']} tokens a rank; {report['rounds']} "
             f"rounds of {report['steps']} steps.", *report["remarks"]]
    for case in report["cases"]:
        parts += [f"**{case['name']}**", comparison.figure_table(case["figures"]),
                  comparison.contender_table(case["contenders"]),
                  "Loops in registers, GFLOP/s: " +
                  (", ".join(f"{name} {gflops:.0f}" for name, gflops in case["peaks"].items()) or "none"),
                  *case["remarks"]]
    return "\n\n".join(parts)


def plain(value):
    """Figures with the values derived from them."""
    more = dict(ratio=value.ratio, met=value.met) if isinstance(value, comparison.Figure) else {}
    return dataclasses.asdict(value) | more


def main(words):
    options = parse(words)
    end_on_signal()
    python = None if options.without_peer else peer.find_python()
    if not python and not options.without_peer:
        print(f"compare_pytorch: there is no Python with PyTorch for the peer; {peer.REMEDY}", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="compare-") as folder:
            their_peer = peer.Peer(python, pathlib.Path(folder) / "inductor") if python else None
            report = measure(options, their_peer, folder)
    except Failure as failure:
        print(f"compare_pytorch: {failure}", file=sys.stderr)
        return 1
    text = tables(report, words)
    print(text)
    if options.publish:
        publish("comparison", text)
    if options.json:
        options.json.write_text(json.dumps(report, default=plain, indent=1) + "\n")
    return 3 if options.check and missed(report, options) else 0


def missed(report, options):
    judged = [figure for case in report["cases"] for figure in case["figures"] if figure.target is not None]
    return any(figure.met is False or figure.met is None and not options.without_peer for figure in judged)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
