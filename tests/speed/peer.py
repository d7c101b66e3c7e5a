"""The peer's side of the comparison: torch_llama.py under a Python that has PyTorch."""
import dataclasses
import json
import os
import pathlib
import time

from runs import HERE, SOURCE, Failure, Run, start

VARIABLE = "ARGOSY_PEER_PYTHON"
PLACE = ".deps/peer-venv"
REMEDY = (f"make one with: python3 -m venv {PLACE} && {PLACE}/bin/pip install torch==2.11.0 numpy setuptools; "
          f"or name one in {VARIABLE}")


def find_python():
    """The Python that $ARGOSY_PEER_PYTHON names, or that of .deps/peer-venv; None if there is none."""
    python = os.environ.get(VARIABLE) or SOURCE / PLACE / "bin" / "python"
    return str(python) if pathlib.Path(python).exists() else None


SHORT = dict(batch=1, seq=64)  # steps of a run in a type that PyTorch computes slowly
# glibc's malloc keeps the memory of tensors that are freed, as pretrain does.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**40), "MALLOC_TRIM_THRESHOLD_": str(2**40)}


@dataclasses.dataclass(frozen=True)
class Variant:
    """How the peer runs."""
    dtype: str
    compiled: str = "none"      # as torch_llama.py's --compile
    keeps_memory: bool = False  # malloc does
    short: bool = False         # two steps of SHORT sizes

    @property
    def name(self):
        words = [{"none": "eager", "blocks": "compiled", "all": "compiled with head and loss"}[self.compiled]]
        words += ["tuned malloc"] * self.keeps_memory + [f"{SHORT['batch']} x {SHORT['seq']} tokens"] * self.short
        return "PyTorch " + ", ".join(words)


class Peer:
    """torch_llama.py, or a script with its options, under a Python that has PyTorch."""

    def __init__(self, python, cache_folder, script="torch_llama.py"):
        self.python, self.script = python, HERE / script
        self.environment = {"TORCHINDUCTOR_CACHE_DIR": str(cache_folder), "PYTHONWARNINGS": "ignore"}

    def gflops(self):
        """{"bf16_gflops", "fp32_gflops"} of the peer's matrix products on one thread."""
        out, _, cut_short = start([self.python, self.script, "--probe"], 120, self.environment)
        if cut_short:
            raise Failure("the peer's probe came to no end")
        return json.loads(out)

    def train(self, sizes, layout, variant, steps, limit):
        """A Run, or None if the time limit ended it."""
        sizes, steps = (dataclasses.replace(sizes, **SHORT), 2) if variant.short else (sizes, steps)
        launcher = [self.python]
        if layout.ranks > 1:
            launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", layout.ranks]
        words = [f"--{name}={value}" for name, value in dataclasses.asdict(sizes).items()]
        command = [*launcher, self.script, *words, f"--threads={layout.threads}",
                   f"--dtype={variant.dtype}", f"--compile={variant.compiled}", f"--steps={steps}",
                   f"--started={time.time()}"]
        environment = self.environment | (KEEP_MEMORY if variant.keeps_memory else {})
        out, _, cut_short = start(command, limit, environment)
        if cut_short:
            return None
        result = json.loads(out.splitlines()[-1])
        return Run(result["tokens_per_step"], result["step_seconds"], result["losses"], result["first_step_seconds"],
                   result["peak_mib"])
