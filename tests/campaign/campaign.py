"""Random trials of hard use, each a function of its seed: campaign.py PART [--count N] [--seconds S] [--seed FIRST]
[--results FILE]. Parts: kills, damages, settings, fuzz. A campaign goes on behind the last seed of its part in FILE, and
appends a line for every LINE_TRIALS trials: commit, date, seeds, and each failed trial. The exit code is 1 if a trial
failed. `campaign.py kills --seed 17 --count 1` repeats a trial."""
import argparse
import datetime
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.append(str(pathlib.Path(__file__).parent.parent / "pretrain"))

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PARTS = ("kills", "damages", "settings", "fuzz")
LINE_TRIALS = 50


class Results:
    """The lines of a results file: one JSON object for up to LINE_TRIALS trials of a part."""

    def __init__(self, path):
        self.path = path

    def next_seed(self, part):
        if not self.path or not self.path.exists():
            return 1
        lines = map(json.loads, self.path.read_text().splitlines())
        return max((line["first_seed"] + line["trials"] for line in lines if line["part"] == part), default=1)

    def append(self, part, first_seed, trials, failed, counts, seconds):
        if not self.path or trials == 0:
            return
        line = {"part": part, "date": datetime.date.today().isoformat(), "commit": commit(), "first_seed": first_seed,
                "trials": trials, "seconds": round(seconds), "outcomes": dict(sorted(counts.items())), "failed": failed}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def commit():
    folder = pathlib.Path(__file__).parent
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def run(part, first_seed, count, seconds, results):
    """Runs trials until `count` are done or the time is up. Returns the seeds of the failed ones."""
    all_failed = []
    began = time.monotonic()
    module = importlib.import_module(part)
    with tempfile.TemporaryDirectory() as shared:
        trials = module.Trials(pathlib.Path(shared))
        seed, end = first_seed, first_seed + count
        while seed < end and time.monotonic() - began < seconds:
            line_began, line_seed, failed, counts = time.monotonic(), seed, [], {}
            while seed < min(end, line_seed + LINE_TRIALS) and time.monotonic() - began < seconds:
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        outcome = trials.run(seed, pathlib.Path(folder))
                    except Exception:
                        outcome = "failed"
                        text = traceback.format_exc().replace(str(SOURCE), "")
                        failed.append({"seed": seed, "error": text[-2000:]})
                        print(f"{part}: seed {seed} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
                counts[outcome] = counts.get(outcome, 0) + 1
                seed += 1
            results.append(part, line_seed, seed - line_seed, failed, counts, time.monotonic() - line_began)
            all_failed += [one["seed"] for one in failed]
            print(f"{part}: seeds {line_seed} .. {seed - 1}: {counts}", flush=True)
    return all_failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=10**9)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--results", type=pathlib.Path)
    line = parser.parse_args()
    results = Results(line.results)
    first_seed = line.seed or results.next_seed(line.part)
    failed = run(line.part, first_seed, line.count, line.seconds, results)
    if failed:
        sys.exit(f"{line.part}: {len(failed)} trials failed, with the seeds {failed}")


if __name__ == "__main__":
    main()
