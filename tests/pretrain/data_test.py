"""The data of a run: mixtures go on exactly, on any mesh, and Megatron's files are read as they are."""
import json
import os
import pathlib
import shutil
import struct
import unittest

import run

LOSS_TOLERANCE = 1e-6  # relative, in float32


def write_megatron(stem, documents):
    """Each document is a sequence of uint16 tokens."""
    sizes = [len(document) for document in documents]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1)
    index += struct.pack(f"<{len(sizes)}i", *sizes)
    index += struct.pack(f"<{len(sizes)}q", *(2 * sum(sizes[:i]) for i in range(len(sizes))))
    index += struct.pack(f"<{len(sizes) + 1}q", *range(len(sizes) + 1))
    pathlib.Path(f"{stem}.idx").write_bytes(index)
    tokens = [token for document in documents for token in document]
    pathlib.Path(f"{stem}.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))


class Data(run.PretrainTest):
    def mixture(self, *weights):
        """Words of a mixture of tiny.h5 and a folder of two parts of it."""
        parts = self.folder / "parts"
        if not parts.exists():
            parts.mkdir()
            lines = (run.SOURCE / "data" / "tiny.jsonl").read_text().splitlines(keepends=True)
            for name, some in (("a", lines[::3]), ("b", lines[1::3])):
                source = self.folder / f"{name}.jsonl"
                source.write_text("".join(some))
                self.tokenize(source, parts / f"{name}.h5")
        sources = ", ".join(f"{{path = {path}, weight = {weight}}}" for path, weight in zip((self.tokens, parts), weights))
        return {"training__dataset_path": "", "data__mixture": f"[{sources}]"}

    def losses(self, dump="run"):
        return [step["loss"] for step in self.steps(dump)]

    def test_a_mixture_goes_on_exactly_on_any_mesh(self):
        """A run in three parts on 1, 2 and 4 ranks has the losses of a run in one part."""
        settings = self.mixture(0.7, 0.3) | {"training__global_batch_size": 8, "checkpoint__enable": True,
                                             "checkpoint__interval": 2, "lr_scheduler__total_steps": 6}
        self.steps_of(1, "whole", training__steps=6, **settings)
        for num_ranks, steps in ((1, 2), (2, 4), (4, 6)):
            done = self.run_ranks(num_ranks, *self.small(training__steps=steps, **settings))
            self.assert_code(done, 0)
            self.assertNotIn("OTHER DATA", done.stderr)
        parts, whole = self.losses(), self.losses("whole")
        self.assertEqual(parts[:2], whole[:2])
        for one, other in zip(parts, whole, strict=True):
            self.assertAlmostEqual(one / other, 1, delta=LOSS_TOLERANCE)
        settings |= self.mixture(0.6, 0.4)
        done = self.run_ranks(2, *self.small(training__steps=7, **settings))
        self.assert_code(done, 0)
        self.assertEqual(done.stderr.count("OTHER DATA"), 1, done)

    def test_a_loss_mask_trains_the_same_on_any_mesh(self):
        """The first step has no token that counts, the second step none on one of two ranks; documents are apart, and their first
        tokens do not count. A mixture of files with and without masks goes on exactly."""
        length, samples = 32, 60
        text = "".join(json.loads(line)["text"] for line in (run.SOURCE / "data" / "tiny.jsonl").read_text().splitlines())
        tokens = list(text.encode()[:length * samples + 1])
        mask = [0 if at <= 8 * length or 12 * length < at <= 16 * length else at % 3 > 0 for at in range(len(tokens))]
        source = self.folder / "masked.jsonl"

        def write(mask):
            """Documents of 45 tokens."""
            mask = [int(bit) for bit in mask]
            source.write_text("".join(json.dumps({"tokens": tokens[at:at + 45], "loss_mask": mask[at:at + 45]}) + "\n"
                                      for at in range(0, len(tokens), 45)))
            self.tokenize(source, self.folder / "masked.h5")
        settings = {"training__dataset_path": self.folder / "masked.h5", "training__shuffle": False,
                    "training__global_batch_size": 8, "lr_scheduler__total_steps": 6,
                    "training__attend_across_documents": False, "training__count_document_starts": False}
        validation = {"validation__enable": True, "validation__dataset_path": self.folder / "masked.h5", "validation__freq": 6,
                      "validation__steps": 20}
        write([bit and at % 45 > 0 for at, bit in enumerate(mask)])
        self.steps_of(1, "starts", training__steps=6, **settings | validation | {"training__count_document_starts": True})
        write(mask)
        self.steps_of(1, "whole", training__steps=6, **settings, **validation)
        whole = self.losses("whole")
        self.assertEqual(whole, self.losses("starts"))
        self.assertEqual(*(self.steps(dump)[-1]["validation_loss"] for dump in ("whole", "starts")))
        self.assertEqual(whole[0], 0)
        self.assertTrue(all(3 < loss < 8 for loss in whole[1:]), whole)
        for number, mesh in enumerate(({}, {"parallelism__context_parallel_degree": 2})):
            self.steps_of(2, f"mesh{number}", training__steps=6, **settings, **mesh)
            for one, other in zip(self.losses(f"mesh{number}")[1:], whole[1:], strict=True):
                self.assertAlmostEqual(one / other, 1, delta=LOSS_TOLERANCE)
        # Exact resume of a mixture, and other masks are other data.
        completions = self.folder / "completions.jsonl"
        completions.write_text("".join(json.dumps({"prompt": text[at:at + 20], "completion": text[at + 20:at + 50]}) + "\n"
                                       for at in range(0, 5000, 50)))
        self.tokenize(completions, self.folder / "completions.h5")
        sources = ", ".join(f"{{path = {self.folder / name}, weight = {weight}}}"
                            for name, weight in (("completions.h5", 0.5), ("masked.h5", 0.3), (self.tokens, 0.2)))
        settings |= {"training__dataset_path": "", "data__mixture": f"[{sources}]", "training__shuffle": True,
                     "checkpoint__enable": True, "checkpoint__interval": 2}
        self.steps_of(1, "mixed", training__steps=4, **settings)
        for steps in (2, 4):
            self.assert_code(self.run_ranks(1, *self.small("parts", training__steps=steps, **settings)), 0)
        self.assertEqual(self.losses("parts"), self.losses("mixed"))
        write([1] * len(tokens))
        done = self.run_ranks(1, *self.small("parts", training__steps=5, **settings))
        self.assert_code(done, 0)
        self.assertIn("OTHER DATA", done.stderr)

    def test_a_file_that_is_cut_during_the_run_is_damaged(self):
        cut = self.folder / "cut.h5"
        shutil.copy(self.tokens, cut)
        job = self.start(2, *self.small(training__dataset_path=cut, training__steps=1000000))
        self.wait_for_step(job, 2)
        os.truncate(cut, 9000)
        done = job.finish()
        self.assert_code(done, 3)
        # If all samples of one rank lie before the cut, only the other rank fails, and its message names that rank.
        self.assertRegex(done.errors[0], rf"^pretrain: error(?: on rank \d of 2)?: {cut} is truncated: it has 9000 bytes, "
                                         r".*Copy or make it again", done)

    def test_a_file_names_the_sources_of_a_mixture(self):
        settings = self.mixture(2, 1)
        by_words = self.steps_of(1, "words", **settings)
        file = self.folder / "run.toml"
        file.write_text(f'[[data.mixture]]\npath = "{self.tokens}"\nweight = 2\n\n'
                        f'[[data.mixture]]\npath = "{self.folder / "parts"}"\n')
        self.assert_code(self.run_ranks(1, "--config", file, *self.small("file", training__dataset_path="")), 0)
        self.assertEqual(self.losses("file"), [step["loss"] for step in by_words])

    def test_megatrons_files_give_the_same_losses(self):
        lines = (run.SOURCE / "data" / "tiny.jsonl").read_text().splitlines()
        write_megatron(self.folder / "tiny", [list(json.loads(line)["text"].encode()) + [256] for line in lines])
        documents = {"training__attend_across_documents": False}
        expected = self.steps_of(1, "h5", **documents)
        found = self.steps_of(1, "bin", training__dataset_path=self.folder / "tiny.bin", **documents)
        self.assertEqual([step["loss"] for step in found], [step["loss"] for step in expected])


if __name__ == "__main__":
    unittest.main(verbosity=2)
