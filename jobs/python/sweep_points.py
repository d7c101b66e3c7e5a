#!/usr/bin/env python3
"""The points of sweeps (submit.sh --sweep). Two points are the same if their options are, whatever their numbers.

  sweep_points.py POINTS SWEEP   prints the lines of POINTS, each with --metrics.baseline: the same point of the earlier sweep,
                                 if that one has a step; submit.sh calls it
"""
import pathlib
import sys

BASELINE = "--metrics.baseline"  # submit.sh adds it to a line


def lines_of(points):
    return [line for line in points.read_text().splitlines() if line.strip()]


def pairs_of(line):
    """(option, value) of a line; an option without a value has the value "true", as in pretrain."""
    pairs = []
    for word in line.split():
        if word.startswith("--"):
            name, *values = word.split("=", 1)
            pairs.append((name, values))
        elif pairs:
            pairs[-1][1].append(word)
    return [(name, " ".join(values or ["true"])) for name, values in pairs if name != BASELINE]


def number_or_text(value):
    try:
        return float(value)
    except ValueError:
        return value


def settings_of(line):
    """What points are compared by: {option: value}, where 1e-3 is 0.001."""
    return {name: number_or_text(value) for name, value in pairs_of(line)}


def options_in_words(line):
    """The line without the baseline."""
    return " ".join(f"{name} {value}".strip() for name, value in pairs_of(line))


def line_of_point(folder):
    """The line of the sweep's point in this folder; None if the folder is no point of a sweep."""
    folder = folder.resolve()
    points, number = folder.parent / "points", folder.name.removeprefix("point-")
    lines = lines_of(points) if points.is_file() and number != folder.name and number.isdigit() else []
    return lines[int(number)] if lines and int(number) < len(lines) else None


def has_step(folder):
    metrics = folder / "metrics.jsonl"
    return metrics.is_file() and metrics.stat().st_size > 0


def same_point(sweep, line):
    """The folder of the sweep's point with the settings of the line; None if there is none. Of several such points, the
    first one that has a step."""
    wanted = settings_of(line)
    same = [sweep / f"point-{number:04}" for number, other in enumerate(lines_of(sweep / "points"))
            if settings_of(other) == wanted]
    return max(same, key=has_step, default=None)


def main():
    points, sweep = map(pathlib.Path, sys.argv[1:])
    for line in lines_of(points):
        earlier = same_point(sweep, line)
        if earlier and has_step(earlier):
            line += f" {BASELINE} {earlier}"
        else:
            why = f"{earlier} has no metrics.jsonl" if earlier else f"no point of {sweep} has the options {options_in_words(line)}"
            print(f"submit: warning: {why}, so this point is not compared", file=sys.stderr)
        print(line)


if __name__ == "__main__":
    main()
