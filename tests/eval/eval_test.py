"""The command line of eval: its results, files, output and exit codes, for every form of a checkpoint."""
import fcntl
import json
import math
import os
import pathlib
import struct
import subprocess
import time
import unittest

from run import BIN, DIM, EPS, SOURCE, VOCABULARY, EvalTest, random_records, shapes, write_model


def silent_blocks(name, value):
    """The output of each block is zero, so each token's logits depend only on that token."""
    return 0.0 if ("o_proj" in name or "down_proj" in name) else value


def bigram_score(values, records):
    """Perplexity and accuracy, in doubles, of a model whose blocks output zero."""
    def rows(name):
        return [values[name][i * DIM:(i + 1) * DIM] for i in range(VOCABULARY)]
    table, head, scale = rows("model.embed_tokens.weight"), rows("lm_head.weight"), values["model.norm.weight"]
    total = count = greedy = 0
    for record in records:
        for token, target in zip(record, record[1:]):
            x = table[token]
            rms = math.sqrt(sum(v * v for v in x) / DIM + EPS)
            normed = [v / rms * s for v, s in zip(x, scale)]
            logits = [sum(a * b for a, b in zip(row, normed)) for row in head]
            total += logits[target] - math.log(sum(map(math.exp, logits)))
            greedy += logits.index(max(logits)) == target
            count += 1
    return math.exp(-total / count), greedy / count


class Eval(EvalTest):
    environment = {"CUDA_VISIBLE_DEVICES": ""}  # bits are the processor's, whatever else is there

    def convert(self, form, *more):
        target = self.folder / "-".join(["as", form, *more])
        self.run_program(self.model, target, "--to", form, *more, program="convert-checkpoint")
        return target

    def test_numbers(self):
        values = write_model(self.model, silent_blocks)
        records = random_records(20, 30)
        results, _ = self.evaluate(self.task(records))
        perplexity, accuracy = bigram_score(values, records)
        found = results["results"]["task"]
        self.assertAlmostEqual(found["token_perplexity,none"] / perplexity, 1, delta=2e-6)
        self.assertAlmostEqual(found["token_accuracy,none"], accuracy, delta=1e-12)
        self.assertEqual(results["n-tokens"]["task"], sum(map(len, records)) - len(records))

    def test_layout_of_results(self):
        write_model(self.model)
        before = time.time()
        paths = [self.task(random_records(4, 9), "one"), self.task(random_records(6, 9), "two")]
        results, done = self.evaluate(",".join(map(str, paths)), "--batch-tokens", "16", "--max-length", "5")
        self.assertEqual(list(results["results"]), ["one", "two"])
        for name in ("one", "two"):
            found = results["results"][name]
            self.assertEqual(set(found), {"alias", "token_perplexity,none", "token_perplexity_stderr,none",
                                          "token_accuracy,none", "token_accuracy_stderr,none"})
            self.assertEqual(found["alias"], name)
            self.assertEqual(found["token_perplexity_stderr,none"], "N/A")
            self.assertEqual(results["group_subtasks"][name], [])
            self.assertEqual(results["configs"][name]["task"], name)
            self.assertEqual(results["versions"][name], 1)
            self.assertEqual(results["n-shot"][name], 0)
            self.assertEqual(results["higher_is_better"][name], {"token_accuracy": True, "token_perplexity": False})
        self.assertEqual(results["n-samples"]["two"], {"original": 6, "effective": 6})
        config = results["config"]
        self.assertEqual(config["model"], "argosy")
        self.assertEqual(config["model_args"], {"path": str(self.model), "dtype": "fp32", "tokenizer": None, "max_length": 5})
        self.assertEqual(config["model_num_parameters"], sum(math.prod(shape) for shape in shapes().values()))
        self.assertEqual((config["batch_tokens"], config["device"]), (16, "cpu"))
        self.assertTrue(before - 1 < results["date"] < time.time() + 1)
        self.assertGreaterEqual(float(results["total_evaluation_time_seconds"]), 0)

        lines = done.stdout.splitlines()
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        self.assertEqual(cells[0], ["Tasks", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr"])
        self.assertEqual(len({len(line) for line in lines}), 1, "columns stand under each other")
        value = results["results"]["two"]["token_perplexity,none"]
        self.assertEqual(cells[-1], ["two", "1", "none", "0", "token_perplexity", "\u2193", f"{value:.4f}", "\u00b1", "N/A"])
        self.assertEqual(len(cells), 2 + 4)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["hf", "one.jsonl", "results.json", "two.jsonl"])

    def test_every_form_gives_the_same_bits(self):
        write_model(self.model)
        task = self.task(random_records(12, 20))
        expected = self.perplexity(task)
        for form in ("sharded", "full", "hf"):
            self.assertEqual(self.perplexity(task, model=self.convert(form)), expected, form)
        for dtype in ("bf16", "fp16"):
            narrow = [self.perplexity(task, model=self.convert(form, "--dtype", dtype)) for form in ("full", "hf")]
            self.assertEqual(narrow[0], narrow[1])
            self.assertNotEqual(narrow[0], expected)
            self.assertAlmostEqual(narrow[0] / expected, 1, delta=0.05)

    def test_what_results_depend_on(self):
        write_model(self.model)
        task = self.task(random_records(12, 20))
        expected = self.perplexity(task)
        self.assertEqual(self.perplexity(task, "--batch-tokens", "1"), expected)
        self.assertEqual(self.perplexity(task, "--threads", "2"), expected)
        self.assertEqual(self.perplexity(task, "--max-length", "19"), expected)
        self.assertNotEqual(self.perplexity(task, "--max-length", "18"), expected)
        found = self.perplexity(task, "--dtype", "bf16")
        self.assertNotEqual(found, expected)
        self.assertAlmostEqual(found / expected, 1, delta=0.1)

    def test_warns_of_records_beyond_the_positions(self):
        write_model(self.model)
        for longest, warned in ((65, False), (66, True)):
            _, done = self.evaluate(self.task([[1] * longest]))
            self.assertEqual("max_position_embeddings is 64" in done.stderr, warned, done.stderr)
        _, done = self.evaluate(self.task([[1] * 66]), "--max-length", "64")
        self.assertNotIn("max_position_embeddings", done.stderr)

    def test_bad_command_lines(self):
        write_model(self.model)
        task = self.task([[1, 2, 3]])
        good = ["--model", self.model, "--tasks", task, "--output", self.output]
        self.expect_error(*good[2:], parts=["--model"])
        self.expect_error(*good[:2], *good[4:], parts=["--tasks is required"])
        self.expect_error(*good[:4], parts=["--output is required"])
        self.expect_error(*good[:3], "hellaswag", parts=["eval fetches no data sets", "hellaswag=hellaswag.jsonl"])
        self.expect_error(*good, "--dtype", "fp16", parts=["'fp16'", "it must be fp32 or bf16"])
        self.expect_error(*good, "--batch-tokens", "0", parts=["--batch-tokens"])
        self.expect_error(*good, "--device", "tpu", parts=["--device", "tpu", "auto", "gpu"])
        self.expect_error(*good, "--device", "gpu", parts=["--device gpu, but this", "--device cpu"])
        self.expect_error("--model", self.folder / "none", *good[2:], parts=["none", "does not exist"])
        self.expect_error("--model", self.folder, *good[2:], parts=[str(self.folder), "holds no model"])
        other = self.folder / "other"
        other.mkdir()
        (other / task.name).write_text(task.read_text())
        self.expect_error(*good[:3], f"{task},{other / task.name}", *good[4:], parts=[str(other / task.name), "'task'"])
        self.expect_error(*good[:5], "", parts=["has no file name"])
        self.expect_error(*good[:5], self.folder / "missing" / "results.json", parts=["missing/results.json"])

    def test_records_that_predict_nothing_are_counted(self):
        write_model(self.model)
        records = random_records(4, 9)
        expected = self.evaluate(self.task(records))[0]["results"]["task"]
        task = self.task([[], *records[:2], [1], *records[2:]])
        results, done = self.evaluate(task)
        self.assertEqual(results["results"]["task"], expected)
        self.assertEqual(results["n-samples"]["task"], {"original": 6, "effective": 4})
        self.assertEqual(results["n-short"]["task"], 2)
        self.assertIn("task: 2 of 6 records are left out", done.stderr)
        self.assertIn(f"the first is {task}:1", done.stderr)
        self.output.unlink()
        self.expect_error("--model", self.model, "--tasks", self.task([[], [1]]), "--output", self.output,
                          parts=["no records of two tokens or more (2 are shorter)"])

    def test_standard_input_and_output(self):
        """The table is then on stderr, so that stdout has one thing."""
        write_model(self.model)
        task = self.task(random_records(4, 9))
        expected = self.evaluate(task)[0]["results"]["task"]
        with task.open() as records:
            done = subprocess.run([BIN / "eval", "--model", self.model, "--tasks", "-", "--output", "-"], stdin=records,
                                  capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"} | self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)["results"]["stdin"]
        self.assertEqual(found | {"alias": "task"}, expected)
        self.assertIn("|token_perplexity|", done.stderr)

    def test_names_that_are_not_utf8_are_reported(self):
        write_model(self.model)
        task = os.fsdecode(os.fsencode(self.folder) + b"/\xff.jsonl")
        os.rename(self.task(random_records(4, 9)), task)
        self.assertEqual(list(self.evaluate(task)[0]["results"]), ["\ufffd"])

    def test_inputs_are_never_replaced(self):
        write_model(self.model)
        task, full = self.task([[1, 2, 3]]), self.convert("full")
        for model, output, part in ((self.model, task, "is a task"), (full, full, "inside the source"),
                                    (self.model, self.model / "config.json", "inside the source")):
            before = output.read_bytes()
            self.expect_error("--model", model, "--tasks", task, "--output", output, parts=[str(output), part])
            self.assertEqual(output.read_bytes(), before)

    def test_bad_records(self):
        write_model(self.model)
        for line, parts in (('{"tokens": [1, 40]}', ["token 40", "0 .. 39"]),
                            ('{"text": "a"}', ["layout 'text'"]), ('{"tokens": [1, ', ["bad JSON"])):
            path = self.task([[1, 2]])
            path.write_text(path.read_text() + line + "\n")
            self.expect_error("--model", self.model, "--tasks", path, "--output", self.output,
                              parts=[f"{path}:2"] + parts)
        path.write_text("")
        self.expect_error("--model", self.model, "--tasks", path, "--output", self.output, parts=[str(path), "no records"])

    def test_models_of_features_that_are_not_supported(self):
        write_model(self.model)
        config, task = json.loads((self.model / "config.json").read_text()), self.task([[1, 2]])
        for key, value in (("rope_scaling", {"rope_type": "dynamic", "factor": 4.0}), ("use_sliding_window", True),
                           ("layer_types", ["sliding_attention"]), ("architectures", ["LlamaModel"]),
                           ("num_local_experts", 8), ("quantization_config", {"bits": 4}), ("model_type", "deepseek_v3")):
            (self.model / "config.json").write_text(json.dumps(config | {key: value}))
            self.expect_error("--model", self.model, "--tasks", task, "--output", self.output,
                              parts=[str(self.model / "config.json"), key, "supported"])
        (self.model / "config.json").write_text(json.dumps(config | {"use_qk_norm": False}))
        self.expect_error("--model", self.model, "--tasks", task, "--output", self.output,
                          parts=[str(self.model / "config.json"), "use_qk_norm", "--accept-config-key"])
        self.evaluate(task, "--accept-config-key", "use_qk_norm")

    def test_weights_that_are_not_finite(self):
        write_model(self.model, lambda name, value: math.nan if name == "model.norm.weight" else value)
        task = self.task([[1, 2], [3, 4, 5]])
        self.expect_error("--model", self.model, "--tasks", task, "--output", self.output, code=3,
                          parts=[f"{task}:1", "nan"])

    def test_a_flipped_bit_of_a_checkpoint(self):
        values = write_model(self.model)
        step = self.convert("sharded")
        shard = next(step.glob("shard-*.h5"))
        damaged = bytearray(shard.read_bytes())
        damaged[damaged.index(struct.pack("<4f", *values["lm_head.weight"][-4:]))] ^= 4
        shard.write_bytes(damaged)
        self.expect_error("--model", step, "--tasks", self.task([[1, 2]]), "--output", self.output, code=3,
                          parts=[shard.name, "model/output.weight"])

    def test_a_model_that_is_far_too_large(self):
        """The file takes no disk space: everything but the header is a hole."""
        if pathlib.Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1":
            self.skipTest("the kernel refuses no memory here")
        write_model(self.model)
        dim, heads, header, end = 2**20, 2**13, {}, 0
        for name, shape in shapes(dim, dim // heads).items():
            begin, end = end, end + 2 * math.prod(shape)
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        file = self.model / "model.safetensors"
        file.write_bytes(struct.pack("<Q", len(text)) + text)
        os.truncate(file, 8 + len(text) + end)
        config = json.loads((self.model / "config.json").read_text())
        config |= {"hidden_size": dim, "num_attention_heads": heads, "num_key_value_heads": 1}
        (self.model / "config.json").write_text(json.dumps(config))
        # A sanitizer would end the process on a failed allocation.
        self.environment = self.environment | {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}
        arguments = ["--model", self.model, "--tasks", self.task([[1, 2, 3]]), "--output", self.output]
        self.expect_error(*arguments, code=1, parts=[
            "out of memory: 4096 GiB requested, in the host's memory, beside ", " of tensors there. What would need less: "
            "a smaller --batch-tokens or --max-length; --dtype bf16; a machine with more memory"])
        self.expect_too_little_memory_to_generate()

    def expect_too_little_memory_to_generate(self):
        """Generation holds all weights, and needs memory for texts side by side."""
        def piece(text, kind):
            return b"\n" + bytes([len(text) + 4, 10, len(text)]) + text + bytes([24, kind])
        tokenizer, task, need = self.folder / "tokenizer.model", self.folder / "two.jsonl", "What would need less: "
        tokenizer.write_bytes(piece(b"<unk>", 2) + piece(b"</s>", 3) + piece(b"a", 1))  # of SentencePiece
        task.write_text(2 * (json.dumps({"question": "a", "answer": "#### 1"}) + "\n"))
        common = ["--model", self.model, "--tokenizer", tokenizer, "--max-new-tokens", 20]
        self.expect_error(*common, "--generate", "a", code=1, parts=[
            "out of memory: 4096 GiB requested", need + "a smaller --max-new-tokens; --dtype bf16; a machine"])
        self.expect_error(*common, "--tasks", f"gsm8k={task}", "--output", self.output, code=1, parts=[
            need + "a smaller --batch-size, --batch-tokens, --max-new-tokens or --max-length; --dtype bf16"])

    def test_an_output_that_cannot_be_written(self):
        write_model(self.model)
        arguments = ["--model", self.model, "--tasks", self.task([[1, 2]]), "--output"]
        with open("/dev/full", "w") as full:
            done = self.run_program(*arguments, self.output, code=1, stdout=full)
        self.assertIn("cannot write to stdout", done.stderr)
        self.assertTrue(self.output.exists(), "what was found is kept")
        older = self.output.read_text()
        limited = subprocess.run(["bash", "-c", 'trap "" XFSZ; ulimit -f 0; exec "$0" "$@"', BIN / "eval",
                                  *map(str, arguments), self.output], capture_output=True, text=True)
        self.assertEqual(limited.returncode, 1, limited.stderr)
        self.assertEqual(self.output.read_text(), older, "whole or not at all")
        self.assertEqual(list(self.folder.glob("*.partial*")), [])

    def test_only_results_are_replaced(self):
        """A second evaluation replaces the results of the first, as a requeued job does; other programs' files stay,
        and so does a file that is being written."""
        write_model(self.model)
        arguments = ["--model", self.model, "--tasks", self.task([[1, 2]]), "--output", self.output]
        for _ in range(2):
            self.run_program(*arguments)
        with open(f"{self.output}.partial.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.run_program(*arguments, code=2)
            self.assertIn(f"{self.output} is being written by another process", done.stderr)
        self.output.write_text('{"results": "mine"}')
        done = self.run_program(*arguments, code=2)
        self.assertIn(f"cannot write {self.output}: it exists, and this tool did not write it", done.stderr)
        self.assertEqual(self.output.read_text(), '{"results": "mine"}')

    def test_verify_compares_logits(self):
        write_model(self.model)
        for form, more, said in (("full", ["--verify"], "equal bit for bit"),
                                 ("hf", ["--verify", "--dtype", "bf16"], "rounding changes them by up to")):
            target = self.folder / f"verified-{form}"
            done = self.run_program(self.model, target, "--to", form, *more, program="convert-checkpoint")
            self.assertIn(said, done.stderr)
        # Every element is rounded faithfully, but fp16 cannot hold this model.
        write_model(self.folder / "large", lambda name, value: value * 1e7 if "v_proj" in name else value)
        done = self.run_program(self.folder / "large", self.folder / "small", "--to", "full", "--dtype", "fp16", "--verify",
                                program="convert-checkpoint", code=3)
        self.assertIn("logits of 32 positions", done.stderr)
        self.assertFalse((self.folder / "small").exists())

    def test_loss_of_training(self):
        """The loss of a step is the logarithm of the perplexity of the weights before that step, over the step's
        samples."""
        length, batch = 32, 4
        tokens = random_records(1, 400)[0] * 3
        source = self.task([tokens])
        self.run_program("tokenize", "--input", source, "--output", self.folder / "t.h5", "--vocab-size", VOCABULARY,
                         program="prepare-data")
        write_model(self.model)
        settings = {"training.dataset_path": self.folder / "t.h5", "training.shuffle": "false", "training.steps": 2,
                    "training.seq_len": length, "training.local_batch_size": batch, "optimizer.lr": 0.01,
                    "training.mixed_precision_param": "float32", "model.hf_assets_path": self.model,
                    "checkpoint.initial_load_path": self.model, "checkpoint.enable": "true", "checkpoint.interval": 1,
                    "job.dump_folder": self.folder / "run", "lr_scheduler.warmup_steps": 1}
        self.run_program("1", BIN / "pretrain", *[word for key, value in settings.items() for word in ("--" + key, value)],
                         program=SOURCE / "jobs" / "mpirun.sh")
        losses = [json.loads(line)["loss"] for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        for step, model in enumerate([self.model, self.folder / "run" / "checkpoint" / "step-00000001"]):
            starts = [sample * length for sample in range(step * batch, (step + 1) * batch)]
            task = self.task([tokens[start:start + length + 1] for start in starts])
            self.assertAlmostEqual(math.log(self.perplexity(task, model=model)) / losses[step], 1, delta=1e-6)
        self.assertNotAlmostEqual(losses[0], losses[1], delta=1e-3)
        newest = self.perplexity(task, model=self.folder / "run")
        self.assertLess(math.log(newest), losses[1], "the run's folder stands for its newest step")

    def test_help_and_version(self):
        text = self.run_program("--help").stdout
        for word in ("--model", "--tasks", "--device", "--max-length", "--batch-tokens", "tokens", "tokenizer"):
            self.assertIn(word, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 110, text)
        self.assertRegex(self.run_program("--version").stdout, r"^eval \d+\.\d+\.\d+ \(\w+")


if __name__ == "__main__":
    unittest.main(verbosity=2)
