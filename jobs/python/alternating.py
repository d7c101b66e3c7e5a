"""Compares variants that ran alternately on the same nodes: what differs by more than noise, and by how much.

In each round every variant ran once, and the baseline at the start and at the end. A variant's change is the mean over the
rounds of log(value / reference's value in that round), so a drift from round to round cancels out, and with an even number of
rounds also a steady drift within them (alternate.sh). The noise of a change is
the largest of
- 1 %: smaller changes are not worth a setting;
- three standard errors. The standard deviation is pooled over all variants and the pairs of baselines, because a few
  rounds of one variant tell little, and comes from the median of their deviations, which a run that something disturbed does
  not raise;
- half the range of the variant's own rounds, or the range of two: a disturbed run of its own.
"""
import math
import pathlib
import shlex
import statistics
import sys

MIN_NOISE = 0.01
STANDARD_ERRORS = 3
MEDIAN_OF_NORMAL = 0.6745  # of the absolute value, in standard deviations


def ratios_of(values, reference):
    """log(value / reference) by round, of the rounds that have both. `values`: lists by round; a round of the baseline has
    two numbers, and a round that failed has none."""
    return [math.log(statistics.fmean(own) / statistics.fmean(other)) for own, other in zip(values, reference) if own and other]


def deviation(rounds, reference):
    """The standard deviation of a log ratio, larger the fewer runs tell it; None if nothing ran twice."""
    found = []
    runs = max([1, *map(len, rounds[reference])])  # of the reference in a round
    for name, values in rounds.items():
        ratios = ratios_of(values, rounds[reference]) if name != reference else []
        if len(ratios) > 1:  # the mean of n takes a share 1 / n of the variance
            found += [abs(ratio - statistics.fmean(ratios)) * math.sqrt(len(ratios) / (len(ratios) - 1)) for ratio in ratios]
        # Two runs differ by twice the variance of a run, a ratio to a mean of n has 1 + 1 / n times that variance.
        found += [abs(math.log(pair[1] / pair[0])) * math.sqrt((1 + 1 / runs) / 2) for pair in values if len(pair) == 2]
    return statistics.median(found) / MEDIAN_OF_NORMAL * (1 + 3 / len(found)) if found else None


def noise_of(rounds, reference):
    """The noise of a change of a steady variant, in per cent; None if nothing ran twice."""
    spread = deviation(rounds, reference)
    return None if spread is None else 100 * math.expm1(steady_noise(spread, len(rounds[reference])))


def steady_noise(spread, num_rounds):
    return max(MIN_NOISE, STANDARD_ERRORS * spread / math.sqrt(num_rounds))


class Change:
    """How a variant differs from the reference: by `percent` ± `noise`, both in per cent of the reference; `differs` by more
    than noise; `median` of the variant's own values. `percent` is None if the variant has no round."""

    def __init__(self, values, reference, spread):
        known = [number for pair in values for number in pair]
        ratios = ratios_of(values, reference)
        self.median = statistics.median(known) if known else None
        self.percent = self.noise = None
        self.differs = False
        if not ratios or spread is None:
            return
        mean = statistics.fmean(ratios)
        noise = max(steady_noise(spread, len(ratios)), (max(ratios) - min(ratios)) * (0.5 if len(ratios) > 2 else 1))
        self.percent = 100 * math.expm1(mean)
        self.noise = 100 * math.exp(mean) * (math.expm1(noise) if mean < 0 else -math.expm1(-noise))  # towards no change
        self.differs = abs(mean) > noise


def compare(rounds, reference):
    """The Change of each variant from the variant `reference`. `rounds`: {variant: [values of round 1, of round 2, ...]}."""
    spread = deviation(rounds, reference)
    return {name: Change(values, rounds[reference], spread) for name, values in rounds.items()}


def table(header, rows):
    """Text with aligned columns: the first and the last one to the left, numbers to the right."""
    cells = [header, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "".join("  ".join(cell.rjust(width) if 0 < i < len(header) - 1 else cell.ljust(width)
                             for i, (cell, width) in enumerate(zip(row, widths))).rstrip() + "\n" for row in cells)


def outcome(change, is_reference, failure, lower_is_better):
    """The last cells of a row: the change and its noise in per cent, and both in words, or why the variant failed."""
    if change.percent is None or is_reference:
        return ["-", "-", failure]
    better = "faster" if (change.percent < 0) == lower_is_better else "slower"
    return [f"{change.percent:+.1f}", f"{change.noise:.1f}", failure or (better if change.differs else "no difference")]


def plan_line(name, ranks, environment, command):
    """A line of alternate.sh's plan."""
    return " ".join(map(shlex.quote, [name, str(ranks), *environment, "--", *command])) + "\n"


def main(actions):
    """ACTION FOLDER [NAME=VALUE ...]: calls that action and ends with what it returns."""
    action, folder, *values = sys.argv[1:]
    sys.exit(actions[action](pathlib.Path(folder), **dict(value.split("=", 1) for value in values)))


def last_error(path):
    """What a failed run says: its last line with `error`, else its last line."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()] if path.exists() else []
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it left no message"])[-1][:300]


class Attempts:
    """What alternate.sh has left in a folder: round-R/NAME/{code,log,...}; the baseline's second run is NAME-again."""

    def __init__(self, folder):
        self.folder = folder
        self.num_rounds = len(list(folder.glob("round-*")))

    def of(self, name):
        """By round: the folders of the runs that succeeded."""
        return [[path for path in (self.folder / f"round-{number}" / one for one in (name, f"{name}-again"))
                 if (path / "code").exists() and (path / "code").read_text().strip() == "0"]
                for number in range(1, self.num_rounds + 1)]

    def failure(self, name):
        """The message of a run that failed; empty if none failed."""
        for path in sorted(self.folder.glob(f"round-*/{name}")) + sorted(self.folder.glob(f"round-*/{name}-again")):
            if not (path / "code").exists():
                return "was cut off (time limit or signal)"
            code = (path / "code").read_text().strip()
            if code != "0":
                return f"failed with exit code {code}: {last_error(path / 'log')}"
        return "" if any(self.of(name)) else "did not run"
