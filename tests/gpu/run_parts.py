"""Runs what a GPU is needed for, part by part, and writes a report. run.sh builds the programs first; unpack_and_run.sh
takes them from a bundle. A part has a time limit of its own, and none stops the others. Parts run in order of worth.
With --budget the run ends in time; a part that has too little time left is not started.

The report is results/<gpu>-<date>.md beside this file, in Markdown, written anew with every row, so that an interrupted
run leaves what it has; sections of parts that are not run now stay as they are. The .log beside it has the output, of each
part up to 1 MiB. A PART is a part, a group of parts, or throughput for all of throughput.*; without PART all parts run.
With --together all parts that do not measure speeds run at the same time, before the others; their lines alternate in the log.
`one` is what one GPU is wanted for in ten minutes, `eight` what eight GPUs of a node are wanted for in fifteen: parts with limits
that add up to that. A part that needs more GPUs than there are is skipped.
usage: run_parts.py [--quick] [--together] [--budget SECONDS] [--results FOLDER] [--targets] [PART ...]
"""
import argparse
import concurrent.futures
import dataclasses
import datetime
import math
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
sys.path.insert(0, str(SOURCE / "tests/support"))
from gpu_name import nccl_rank, num_gpus  # noqa: E402
BUILD = pathlib.Path(os.environ.get("ARGOSY_BUILD", SOURCE / "build" / "cuda"))
TESTS, BIN = BUILD / "tests", BUILD / "bin"
PEER_PYTHON = os.environ.get("ARGOSY_PEER_PYTHON") or str(SOURCE / ".deps/peer-venv/bin/python")
PYTHON = PEER_PYTHON if pathlib.Path(PEER_PYTHON).exists() else sys.executable  # may have h5py
PRODUCT = ("pretrain", "prepare-data")
ALL_THREADS = {"OMP_NUM_THREADS": str(os.cpu_count())}  # for PyTorch, and for oracles on the processor
NUM_LAST_LINES = 40  # of a part that failed
GRACE_SECONDS = 5  # between the signals that ask processes to end, and that kill them
MAX_LOG_BYTES = 1 << 20  # of one part
THIS_RUN = "ARGOSY_GPU_PART"  # in the environment of every process that a part starts


@dataclasses.dataclass
class Part:
    what: str
    targets: tuple
    commands: list
    limit: int  # seconds for all commands
    quick: tuple = ()  # additional words under --quick; None: the part is left out
    environment: dict = dataclasses.field(default_factory=dict)
    least: int = 15  # seconds; with less time left the part finds nothing and does not start
    measures: bool = False  # the GPU's speed, so that no other part may run at the same time
    gpus: int = 1  # that the part needs, if more than one


def sanitizer(tool, environment=None):
    return Part(f"compute-sanitizer, {tool}: kernels at small sizes", ("test_kernels_gpu_device",),
                [("sh", "-c", 'command -v "$0" >/dev/null || { echo "skipped: no $0 here"; exit 77; }; exec "$0" "$@"',
                  "compute-sanitizer", "--tool", tool, "--error-exitcode", 1, TESTS / "test_kernels_gpu_device")], 300,
                environment=environment or {}, least=40)


def throughput(case, quick=None, words=(), what="tokens/s of {}, beside PyTorch where the target is against it"):
    return Part(what.format(case), PRODUCT, [(sys.executable, HERE / "throughput.py", *words, case)], 900, quick,
                ALL_THREADS, least=60, measures=True)


def kernel_times(words):
    return Part("the time of each kernel of a step", (*PRODUCT, "kernel_recorder"),
                [(sys.executable, HERE / "kernel_times.py", *words)], 300, (), ALL_THREADS, least=30, measures=True)


def training(what, test_class, *tests):
    return Part(what, PRODUCT, [(PYTHON, HERE / "train_test.py", *(f"{test_class}.test_{test}" for test in tests))], 500,
                least=60)


def collective(name, ranks, *words):
    return (SOURCE / "jobs/mpirun.sh", ranks, *nccl_rank(num_gpus()), *words, BIN / "nccl-bench", name, "--backend", "nccl",
            "-b", "1K", "-e", "64M", "-f", "16")


# Before the words of a program: rank 0 prints what NCCL chooses.
NCCL_LOG = ("sh", "-c", '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH; exec "$0" "$@"')


def on_axes(name, mesh):
    """A collective of eight ranks, of groups of neighbours and of groups across them."""
    return (*collective(name, 8, *NCCL_LOG), "--mesh", mesh)


def rank_runs(what, gpus, *words, limit=850):
    return Part(what, PRODUCT, [(sys.executable, HERE / "rank_runs.py", *words)], limit, None, least=30, measures=True,
                gpus=gpus)


def operations(*words):
    return (TESTS / "test_ops_cuda", *words)


TIMES = {f"kernel_times.{case}": (case,) for case in ("0.5B", "3B", "7B")} | {
    f"kernel_times.{recipe}": ("--float8", recipe, "7B") for recipe in ("tensorwise", "tensorwise_kept", "rowwise", "blockwise")}
# In order of worth. Names of groups and of parts differ.
GROUPS = {
    "first": ("machine", "cublas", "kernels", "attention", "ops", "graphs"),
    "speed": ("throughput.0.5B", "throughput.1.5B", "throughput.3B", "gemm", "bandwidth"),
    "training": ("train.losses", "train.types", "train.bits", "train.rest", "eval", "curves", "memcheck"),
    "times": tuple(TIMES),
    "large": ("throughput.7B", "cudnn", "float8", "finalists", "throughput.8192", "racecheck", "grouped", "held", "muon", "nccl",
              "ranks.bandwidth", "ranks.nccl", "ranks.bits", "ranks.interleaved", "ranks.peers"),
    "node": ("ranks.axes", "ranks.layouts", "ranks.channels", "ranks.points", "ranks.killed", "ranks.experts", "ranks.peer_speed"),
    "peers": ("throughput.wide", "throughput.small"),
    "rest": ("throughput.8B", "preflight", "synccheck", "initcheck"),
}
# {part: its limit in seconds}: parts of the groups above, for ten minutes on one GPU and for fifteen on eight.
BUNDLES = {
    "one": {"bandwidth": 45, "kernel_times.7B": 65, "finalists": 95, "throughput.8192": 120, "held": 75, "muon": 80,
            "ranks.interleaved": 80},
    "eight": {"ranks.axes": 130, "ranks.layouts": 290, "ranks.channels": 200, "ranks.points": 190, "ranks.killed": 60},
}
PARTS = {
    "machine": Part("the machine", ("pretrain",),
                    [("nvidia-smi", "-q", "-d", "MEMORY,CLOCK,POWER"), ("lscpu",), (BIN / "pretrain", "--version"),
                     (PYTHON, "-c", "import torch; print('PyTorch', torch.__version__)")], 60),
    "cublas": Part("cuBLASLt", ("test_cublas_library",), [(TESTS / "test_cublas_library",)], 120),
    "kernels": Part("lib/numerics/kernels/cuda against the processor's", ("test_kernels_gpu_device",),
                    [(TESTS / "test_kernels_gpu_device",)], 180),
    "attention": Part("attention on CUDA tensors against fp64", ("test_ops_cuda",),
                      [operations("--gtest_filter=*Attention*")], 150, environment=ALL_THREADS),
    "ops": Part("the other operations on CUDA tensors against fp64, and against the processor's", ("test_ops_cuda",),
                [operations("--gtest_filter=-*Attention*"), operations("--deterministic")], 250, environment=ALL_THREADS),
    # Two microbatches a step: gradients are added up.
    "graphs": throughput("0.5B", words=("--tokens", 131072, "--steps", 4, "--compare-graphs"), quick=(),
                         what="{} with CUDA graphs and without, and the losses of both"),
    "throughput.0.5B": throughput("0.5B", ("--quick",)),
    "throughput.1.5B": throughput("1.5B"),
    "throughput.3B": throughput("3B"),
    "gemm": Part("products of linear layers", ("gemm_speed",), [(TESTS / "gemm_speed",)], 320, ("--quick",), measures=True),
    "bandwidth": Part("kernels beside a copy, target 85 %", ("kernel_bandwidth",), [(TESTS / "kernel_bandwidth",)], 240,
                      ("--quick",), measures=True),
    "train.losses": training("losses on the GPU and on the processor", "Train", "losses_equal_the_cpus",
                             "experts_have_the_cpus_losses",
                             "a_graph_reads_the_documents_of_each_step",
                             "a_graph_changes_no_loss_with_the_attention_of_long_samples",
                             "recompute_changes_no_loss"),
    "train.types": training("the same in narrow types", "Train", "bfloat16_stays_within_tolerance",
                            "float8_stays_within_tolerance_and_a_graph_changes_no_bit"),
    "train.bits": training("runs on the GPU that have equal bits", "Train", "deterministic_runs_repeat_every_bit",
                           "a_graph_changes_no_bit"),
    "train.rest": training("initial weights, and the kinds of computing", "Train",
                           "initial_weights_equal_the_cpus_bit_for_bit", "computing_has_kinds",
                           "cudnn_computes_the_attention_of_documents"),
    "eval": Part("eval on the GPU against eval on the processor", ("eval",),
                 [(sys.executable, SOURCE / "tests/eval/gpu_test.py")], 120),
    "curves": Part("loss curves of the recipes of eight bits, 500 steps of a small model from four seeds", (*PRODUCT, "pretrain_no_scale"),
                   [("rm", "-rf", BUILD / "curves"),
                    (sys.executable, SOURCE / "tests/float8/loss_curves.py", "--gpu", BIN / "pretrain",
                     TESTS / "pretrain_no_scale", BUILD / "curves")], 300),
    "memcheck": sanitizer("memcheck"),
    **{part: kernel_times(words) for part, words in TIMES.items()},
    "throughput.7B": throughput("7B"),
    "cudnn": Part("masked attention by cuDNN against fp64, and beside FlashAttention", ("test_ops_cuda", "attention_speed"),
                  [operations("--cudnn", "--gtest_filter=*Attention*bf16"), (TESTS / "attention_speed",)], 200, ("--quick",),
                  ALL_THREADS, measures=True),
    "float8": throughput("7B", words=("--tokens", 32768, "--float8", "tensorwise_kept", "tensorwise", "rowwise",
                                            "blockwise", "--"),
                         what="tokens/s of {}, and with products in float8"),
    "finalists": Part("products of a 7B with the heuristic's first algorithms, on a hot GPU", ("gemm_speed",),
                      [(TESTS / "gemm_speed", "--model", "Qwen2.5-7B", "--finalists", 3)], 240, ("--quick",), measures=True),
    "throughput.8192": throughput("8B", words=("--tokens", 32768, "--steps", 4, "--seq", 8192, "--compare-graphs"),
                                  what="{} with samples of 8,192 tokens, with CUDA graphs and without"),
    "racecheck": sanitizer("racecheck"),
    "grouped": Part("products of experts beside one product of as many rows", ("expert_speed",), [(TESTS / "expert_speed",)], 180,
                    ("--quick",), measures=True),
    "held": Part("products beside a kernel that holds multiprocessors, as collectives do", ("gemm_speed",),
                 [(TESTS / "gemm_speed", "--model", "Qwen2.5-7B", "--seconds", 0.03, "--held", 8, 16, 24, 32)], 240,
                 ("--quick",), measures=True),
    "muon": rank_runs("the update of Muon and of AdamW, 1.5B", 1, "--ranks", 1, "--limit", 38, "muon"),
    "nccl": Part("NCCL, one rank", ("test_nccl_libraries",), [(TESTS / "test_nccl_libraries",)], 120),
    "ranks.bandwidth": Part("collectives of several ranks; of ranks that share a GPU all but one have an NCCL_HOSTID of their own",
                            ("nccl-bench",), [collective("all_reduce", 2), collective("all_gather", 4)], 120,
                            measures=True),
    "ranks.nccl": training("layouts of several ranks, on one GPU or several, through NCCL", "Ranks",
                           "through_nccl_losses_do_not_depend_on_the_layout"),
    "ranks.bits": training("graphs, experts, float8 and registered memory between several ranks, on one GPU or several", "Ranks",
                           "a_graph_changes_no_bit_between_ranks", "experts_between_ranks", "float8_between_ranks",
                           "registered_memory_and_products_that_leave_channels_between_ranks"),
    # The memory of each communicator is in the log.
    "ranks.interleaved": rank_runs("a tiny model on four ranks, on one GPU or several: pipeline, interleaved, x tensor parallel", 1,
                                   "--ranks", 4, "--limit", 38, "layouts", "--only", "one rank", "pp2 x tp2 interleaved"),
    "ranks.peers": training("async tensor parallelism by copies to the memory of another rank, on one GPU or two", "Ranks",
                            "peer_copies_change_no_bit"),
    "ranks.axes": Part("collectives of eight GPUs and of groups of two and four, with NCCL's log", ("nccl-bench",),
                       [on_axes(name, mesh) for mesh in ("2x4", "4x2")
                        for name in ("all_gather", "reduce_scatter", "all_reduce", "alltoall", "sendrecv")], 300,
                       least=30, measures=True, gpus=8),
    "ranks.layouts": rank_runs("a tiny model in layouts of eight ranks against one rank", 8, "--limit", 25, "layouts"),
    "ranks.channels": rank_runs("8B, all parameters sharded, samples of 8,192 tokens, with limits on NCCL's channels", 8,
                                "--limit", 38, "channels"),
    "ranks.points": rank_runs("8B with tensor parallelism, with its overlap and without (configs/expected/8b.points)", 8,
                              "--limit", 30, "points", "--only", 0, 1, 6, 7, 8, 9),
    "ranks.killed": training("a rank that is killed ends the job", "Ranks", "a_killed_rank_ends_the_job"),
    "ranks.experts": rank_runs("experts divided over eight GPUs, and on each: tokens/s and losses", 8, "experts"),
    "ranks.peer_speed": Part("exchanges along a ring through NCCL and by copies, alone and beside a product", ("peer_speed",),
                             [(SOURCE / "jobs/mpirun.sh", 2, *nccl_rank(num_gpus()), TESTS / "peer_speed")], 120, ("--quick",),
                             measures=True, gpus=2),
    # One round of the three programs takes a minute or two.
    "throughput.wide": throughput("wide", ("--steps", 4, "--rounds", 1), ("--tokens", 131072)),
    "throughput.small": throughput("small", ("--steps", 4, "--rounds", 1), ("--tokens", 131072)),
    "throughput.8B": throughput("8B"),
    "preflight": Part("the pre-flight of one rank, FAIL allowed: a virtual machine is no node of a cluster",
                      ("preflight",), [("sh", "-c", '"$@" || [ $? = 3 ]', "-", SOURCE / "jobs/mpirun.sh", 1,
                                        BIN / "preflight", "--config", SOURCE / "configs/qwen2.5_7b_1gpu.toml")], 120,
                      measures=True),
    "synccheck": sanitizer("synccheck"),
    # The tests' marks would count as values.
    "initcheck": sanitizer("initcheck", {"ARGOSY_TEST_MARKS": "0"}),
}
COUNTS = (re.compile(r"^\[  (PASSED|FAILED|SKIPPED) ? ?\] (\d+ tests?)"), re.compile(r"^(Ran \d+ tests?|OK.*)"),
          re.compile(r"^(FAILED \(.*)"), re.compile(r"^=+ (ERROR SUMMARY.*|RACECHECK SUMMARY.*)"),
          re.compile(r"^(losses \[.*)"), re.compile(r"^(#.*bus bandwidth.*)"), re.compile(r"^(skipped: .*)"),
          re.compile(r"^(.*NCCL(?:'s communicator over| communicators took) .*)"))
ASKED = {"GPU": "name", "driver": "driver_version", "memory": "memory.total", "power limit": "power.limit",
         "SM clock, at most": "clocks.max.sm", "memory clock, at most": "clocks.max.mem"}


def asked(*command):
    """The output of a command, or nothing if it cannot run."""
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, cwd=SOURCE)
        return done.stdout.strip()
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""


def commit():
    """The commit of the programs: a bundle names it, otherwise it is the checkout's."""
    named = BUILD / "commit"
    if named.exists():
        return named.read_text().strip()
    return asked("git", "describe", "--always", "--dirty", "--abbrev=12") or "unknown"


class Report:
    """The report. It has one section per part: a heading with the result, and the measurements."""

    def __init__(self, folder):
        values = asked("nvidia-smi", f"--query-gpu={','.join(ASKED.values())}", "--format=csv,noheader", "--id=0")
        self.about = dict(zip(ASKED, values.split(", ")))
        nvcc = asked("nvcc", "--version") or asked("/usr/local/cuda/bin/nvcc", "--version")
        cuda = re.search(r"release ([\d.]+)", nvcc)
        self.about["nvcc"] = cuda[1] if cuda else "unknown"
        self.commit = commit()
        today = datetime.date.today().isoformat()
        name = re.sub(r"[^a-z0-9]+", "-", self.about["GPU"].lower().replace("nvidia", "")).strip("-") or "gpu"
        self.path = pathlib.Path(folder) / f"{name}-{today}.md"
        self.about["date"] = today
        self.sections = {}
        if self.path.exists():
            for section in self.path.read_text().split("\n## ")[1:]:
                self.sections[section.partition(":")[0]] = section.rstrip("\n")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.log = open(self.path.with_suffix(".log"), "a", buffering=1)
        self.lock = threading.Lock()

    def put(self, name, verdict, what, body):
        with self.lock:
            self.write(name, verdict, what, body)

    def write(self, name, verdict, what, body):
        self.sections[name] = f"{name}: {verdict}\n\n{what}; commit {self.commit}\n\n{body}".rstrip("\n")
        ordered = [one for one in PARTS if one in self.sections]
        text = f"# {self.about['GPU']}, {self.about['date']}\n\n| | |\n| --- | --- |\n"
        text += "".join(f"| {key} | {value} |\n" for key, value in self.about.items())
        text += "\n| part | |\n| --- | --- |\n"
        for one in ordered:
            text += f"| {one} | {self.sections[one].partition(': ')[2].splitlines()[0]} |\n"
        text += "".join(f"\n## {self.sections[one]}\n" for one in ordered)
        partial = self.path.with_suffix(".partial")
        partial.write_text(text)
        os.replace(partial, self.path)


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def processes_of(mark):
    """The processes of a part: all with `mark` in their environment, also those in sessions of their own."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # ended meanwhile, or of another user
    return found


def end_all(mark, first):
    """Ends the processes of a part: sends them the signal `first`, or 0 for none, and kills those that still run after
    GRACE_SECONDS."""
    until = time.monotonic() + GRACE_SECONDS
    for pid in processes_of(mark):
        send(pid, first)
    while processes_of(mark) and time.monotonic() < until:
        time.sleep(0.1)
    for pid in processes_of(mark):
        send(pid, signal.SIGKILL)


class Running:
    """A running part: its output so far, and the lines that the report shows."""

    def __init__(self, report, name, part, seconds_left=math.inf):
        self.report, self.name, self.part = report, name, part
        self.lines, self.started, self.over_limit, self.log_bytes = [], time.monotonic(), False, 0
        self.limit = min(part.limit, seconds_left)
        self.mark = f"{THIS_RUN}={name}.{os.getpid()}"

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

    def add(self, line):
        self.lines.append(line)
        self.log_bytes += len(line) + 1
        if self.log_bytes <= MAX_LOG_BYTES:
            self.report.log.write(line + "\n")
        if line.startswith("|"):
            self.put("running")

    def read(self, output):
        with output:
            for line in output:
                self.add(line.rstrip("\n"))

    def run(self, command):
        """The exit status, 127 if the program cannot be started."""
        name, _, value = self.mark.partition("=")
        environment = os.environ | {"ARGOSY_BIN": str(BIN), "ARGOSY_SOURCE": str(SOURCE), "OMP_NUM_THREADS": "1",
                                    "PYTHONUNBUFFERED": "1", name: value} | self.part.environment
        self.report.log.write(f"=== {self.name}: {' '.join(map(str, command))}\n")
        try:
            process = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
                                       start_new_session=True)
        except OSError as error:
            self.add(str(error))
            return 127
        reader = threading.Thread(target=self.read, args=[process.stdout], daemon=True)
        reader.start()
        try:
            return process.wait(max(0, self.limit - self.seconds()))
        except subprocess.TimeoutExpired:
            self.over_limit = True
            return -signal.SIGKILL
        finally:
            # A command that crashed may leave ranks, which would slow down the next part.
            end_all(self.mark.encode(), signal.SIGTERM if self.over_limit else 0)
            process.poll()
            reader.join(1)  # no longer, because a process that waits for a driver may outlive SIGKILL

    def verdict(self, statuses):
        if self.over_limit:
            return f"over its limit of {self.part.limit} s" if self.limit == self.part.limit else "ended by the budget"
        bad = [status for status in statuses if status not in (0, 77)]
        if bad:
            return "below its target" if set(bad) == {3} else f"failed ({', '.join(map(str, bad))})"
        return "skipped" if 77 in statuses else "passed"


def run_part(report, name, part, quick, seconds_left=math.inf):
    """Whether the part passed or was skipped; None if the budget ended it."""
    running = Running(report, name, part, seconds_left)
    running.put("running")
    print(f"{name} ...", flush=True)
    more = part.quick or () if quick else ()
    statuses, commands = [], part.commands
    if part.gpus > max(1, num_gpus()):
        running.add(f"skipped: {part.gpus} GPUs are needed, and there are {num_gpus()}")
        statuses, commands = [77], []
    for command in commands:
        if not running.over_limit:
            statuses.append(running.run((*command, *more)))
    verdict = running.verdict(statuses)
    good = verdict in ("passed", "skipped")
    running.put(verdict, failed=not good)
    print(f"{name}: {verdict}, {running.seconds():.0f} s", flush=True)
    return None if verdict == "ended by the budget" else good


def run_all(report, parts, quick, budget, together=False):
    """Returns the exit status. COST: `budget` seconds and a moment: the last part ends GRACE_SECONDS early."""
    end = time.monotonic() + budget - GRACE_SECONDS
    results, unfinished = [], []

    def run(name):
        left = end - time.monotonic()
        result = run_part(report, name, parts[name], quick, left) if left >= parts[name].least else None
        (unfinished if result is None else results).append(name if result is None else result)

    at_once = [name for name, part in parts.items() if together and not part.measures]
    with concurrent.futures.ThreadPoolExecutor(max(1, len(at_once))) as pool:
        list(pool.map(run, at_once))
    for name in parts:
        if name not in at_once:
            run(name)
    print(f"{sum(results)} of {len(results)} parts passed or skipped: {report.path}")
    if unfinished:
        print(f"the budget of {budget:.0f} s was too short for: {' '.join(unfinished)}")
    return 0 if results and all(results) else 1


def named_by(word):
    """The parts that a word of the command line names."""
    return GROUPS.get(word) or list(BUNDLES.get(word, ())) or [part for part in PARTS if part == word or part.startswith(word + ".")]


def chosen(words, quick):
    """{name: part} in order of worth."""
    unknown = [word for word in words if not named_by(word)]
    if unknown:
        print(f"run: no part {', '.join(unknown)}: there are the groups {', '.join((*BUNDLES, *GROUPS))}, and {', '.join(PARTS)}",
              file=sys.stderr)
        sys.exit(2)
    named = {part for word in words for part in named_by(word)}
    limits = {part: limit for word in words for part, limit in BUNDLES.get(word, {}).items()}
    return {name: dataclasses.replace(part, limit=limits.get(name, part.limit)) for name, part in PARTS.items()
            if (name in named if words else not (quick and part.quick is None))}


def seconds(text):
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="; ".join(
        f"{group}: {', '.join(parts)}" for group, parts in (BUNDLES | GROUPS).items()))
    parser.add_argument("--quick", action="store_true", help="use small sizes and leave out the largest models")
    parser.add_argument("--together", action="store_true", help="run what does not measure speeds at the same time")
    parser.add_argument("--budget", type=seconds, default=math.inf, metavar="SECONDS", help="end after this time")
    parser.add_argument("--results", default=HERE / "results", type=pathlib.Path, help="folder of the report and log")
    parser.add_argument("--targets", action="store_true", help="print the build targets of the parts, and stop")
    options = parser.parse_args()
    parts = chosen(options.parts, options.quick)
    if options.targets:
        print(*dict.fromkeys(target for part in parts.values() for target in part.targets))
        return 0
    return run_all(Report(options.results), parts, options.quick, options.budget, options.together)


if __name__ == "__main__":
    sys.exit(main())
