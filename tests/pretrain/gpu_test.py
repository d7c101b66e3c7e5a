"""Training as it runs on GPUs: their kernels emulated, NCCL, cuBLASLt and graphs by stand-ins. Beside what gpu_run.py
says, losses do not depend on the layout. usage: gpu_test.py PRETRAIN_WITH_STAND_INS"""
import pathlib
import sys

import gpu_run
import run

GPU = pathlib.Path(sys.argv.pop())


class Gpu(gpu_run.OnGpu, run.PretrainTest):
    cpu, gpu, device_name = ((run.PRETRAIN,), {}), ((GPU,), {}), "Fake GPU"

    def test_losses_do_not_depend_on_the_layout(self):
        self.assert_layouts_do_not_matter()

    def test_a_graph_changes_no_bit_between_ranks(self):
        graphs = self.train(self.gpu, 2, "graphs")
        self.assertEqual(graphs, self.train(self.gpu, 2, "none", compile__graphs=False))


if __name__ == "__main__":
    run.main()
