"""Every fuzz suite, under the address and undefined-behaviour sanitizers that it is built with, over new mutations: a trial
is one suite, each of whose tests runs for ARGOSY_FUZZ_SECONDS (30)."""
import os
import pathlib
import subprocess

SECONDS = os.environ.get("ARGOSY_FUZZ_SECONDS", "30")
SEEDS_PER_TRIAL = 10**7  # more rounds than a test does in its time


class Trials:
    def __init__(self, _):
        folder = pathlib.Path(os.environ["ARGOSY_BIN"]).parent / "tests"
        self.suites = sorted(path for path in folder.glob("test_*") if path.name.endswith(("_fuzz", "_parsers")))
        assert self.suites, f"no fuzz suite is built in {folder}"

    def run(self, seed, _):
        suite = self.suites[seed % len(self.suites)]
        done = subprocess.run([suite], capture_output=True, text=True, errors="replace", env=os.environ | {
            "ARGOSY_FUZZ_SEED": str(seed * SEEDS_PER_TRIAL), "ARGOSY_FUZZ_SECONDS": SECONDS,
            "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"})
        assert done.returncode == 0, f"{suite.name}\n{done.stdout[-3000:]}{done.stderr[:3000]}"
        return suite.name
