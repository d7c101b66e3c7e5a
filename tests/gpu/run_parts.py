"""Runs what a GPU is needed for, part by part, and writes a report; run.sh builds it first. A part has a time limit of
its own, and none stops the others. The report is results/<gpu>-<date>.md beside this file, in Markdown, written anew
with every row, so that an interrupted run leaves what it has; sections of parts that are not run now stay as they are.
usage: run_parts.py [--quick] [--results FOLDER] [--targets] [--only PART ...]; throughput is all of throughput.*
"""
import argparse
import dataclasses
import datetime
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
BUILD = pathlib.Path(os.environ.get("ARGOSY_BUILD", SOURCE / "build" / "cuda"))
TESTS, BIN = BUILD / "tests", BUILD / "bin"
PEER_PYTHON = os.environ.get("ARGOSY_PEER_PYTHON") or str(SOURCE / ".deps/peer-venv/bin/python")
PYTHON = PEER_PYTHON if pathlib.Path(PEER_PYTHON).exists() else sys.executable  # may have h5py
CTEST = SOURCE / ".deps/venv/bin/ctest" if (SOURCE / ".deps/venv/bin/ctest").exists() else "ctest"
NCCL_RANK = ("sh", "-c", 'NCCL_HOSTID=$OMPI_COMM_WORLD_RANK exec "$0" "$@"')
PRODUCT = ("pretrain", "prepare-data")
NUM_LAST_LINES = 40  # of a part that failed


@dataclasses.dataclass
class Part:
    what: str
    targets: tuple
    commands: list
    limit: int  # seconds for all commands
    quick: tuple = ()  # additional words under --quick; None: the part is left out
    environment: dict = dataclasses.field(default_factory=dict)


def sanitizer(tool, environment=None):
    return Part(f"compute-sanitizer, {tool}: kernels at small sizes", ("test_kernels_gpu_device",),
                [("compute-sanitizer", "--tool", tool, "--error-exitcode", 1, TESTS / "test_kernels_gpu_device")], 300,
                environment=environment or {})


def throughput(case, quick=None):
    return Part(f"tokens/s of {case}, beside PyTorch where the target is against it", PRODUCT,
                [(sys.executable, HERE / "throughput.py", case)], 900, quick, {"OMP_NUM_THREADS": str(os.cpu_count())})


def collective(name, ranks):
    return (SOURCE / "jobs/mpirun.sh", ranks, *NCCL_RANK, BIN / "nccl-bench", name, "--backend", "nccl", "-b", "1K",
            "-e", "64M", "-f", "16")


PARTS = {
    "kernels": Part("lib/kernels/cuda against the processor's", ("test_kernels_gpu_device",),
                    [(TESTS / "test_kernels_gpu_device",)], 180),
    "ops": Part("operations on CUDA tensors against fp64, and against the processor's", ("test_ops_cuda",),
                [(CTEST, "--test-dir", BUILD, "-R", r"^ops\.cuda", "-V")], 400),
    "cublas": Part("cuBLASLt", ("test_cublas_library",), [(TESTS / "test_cublas_library",)], 120),
    "nccl": Part("NCCL, one rank", ("test_nccl_libraries",), [(TESTS / "test_nccl_libraries",)], 120),
    "train": Part("pretrain on the GPU against pretrain on the processor", PRODUCT,
                  [(PYTHON, HERE / "train_test.py", "Train")], 500),
    "eval": Part("eval on the GPU against eval on the processor", ("eval",),
                 [(sys.executable, SOURCE / "tests/eval/gpu_test.py")], 120),
    "ranks": Part("several ranks on this GPU, each with an NCCL_HOSTID of its own, and through the host",
                  (*PRODUCT, "nccl-bench"),
                  [collective("all_reduce", 2), collective("all_gather", 4),
                   (sys.executable, HERE / "train_test.py", "Ranks")], 300),
    "bandwidth": Part("kernels beside a copy, target 85 %", ("kernel_bandwidth",), [(TESTS / "kernel_bandwidth",)], 180,
                      ("--quick",)),
    "gemm": Part("products of linear layers", ("gemm_speed",), [(TESTS / "gemm_speed",)], 240, ("--quick",)),
    "throughput.0.5B": throughput("0.5B", ("--quick",)),
    "throughput.1.5B": throughput("1.5B"),
    "throughput.3B": throughput("3B"),
    "throughput.7B": throughput("7B"),
    "throughput.8B": throughput("8B"),
    "throughput.wide": throughput("wide", ("--quick",)),
    "throughput.small": throughput("small", ("--quick",)),
    "memcheck": sanitizer("memcheck"),
    "racecheck": sanitizer("racecheck"),
    "synccheck": sanitizer("synccheck"),
    # The tests' marks would count as values.
    "initcheck": sanitizer("initcheck", {"ARGOSY_TEST_MARKS": "0"}),
}
COUNTS = (re.compile(r"^\[  (PASSED|FAILED|SKIPPED) ? ?\] (\d+ tests?)"), re.compile(r"^(Ran \d+ tests?|OK.*)"),
          re.compile(r"^(FAILED \(.*)"), re.compile(r"^=+ (ERROR SUMMARY.*|RACECHECK SUMMARY.*)"),
          re.compile(r"^(\d+% tests passed.*)"), re.compile(r"^(#.*bus bandwidth.*)"))
ASKED = {"GPU": "name", "driver": "driver_version", "memory": "memory.total", "power limit": "power.limit",
         "SM clock, at most": "clocks.max.sm", "memory clock, at most": "clocks.max.mem"}


def asked(*command):
    """The output of a command, or nothing if it cannot run."""
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, cwd=SOURCE)
        return done.stdout.strip()
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""


class Report:
    """The report. It has one section per part: a heading with the result, and the measurements."""

    def __init__(self, folder):
        values = asked("nvidia-smi", f"--query-gpu={','.join(ASKED.values())}", "--format=csv,noheader", "--id=0")
        self.about = dict(zip(ASKED, values.split(", ")))
        nvcc = asked("nvcc", "--version") or asked("/usr/local/cuda/bin/nvcc", "--version")
        cuda = re.search(r"release ([\d.]+)", nvcc)
        self.about["nvcc"] = cuda[1] if cuda else "unknown"
        self.commit = asked("git", "rev-parse", "--short=12", "HEAD") or "unknown"
        today = datetime.date.today().isoformat()
        name = re.sub(r"[^a-z0-9]+", "-", self.about["GPU"].lower().replace("nvidia", "")).strip("-") or "gpu"
        self.path = pathlib.Path(folder) / f"{name}-{today}.md"
        self.about["date"] = today
        self.sections = {}
        if self.path.exists():
            for section in self.path.read_text().split("\n## ")[1:]:
                self.sections[section.partition(":")[0]] = section.rstrip("\n")

    def put(self, name, verdict, what, body):
        self.sections[name] = f"{name}: {verdict}\n\n{what}; commit {self.commit}\n\n{body}".rstrip("\n")
        ordered = [one for one in PARTS if one in self.sections]
        text = f"# {self.about['GPU']}, {self.about['date']}\n\n| | |\n| --- | --- |\n"
        text += "".join(f"| {key} | {value} |\n" for key, value in self.about.items())
        text += "\n| part | |\n| --- | --- |\n"
        for one in ordered:
            text += f"| {one} | {self.sections[one].partition(': ')[2].splitlines()[0]} |\n"
        text += "".join(f"\n## {self.sections[one]}\n" for one in ordered)
        partial = self.path.with_suffix(".partial")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text)
        os.replace(partial, self.path)


class Running:
    """A running part: its output so far, and the lines that the report shows."""

    def __init__(self, report, name, part):
        self.report, self.name, self.part = report, name, part
        self.lines, self.started, self.over_limit = [], time.monotonic(), False

    def seconds(self):
        return time.monotonic() - self.started

    def body(self, failed):
        shown = []
        for line in self.lines:
            if line.startswith("|"):
                # Markdown needs an empty line before a table.
                shown += [line] if shown and shown[-1].startswith("|") else ["", line]
            elif found := next((found for pattern in COUNTS if (found := pattern.match(line))), None):
                shown.append("- " + ": ".join(found.groups()))
        if failed:
            shown += ["", "```", *self.lines[-NUM_LAST_LINES:], "```"]
        return "\n".join(shown).strip("\n")

    def put(self, verdict, failed=False):
        self.report.put(self.name, f"{verdict}, {self.seconds():.0f} s", self.part.what, self.body(failed))

    def end(self, process):
        self.over_limit = True
        try:
            os.killpg(process.pid, signal.SIGKILL)  # the process has its own session, so its children are killed too
        except ProcessLookupError:
            pass

    def run(self, command):
        """The exit status, 127 if the program cannot be started."""
        environment = os.environ | {"ARGOSY_BIN": str(BIN), "ARGOSY_SOURCE": str(SOURCE), "OMP_NUM_THREADS": "1",
                                    "PYTHONUNBUFFERED": "1"} | self.part.environment
        try:
            process = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
                                       start_new_session=True)
        except OSError as error:
            self.lines.append(str(error))
            return 127
        timer = threading.Timer(max(1, self.part.limit - self.seconds()), self.end, [process])
        timer.start()
        try:
            with process.stdout:
                for line in process.stdout:
                    self.lines.append(line.rstrip("\n"))
                    if line.startswith("|"):
                        self.put("running")
            return process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                self.end(process)

    def verdict(self, statuses):
        if self.over_limit:
            return f"over its limit of {self.part.limit} s"
        bad = [status for status in statuses if status not in (0, 77)]
        if bad:
            return "below its target" if set(bad) == {3} else f"failed ({', '.join(map(str, bad))})"
        return "skipped" if 77 in statuses else "passed"


def run_part(report, name, part, quick):
    running = Running(report, name, part)
    running.put("running")
    print(f"{name} ...", flush=True)
    more = part.quick or () if quick else ()
    statuses = []
    for command in part.commands:
        if not running.over_limit:
            statuses.append(running.run((*command, *more)))
    verdict = running.verdict(statuses)
    good = verdict in ("passed", "skipped")
    running.put(verdict, failed=not good)
    print(f"{name}: {verdict}, {running.seconds():.0f} s", flush=True)
    return good


def chosen(options):
    unknown = [name for name in options.only if not any(part == name or part.startswith(name + ".") for part in PARTS)]
    if unknown:
        sys.exit(f"run: no part {', '.join(unknown)}: there are {', '.join(PARTS)}")
    named = {part for part in PARTS for name in options.only if part == name or part.startswith(name + ".")}
    return {name: part for name, part in PARTS.items()
            if (name in named if options.only else not (options.quick and part.quick is None))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="use small sizes and leave out the largest models")
    parser.add_argument("--results", default=HERE / "results", type=pathlib.Path, help="folder of the report")
    parser.add_argument("--targets", action="store_true", help="print the build targets of the parts, and stop")
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="PART", help=", ".join(PARTS))
    options = parser.parse_args()
    parts = chosen(options)
    if options.targets:
        print(*dict.fromkeys(target for part in parts.values() for target in part.targets))
        return 0
    report = Report(options.results)
    good = [run_part(report, name, part, options.quick) for name, part in parts.items()]
    print(f"{sum(good)} of {len(good)} parts passed or skipped: {report.path}")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
