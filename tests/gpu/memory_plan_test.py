"""memory_plan.py against pretrain over stand-ins: states of every case against the plan in its message when the GPU has no
memory, a step's tensors against the allocator's count in runs of a small model, and the choices in throughput.py.
usage: memory_plan_test.py PRETRAIN_WITH_STAND_INS"""
import functools
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "pretrain"), str(HERE)]
import memory_plan  # noqa: E402
import run  # noqa: E402
import throughput  # noqa: E402

GPU = pathlib.Path(sys.argv.pop())
# So wide between gate and down that the stand-in's attention, which copies keys and values for every head, needs less.
SMALL = memory_plan.Sizes(260, 64, 2, 4, 2, 16, 512, bias=True)
SEQ = 32
WORKSPACE_BYTES = 32 * 2**20 + 256  # of cuBLASLt, with room to align it: part of what memory_plan reserves


class Plan(run.PretrainTest):
    def test_choices_are_those_of_throughput(self):
        for gb, total in memory_plan.TOTAL_BYTES.items():
            for name in memory_plan.CANDIDATES:
                with self.subTest(gb=gb, case=name):
                    self.assertEqual(throughput.CASES[name].plan(total / 1e9), memory_plan.choose(name, total))

    def test_every_case_has_candidates(self):
        self.assertEqual(set(memory_plan.CANDIDATES), set(throughput.CASES) - set(throughput.NAMED_ALONE))

    def test_states_are_the_programs_own_plan(self):
        def planned(dump, name, settings):
            case = throughput.CASES[name]
            words = self.small(dump, **{"model.name": case.name, "model.flavor": case.flavor,
                                        "training.mixed_precision_param": "bfloat16", **settings})
            return self.run_ranks(1, *words, program=(GPU,), environment={"ARGOSY_FAKE_GPU_BYTES": "1024"})  # numbers of the start

        every = [(name, sizes, total) for name, (sizes, _) in memory_plan.CANDIDATES.items()
                 for total in memory_plan.TOTAL_BYTES.values()]
        settings_of = [memory_plan.settings_on(name, total) for name, _, total in every]
        # A rank that fails takes a moment, its mpirun seconds.
        answers = run.at_once([functools.partial(planned, f"{number}", name, settings)
                               for number, ((name, _, _), settings) in enumerate(zip(every, settings_of))])
        for (name, sizes, _), settings, done in zip(every, settings_of, answers):
            with self.subTest(name):
                self.assert_code(done, 1)
                found = re.search(r"the model under construction needs ([\d.]+) GiB before the first step", done.stderr)
                self.assertTrue(found, done)
                expected = memory_plan.state_bytes(sizes, settings) / memory_plan.GIB
                self.assertLess(abs(float(found[1]) / expected - 1), 1e-3, f"{found[0]}, not {expected}")

    def test_a_step_takes_what_the_plan_says(self):
        (self.folder / "config.json").write_text(json.dumps({
            "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": SMALL.tied,
            "vocab_size": SMALL.vocab, "hidden_size": SMALL.dim, "num_hidden_layers": SMALL.layers,
            "num_attention_heads": SMALL.heads, "num_key_value_heads": SMALL.kv_heads, "head_dim": SMALL.head_dim,
            "intermediate_size": SMALL.hidden, "max_position_embeddings": SEQ, "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0, "hidden_act": "silu"}))
        for microbatch, recompute in ((8, "none"), (8, "selective"), (8, "full"), (24, "none")):
            with self.subTest(microbatch=microbatch, recompute=recompute):
                dump = f"{recompute}{microbatch}"
                words = self.small(dump, **{
                    "model.hf_assets_path": self.folder, "training.seq_len": SEQ, "training.steps": 2,
                    "training.local_batch_size": microbatch, "training.global_batch_size": 2 * microbatch,
                    "activation_checkpoint.mode": recompute, "training.mixed_precision_param": "bfloat16",
                    **throughput.BFLOAT16_STATES})
                self.assert_code(self.run_ranks(1, *words, program=(GPU,), limit=300), 0)
                measured = max(step["memory_peak_gib"] for step in self.steps(dump)) * memory_plan.GIB
                beside = measured - WORKSPACE_BYTES - memory_plan.state_bytes(SMALL, throughput.BFLOAT16_STATES)
                planned = memory_plan.step_bytes(SMALL, microbatch * SEQ, recompute)
                self.assertLess(abs(beside / planned - 1), 0.05, f"{beside:.0f} bytes beside the states, not {planned}")


if __name__ == "__main__":
    run.main()
