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


class Peer:
    """torch_llama.py under a Python that has PyTorch."""

    def __init__(self, python, cache_folder):
        self.python = python
        self.environment = {"TORCHINDUCTOR_CACHE_DIR": str(cache_folder), "PYTHONWARNINGS": "ignore"}

    def gflops(self):
        """{"bf16_gflops", "fp32_gflops"} of the peer's matrix products on one thread."""
        out, _, cut_short = start([self.python, HERE / "torch_llama.py", "--probe"], 120, self.environment)
        if cut_short:
            raise Failure("the peer's probe came to no end")
        return json.loads(out)

    def train(self, sizes, layout, dtype, compiled, steps, limit):
        """A Run, or None if the time limit ended it."""
        launcher = [self.python]
        if layout.ranks > 1:
            launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", layout.ranks]
        words = [f"--{name}={value}" for name, value in dataclasses.asdict(sizes).items()]
        command = [*launcher, HERE / "torch_llama.py", *words, f"--threads={layout.threads}", f"--dtype={dtype}",
                   f"--steps={steps}", f"--started={time.time()}", *(["--compile"] if compiled else [])]
        out, _, cut_short = start(command, limit, self.environment)
        if cut_short:
            return None
        result = json.loads(out.splitlines()[-1])
        return Run(result["tokens_per_step"], result["step_seconds"], result["losses"], result["first_step_seconds"],
                   result["peak_mib"])
