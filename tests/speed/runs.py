"""Starts the benchmarks' jobs with a time limit, and returns the results of training jobs as plain values."""
import dataclasses
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
MOST_IDLE_LOAD = 0.5  # load per core over the last minute


class Failure(Exception):
    """A run that failed."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    dim: int = 512
    layers: int = 6
    heads: int = 8
    hidden: int = 1344
    vocab: int = 8192
    seq: int = 512
    batch: int = 4  # samples per rank and step

    @property
    def tokens(self):
        """Figures of one rank and step."""
        return self.seq * self.batch

    @property
    def weights(self):
        """The number of weights that products read for a token."""
        return self.layers * self.dim * (4 * self.dim + 3 * self.hidden) + self.vocab * self.dim

    def config(self):
        """The model's config.json."""
        return dict(model_type="llama", vocab_size=self.vocab, hidden_size=self.dim, num_hidden_layers=self.layers,
                    num_attention_heads=self.heads, intermediate_size=self.hidden, rms_norm_eps=1e-5,
                    rope_theta=500000.0, tie_word_embeddings=False)

    @property
    def attention_share(self):
        """The FLOPs of attention's products (two forward, five backward, of pairs that see each other) per FLOP of the
        other products (three for each weight)."""
        return 7 * self.layers * self.dim * (self.seq + 1) / (3 * 2 * self.weights)

    @property
    def flops_per_token(self):
        """FLOPs of all products of a step."""
        return 3 * 2 * self.weights * (1 + self.attention_share)


@dataclasses.dataclass(frozen=True)
class Layout:
    ranks: int = 1
    threads: int = 1  # of each rank


@dataclasses.dataclass
class Run:
    """One training job. Steps that ended before the time limit count; the memory is then unknown (None)."""
    tokens_per_step: int  # of the whole job
    step_seconds: list    # wall time, the first step included
    losses: list
    first_step_seconds: float  # from the command to the end of the first step
    peak_mib: float | None = None  # resident (ru_maxrss), of the largest rank
    tensor_mib: list = dataclasses.field(default_factory=list)  # peak of each step, rank 0
    flops_per_step: float = 0  # model FLOPs of the whole job's step, causal
    cut_short: bool = False

    @property
    def warm_seconds(self):
        """The steps without the first one, which includes one-time work."""
        return self.step_seconds[1:] or self.step_seconds


def end_on_signal():
    """For the start of a benchmark: SIGTERM then ends it as an error does, with its jobs and scratch folders."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def terminate(process):
    """The launcher ends its ranks on SIGTERM; processes left in its process group are killed."""
    process.terminate()
    try:
        process.wait(40)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def start(command, limit, environment=None, until=None, log=None):
    """Returns (stdout, seconds until `until` was true or None, whether the limit ended it). `log`: a file for stderr. Throws
    Failure."""
    with tempfile.TemporaryFile("w+") as out, open(log, "w+") if log else tempfile.TemporaryFile("w+") as err:
        started, reached = time.monotonic(), None
        process = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   env=os.environ | (environment or {}), start_new_session=True)
        try:
            while until and process.poll() is None and time.monotonic() - started < limit:
                if until():
                    reached, until = time.monotonic() - started, None
                time.sleep(0.005)
            process.wait(max(0.1, limit - (time.monotonic() - started)))
            cut_short = False
        except subprocess.TimeoutExpired:
            cut_short = True
        finally:
            if process.poll() is None:
                terminate(process)
        if until and until():
            reached = time.monotonic() - started
        out.seek(0), err.seek(0)
        if process.returncode != 0 and not cut_short:
            raise Failure(f"{' '.join(map(str, command))}\nended with {process.returncode}:\n{err.read()[-4000:]}")
        return out.read(), reached, cut_short


def pooled_seconds(runs):
    """(best, median) of the warm steps of all runs."""
    seconds = [value for run in runs for value in run.warm_seconds]
    return min(seconds), statistics.median(seconds)


def busy():
    """A list with a remark for the results if other processes compute on this machine; call it before the first run."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return [f"The machine was busy before the start (load {load:.1f} on {cores} cores): its times mean little."
            ] if load > MOST_IDLE_LOAD * cores else []


def machine():
    """The machine in words, for the results."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags", "").split()
    features = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (f"{fields.get('model name', 'unknown processor')}, {len(os.sched_getaffinity(0))} cores, "
            f"{' '.join(features) or 'no AVX2'}, {gib:.0f} GiB")
