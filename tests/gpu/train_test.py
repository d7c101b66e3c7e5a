"""Training on a GPU against the same executable on the CPU: the tests of gpu_run.py over more steps, and over several
ranks, through NCCL. Ranks that share a GPU appear to be on different nodes (support/gpu_name.py). Skips without a GPU.
usage: train_test.py [Train] [Ranks]"""
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "pretrain"), str(TESTS / "support")]
from gpu_name import gpu_name, nccl_rank, num_gpus  # noqa: E402
import gpu_run  # noqa: E402
import run  # noqa: E402

STEPS = 20


class Train(gpu_run.OnGpu, run.PretrainTest):
    cpu, gpu = ((run.PRETRAIN,), {"CUDA_VISIBLE_DEVICES": ""}), ((run.PRETRAIN,), {})
    device_name = gpu_name()
    fp32_tolerance = 1e-4

    def run_on(self, place, num_ranks, dump, **settings):
        more = {"training__steps": STEPS, "optimizer__lr": 1e-3, "training__seq_len": 64}
        super().run_on(place, num_ranks, dump, **(more | settings))


class Ranks(gpu_run.BetweenRanks, run.PretrainTest):
    gpu = (*nccl_rank(num_gpus()), run.PRETRAIN), {}
    device_name = Train.device_name

    def test_through_nccl_losses_do_not_depend_on_the_layout(self):
        self.assert_layouts_do_not_matter(comm__gpu_path="nccl")


if __name__ == "__main__":
    if Train.device_name is None:
        print("skipped: there is no GPU here")
        sys.exit(77)
    run.main()
