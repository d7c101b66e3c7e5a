#!/usr/bin/env python3
"""jobs/arrive.sh takes a TorchTitan TOML or a Lit-GPT YAML and texts to a run, and the pretrain commands of
configs/ARRIVING.md work."""
import json
import os
import re
import shlex
import subprocess

from run import MPIRUN, PRETRAIN, SOURCE, PretrainTest, main

PAGE = SOURCE / "configs" / "ARRIVING.md"
TEXTS = SOURCE / "data" / "tiny.jsonl"
TITAN = """
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "./tests/assets/tokenizer"
[metrics]
log_freq = 1
enable_wandb = false
[lr_scheduler]
warmup_steps = 1
[training]
local_batch_size = 2
seq_len = 32
steps = 10
dataset = "c4_test"
[parallelism]
data_parallel_shard_degree = -1
context_parallel_degree = 1
expert_parallel_degree = 1
[checkpoint]
enable = false
export_dtype = "float32"
[compile]
enable = false
components = ["model", "loss"]
[validation]
enable = false
dataset = "c4_validation"
"""
LITGPT = """
model_name: pythia-14m
out_dir: out/pretrain/debug
data: OpenWebText
train:
  global_batch_size: 4
  micro_batch_size: 2
  lr_warmup_steps: 1
  max_tokens: 256
  max_seq_length: 32
  max_norm: 1.0
seed: 42
"""


class ArrivingTest(PretrainTest):
    def run_here(self, *command):
        """Runs a command in the test's folder: (code, stdout, stderr)."""
        done = subprocess.run([str(word) for word in command], cwd=self.folder, capture_output=True, text=True, timeout=240,
                              env=os.environ | {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                                                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        return done.returncode, done.stdout, done.stderr

    def arrive(self, name, text, *more):
        (self.folder / name).write_text(text)
        return self.run_here(SOURCE / "jobs" / "arrive.sh", name, "--jsonl", TEXTS, "--tokenizer", "bytes",
                             "--training.mixed_precision_param", "float32", *more)

    def test_torchtitan_to_two_steps_of_a_run(self):
        code, table, log = self.arrive("debug.toml", TITAN, "--training.steps", "2", "--compile.enable", "--validation",
                                       TEXTS, "--validation.steps=1", "--ranks", "2", "--checkpoint.enable=true",
                                       "--checkpoint.last_save_in_hf")
        self.assertEqual(code, 0, table + log)
        self.assertRegex(table, r"(?m)^taken +training.steps = 2 ")
        self.assertRegex(table, r"(?m)^equivalent +model.flavor = \"debugmodel\" +model.flavor = \"256x6x16\"")
        self.assertRegex(table, r"(?m)^taken +parallelism.expert_parallel_degree = 1 ")
        self.assertIn(" 0 missing\n", table)
        for part in ("arrive: 1. translating", "arrive: 2. tokenizing", "arrive: 3. training on 2 ranks"):
            self.assertIn(part, log)
        run = self.folder / "outputs" / "debug"
        steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([step["step"] for step in steps], [1, 2])
        self.assertGreater(steps[1]["validation_loss"], 0)
        # Its weights start another run, and run.toml alone is that run.
        weights = next((run / "checkpoint").glob("step-*-hf"))
        code, table, log = self.arrive("more.toml", TITAN, "--training.steps", "2", "--optimizer.lr", "0.0", "--checkpoint", weights)
        self.assertEqual(code, 0, table + log)
        run = self.folder / "outputs" / "more"
        loss = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])["loss"]
        self.assertLess(loss, steps[0]["loss"] - 0.05)  # on the first samples, which the first run has seen
        code, _, log = self.run_here(MPIRUN, 1, PRETRAIN, "--config", run / "run.toml", "--job.dump_folder", "again")
        self.assertEqual(code, 0, log)
        again = json.loads((self.folder / "again" / "metrics.jsonl").read_text().splitlines()[0])["loss"]
        self.assertEqual(again, loss)

    def test_translations_plan_as_they_are(self):
        """A file names a tokenizer's folder or file that is not here, and no config.json."""
        titan = TITAN.replace("./tests/assets/tokenizer", "./assets/hf/absent")
        former = TITAN.replace("hf_assets_path = \"./tests/assets/tokenizer\"", "tokenizer_path = \"./assets/tokenizer.model\"")
        former = former.replace("local_batch_size", "batch_size")
        for flag, text, changes, gpus in (
                ("--from-torchtitan", titan, {}, 2),
                ("--from-torchtitan", titan, {"debugmodel": "8B"}, 8),
                ("--from-torchtitan", titan, {"debugmodel": "405B", "context_parallel_degree = 1": "tensor_parallel_degree = 8"}, 128),
                ("--from-torchtitan", titan, {"llama3": "qwen3", "debugmodel": "0.6B"}, 8),
                ("--from-torchtitan", former, {"llama3": "llama2", "debugmodel": "13B"}, 8),
                ("--from-litgpt", LITGPT, {"pythia-14m": "tiny-llama-1.1b"}, 2),
                ("--from-litgpt", LITGPT, {"pythia-14m": "Llama-2-7b-hf"}, 2)):
            for old, new in changes.items():
                self.assertIn(old, text)
                text = text.replace(old, new)
            with self.subTest(flag=flag, changes=changes):
                (self.folder / "theirs").write_text(text)
                code, table, log = self.run_here(PRETRAIN, flag, "theirs", "--output", "ours.toml")
                self.assertEqual(code, 0, table + log)
                code, plan, log = self.run_here(PRETRAIN, "--config", "ours.toml", "--plan", "--gpus", gpus, "--gpu", "h200")
                self.assertEqual(code, 0, plan + log)

    def test_what_is_missing_stops_unless_it_is_accepted(self):
        more = ("--model.flavor", "debugmodel", "--checkpoint.enable", "false")
        code, table, log = self.arrive("tiny.yaml", LITGPT, *more)
        self.assertEqual(code, 3, table + log)
        self.assertRegex(table, r"(?m)^missing +model_name = \"pythia-14m\" +.*nearest: model.hf_assets_path")
        self.assertIn("--anyway", log)
        self.assertFalse((self.folder / "outputs" / "tiny" / "metrics.jsonl").exists())
        code, table, log = self.arrive("tiny.yaml", LITGPT, *more, "--anyway")
        self.assertEqual(code, 0, table + log)
        metrics = (self.folder / "outputs" / "tiny" / "metrics.jsonl").read_text()
        self.assertEqual(metrics.count("\n"), 2)  # 256 tokens of 4 samples x 32

    def test_other_texts_are_tokenized_again(self):
        run = ("--training.steps", "1", "--ranks", "1", "--folder", "run")
        code, table, log = self.arrive("tiny.toml", TITAN, *run)
        self.assertEqual(code, 0, table + log)
        code, _, log = self.arrive("tiny.toml", TITAN, *run)
        self.assertIn("run/train.h5 is made of", log)
        before = (self.folder / "run" / "train.json").read_text()
        texts = self.folder / "others.jsonl"
        texts.write_text(TEXTS.read_text().replace("the", "thee"))
        os.utime(texts, (1, 1))  # older than the token file
        code, _, log = self.arrive("tiny.toml", TITAN, *run, "--jsonl", texts)
        self.assertEqual(code, 0, log)
        self.assertIn("2. tokenizing", log)
        self.assertNotEqual((self.folder / "run" / "train.json").read_text(), before)

    def test_mistakes(self):
        (self.folder / "theirs.toml").write_text(TITAN)
        for words, part in ((["run.ini", "--jsonl", "x"], "neither"), (["run.toml"], "--jsonl is missing"),
                            (["run.toml", "--jsonl", "x", "--nonsense", "1"], "unknown option --nonsense"),
                            (["absent.toml", "--jsonl", "x"], "cannot read the configuration absent.toml"),
                            (["theirs.toml", "--jsonl", "x"], "cannot read the texts x"),
                            (["theirs.toml", "--jsonl", TEXTS, "--validation", "y"], "cannot read the texts y"),
                            (["theirs.toml", "--jsonl", TEXTS, "--ranks", "0"], "--ranks 0 is not"),
                            (["theirs.toml", "--jsonl", TEXTS, "--nodes", "two"], "--nodes two is not"),
                            (["theirs.toml", "--jsonl", TEXTS, "--nodes", "2", "--ranks", "2"], "give one of them"),
                            (["theirs.toml", "--job.dump_folder", "x"], "use --folder"),
                            (["theirs.toml", "--training.dataset_path=x"], "use --jsonl"),
                            (["theirs.toml", "--validation.dataset_path", "x"], "use --validation")):
            code, _, log = self.run_here(SOURCE / "jobs" / "arrive.sh", *words)
            self.assertEqual(code, 2, log)
            self.assertIn(part, log)
        self.assertFalse((self.folder / "outputs").exists())
        code, text, log = self.run_here(SOURCE / "jobs" / "arrive.sh", "--help")
        self.assertEqual(code, 0, log)
        self.assertRegex(text, r"\Aarrive.sh F.toml(.|\n)*--anyway(.|\n)*Exit codes: 3 ")
        (self.folder / "mine.toml").write_text("[training]\nsteps = 1\n")
        code, text, log = self.run_here(PRETRAIN, "--from-torchtitan", "theirs.toml", "--output", "mine.toml")
        self.assertEqual((code, text), (2, ""), log)
        self.assertIn("mine.toml", log)
        code, text, log = self.run_here(PRETRAIN, "--from-torchtitan", "theirs.toml", "--model.flavor", "7B")
        self.assertEqual(code, 3, log)
        self.assertRegex(text, r"(?m)^missing +\(preset\) +no preset has model.name = \"llama3\" and model.flavor = \"7B\"")
        code, _, log = self.run_here(PRETRAIN, "--from-litgpt", "theirs.toml", "--validation.enable", "true")
        self.assertEqual(code, 2, log)

    def test_the_pretrain_commands_of_the_page_work(self):
        (self.folder / "llama3_8b.toml").write_text(TITAN)
        (self.folder / "tinyllama.yaml").write_text(LITGPT)
        page = PAGE.read_text() + (SOURCE / "jobs" / "WHY_SLOW.md").read_text()
        page = re.sub(r" \\\n +", " ", page)
        commands = re.findall(r"^    (pretrain .*)$", page, re.MULTILINE) + re.findall(r"`(pretrain --[^`]+)`", page)
        self.assertGreaterEqual(len(commands), 8)
        for command in dict.fromkeys(commands):
            words = shlex.split(command.replace("OLD_RUN", str(self.folder)))[1:]
            if not {"--plan", "--search", "--from-torchtitan", "--from-litgpt"} & set(words):
                words.append("--print-config")
            (self.folder / "run.toml").unlink(missing_ok=True)
            if "--from-torchtitan" not in words and "--from-litgpt" not in words:
                (self.folder / "run.toml").write_text("[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n"
                                                      "[training]\nseq_len = 64\n")
            code, out, log = self.run_here(PRETRAIN, *words)
            self.assertEqual(code, 3 if "--from-litgpt" in words else 0, command + out + log)


if __name__ == "__main__":
    main()
