"""eval against lm-evaluation-harness and transformers, whose results record_harness.py recorded in harness/."""
import json
import math
import pathlib
import unittest

from run import EvalTest, favour, write_model

HARNESS = pathlib.Path(__file__).resolve().parent / "harness"
RECORDED = json.loads((HARNESS / "harness.json").read_text())
READERS = {"hellaswag": "hellaswag", "piqa": "piqa", "arc_easy": "arc", "winogrande": "winogrande", "lambada_openai": "lambada",
           "mmlu_anatomy": "mmlu", **{name: name for name in ("boolq", "openbookqa", "sciq", "wikitext", "truthfulqa_mc1",
                                                               "truthfulqa_mc2")}}
TOLERANCE = 1e-6


class Harness(EvalTest):
    environment = {"CUDA_VISIBLE_DEVICES": ""}

    def evaluate_all(self, recorded, *more):
        """{task: results} of the tasks that were recorded, and {task: samples}. A task with examples has a run of its own."""
        write_model(self.model, **RECORDED["model"])
        found, samples = {}, {}
        for tasks in self.runs(recorded):
            names = ",".join(f"{READERS[task]}={HARNESS / task}.jsonl" if task in READERS else str(HARNESS / f"{task}.jsonl")
                             for task in tasks)
            examples = ["--num-fewshot", 2, "--fewshot-file", HARNESS / f"{tasks[0]}_fewshot.jsonl"]
            results, _ = self.evaluate(names, *more, "--log-samples", *(examples if len(tasks) == 1 else []))
            for task in tasks:
                found[task] = {key: results[key][task] for key in ("results", "higher_is_better", "versions", "n-samples", "n-shot")}
                lines = (self.folder / f"samples_{task}.jsonl").read_text().splitlines()
                samples[task] = [json.loads(line) for line in lines]
        return found, samples

    @staticmethod
    def runs(recorded):
        tasks = list(recorded["results"])
        return [tasks] if "texts" in tasks else [[task] for task in tasks]

    def compare(self, recorded, *more):
        found, samples = self.evaluate_all(recorded, *more)
        for task, expected in recorded["results"].items():
            with self.subTest(task):
                values = found[task]["results"]
                self.assertLessEqual(set(expected), set(values))
                for key, value in expected.items():
                    self.compare_value(key, values[key], value)
                for key in ("versions", "n-samples"):
                    self.assertEqual(found[task][key], recorded[key][task])
                directions = recorded["higher_is_better"][task]
                self.assertEqual({key: found[task]["higher_is_better"][key] for key in directions}, directions)
                self.compare_samples(samples[task], recorded["samples"][task])
                prompts = recorded["prompts"].get(task)
                if prompts:
                    self.assertEqual([line["arguments"]["gen_args_0"]["arg_0"] for line in samples[task]], prompts)

    def compare_value(self, key, found, expected):
        """Perplexities and their errors are compared as likelihoods: the harness sums these in fp32."""
        if isinstance(expected, str) or isinstance(found, str):
            return self.assertEqual(found, expected, key)
        if "perplexity" in key:
            found, expected = math.log(found), math.log(expected)
        self.assertAlmostEqual(found, expected, delta=TOLERANCE * max(1, abs(expected)), msg=key)

    def compare_samples(self, lines, expected):
        self.assertEqual([line["doc_id"] for line in lines], list(range(len(expected))))
        for line, responses in zip(lines, expected):
            self.assertEqual(len(line["filtered_resps"]), len(responses))
            for found, response in zip(line["filtered_resps"], responses):
                likelihood, greedy = response if isinstance(response, list) else (response, None)
                if greedy is not None:
                    self.assertEqual(found[1], str(greedy), line["arguments"])
                value = float(found[0] if greedy is not None else found)
                self.assertAlmostEqual(value, likelihood, delta=TOLERANCE * max(1, abs(likelihood)), msg=line["arguments"])

    def test_bytes(self):
        self.compare(RECORDED["bytes"]["fewshot_0"], "--tokenizer", "bytes")

    def test_bytes_with_examples(self):
        self.compare(RECORDED["bytes"]["fewshot_2"], "--tokenizer", "bytes")

    def test_trained_tokenizer(self):
        """A template's begin of text, and tokens that cross the border between a context and its continuation."""
        self.compare(RECORDED["trained"]["fewshot_0"], "--tokenizer", HARNESS)

    def test_trained_tokenizer_with_examples(self):
        self.compare(RECORDED["trained"]["fewshot_2"], "--tokenizer", HARNESS / "tokenizer.json")

    def test_generated_answers(self):
        self.assert_generated_answers()

    def assert_generated_answers(self):
        """gsm8k, in full: contexts, texts after stop handling, answers of each filter, metrics. The model ends texts in each of
        the ways that end one, and 2 examples do not fit into it."""
        recorded = RECORDED["answers"]
        write_model(self.model, favour(recorded["favoured"]), **recorded["model"])
        (self.model / "generation_config.json").write_text(json.dumps(recorded["generation_config"]))
        common = [f"gsm8k={HARNESS / 'gsm8k.jsonl'}", "--tokenizer", HARNESS / "answers", "--log-samples"]
        side_by_side = {0: ["--batch-tokens", 40], 2: ["--batch-size", 3]}  # all 8 in the end, and 3 texts at once
        for count, num_cut in (0, 1), (2, 6):
            examples = ["--num-fewshot", 2, "--fewshot-file", HARNESS / "gsm8k_fewshot.jsonl"] if count else []
            results, _ = self.evaluate(*common, *examples, *side_by_side[count])
            expected = recorded[f"fewshot_{count}"]
            with self.subTest(count):
                self.assertEqual(results["results"]["gsm8k"], {"alias": "gsm8k"} | expected["results"]["gsm8k"])
                for key in ("higher_is_better", "versions", "n-samples"):
                    self.assertEqual(results[key], expected[key])
                self.assertEqual(results["n-cut"]["gsm8k"], num_cut)
                lines = (self.folder / "samples_gsm8k.jsonl").read_text().splitlines()
                self.assertEqual(len(lines), len(expected["samples"]["gsm8k"]))
                for line, sample in zip(map(json.loads, lines), expected["samples"]["gsm8k"]):
                    arguments = line["arguments"]["gen_args_0"]
                    self.assertEqual({key: line[key] for key in sample if key in line} |
                                     {"context": arguments["arg_0"], "options": arguments["arg_1"]}, sample)

    def test_generated_answers_need_room(self):
        write_model(self.model, **RECORDED["model"])
        task = ["--model", self.model, "--tasks", f"gsm8k={HARNESS / 'gsm8k.jsonl'}", "--output", self.output, "--tokenizer", "bytes"]
        self.expect_error(*task, parts=["256 tokens", "128 tokens", "--max-new-tokens"])
        self.expect_error(*task[:2], "--tasks", HARNESS / "choices.jsonl", *task[4:], "--max-new-tokens", 5,
                          parts=["--max-new-tokens", "no task generates"])
        results, _ = self.evaluate(task[3], *task[6:], "--max-new-tokens", 5, "--limit", 2)
        self.assertEqual(results["n-tokens"]["gsm8k"], 10)

    def test_stop_texts(self):
        """A text ends before the first of them: text.split(stop)[0] of what transformers generates."""
        write_model(self.model, **RECORDED["model"])
        for case in RECORDED["bytes"]["generated"]:
            text, stops = case["text"], [case["text"][12:14], case["text"][8:11]]
            expected = text
            for stop in stops:
                expected = expected.split(stop)[0]
            done = self.run_program("--model", self.model, "--tokenizer", "bytes", "--generate", case["prompt"], "--max-new-tokens",
                                    len(case["new_ids"]), *(word for stop in stops for word in ("--stop", stop)))
            self.assertEqual(done.stdout, expected + "\n", case)

    def test_end_tokens_of_the_model(self):
        """eos_token_id of generation_config.json, else of config.json; a number or a list."""
        write_model(self.model, **RECORDED["model"])
        case = RECORDED["bytes"]["generated"][0]
        ids = case["new_ids"]

        def write(file, value):
            path = self.model / file
            path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | {"eos_token_id": value}))

        def expect(end):
            size = ids.index(end) if end is not None else len(ids)
            done = self.run_program("--model", self.model, "--tokenizer", "bytes", "--generate", case["prompt"], "--max-new-tokens",
                                    len(ids))
            self.assertEqual(done.stdout, bytes(id for id in ids[:size] if id < 256).decode(errors="replace") + "\n")
        write("config.json", ids[9])
        expect(ids[9])
        write("generation_config.json", [999, ids[5]])
        expect(ids[5])
        write("generation_config.json", None)
        expect(None)
        write("generation_config.json", "x")
        self.expect_error("--model", self.model, "--tokenizer", "bytes", "--generate", "a",
                          parts=["generation_config.json", "eos_token_id", '"x"'])

    def test_generation(self):
        """Greedy: token for token what transformers generates, as text on stdout."""
        write_model(self.model, **RECORDED["model"])
        for tokenizer in ("bytes", "trained"):
            for case in RECORDED[tokenizer]["generated"]:
                done = self.run_program("--model", self.model, "--tokenizer", HARNESS if tokenizer == "trained" else tokenizer,
                                        "--generate", case["prompt"], "--max-new-tokens", len(case["new_ids"]))
                self.assertEqual(done.stdout, case["text"] + "\n", case)

    def test_sampling(self):
        write_model(self.model, **RECORDED["model"])

        def text(*more):
            return self.run_program("--model", self.model, "--tokenizer", "bytes", "--generate", "The captain",
                                    "--max-new-tokens", 20, *more).stdout
        hot = ["--temperature", "1.5"]
        self.assertEqual(text(*hot, "--seed", 1), text(*hot, "--seed", 1))
        self.assertNotEqual(text(*hot, "--seed", 1), text(*hot, "--seed", 2))
        self.assertNotEqual(text(*hot, "--seed", 1), text())
        self.assertEqual(text(*hot, "--top-p", "1e-9"), text(), "only the likeliest token is left")

    def test_published_forms_of_records(self):
        """The forms of the data sets' authors give the scores of Hugging Face's forms."""
        write_model(self.model, **RECORDED["model"])

        def nested(record):
            choices = record["choices"]
            return {"answerKey": record["answerKey"], "question": {
                "stem": record.get("question", record.get("question_stem")),
                "choices": [{"text": text, "label": label} for text, label in zip(choices["text"], choices["label"])]}}

        forms = {"arc_easy": nested, "openbookqa": nested,
                 "boolq": lambda record: {key: record[key] for key in ("question", "passage")} | {"answer": record["label"] == 1},
                 "mmlu_anatomy": lambda record: record | {"answer": "ABCD"[record["answer"]]}}
        theirs = self.folder / "theirs"
        theirs.mkdir()
        for task, form in forms.items():
            records = [json.loads(line) for line in (HARNESS / f"{task}.jsonl").read_text().splitlines()]
            (theirs / f"{task}.jsonl").write_text("".join(json.dumps(form(record)) + "\n" for record in records))
        found = [self.evaluate(",".join(f"{READERS[task]}={folder / task}.jsonl" for task in forms), "--tokenizer", "bytes")[0]["results"]
                 for folder in (theirs, HARNESS)]
        self.assertEqual(set(found[0]), set(forms))
        self.assertEqual(*found)

    def test_a_data_set_without_a_file_says_which_to_bring(self):
        write_model(self.model, **RECORDED["model"])
        self.expect_error("--model", self.model, "--tasks", "hellaswag", "--output", self.output, "--tokenizer", "bytes",
                          parts=['"Rowan/hellaswag", split="validation"', "--tasks hellaswag=hellaswag.jsonl"])

    def test_prompts_with_examples_of_their_own(self):
        write_model(self.model, **RECORDED["model"])
        path = HARNESS / "truthfulqa_mc1.jsonl"
        self.expect_error("--model", self.model, "--tasks", f"truthfulqa_mc1={path}", "--output", self.output, "--tokenizer", "bytes",
                          "--num-fewshot", 2, "--fewshot-file", path, parts=["examples of their own", "--num-fewshot"])

    def test_bad_command_lines(self):
        write_model(self.model, **RECORDED["model"])
        task = HARNESS / "choices.jsonl"
        good = ["--model", self.model, "--tasks", task, "--output", self.output]
        self.expect_error(*good, parts=[f"{task}:1", "--tokenizer PATH|bytes"])
        self.expect_error(*good, "--tokenizer", "bytes", "--num-fewshot", 2, parts=["--num-fewshot 2", "--fewshot-file"])
        self.expect_error(*good[:4], "--output", "-", "--tokenizer", "bytes", "--log-samples", parts=["--log-samples", "stdout"])
        self.expect_error(*good, "--generate", "a", parts=["--generate", "--tasks"])
        self.expect_error("--model", self.model, "--generate", "a", parts=["--tokenizer PATH|bytes"])
        self.expect_error("--model", self.model, "--generate", "a" * 128, "--tokenizer", "bytes", parts=["128 tokens", "is 128"])
        done = self.run_program("--model", self.model, "--generate", "a" * 120, "--tokenizer", "bytes")
        self.assertIn("ends after 8 new tokens", done.stderr)
        write_model(self.folder / "small", vocabulary=256)
        self.expect_error("--model", self.folder / "small", *good[2:], "--tokenizer", "bytes", parts=["257 ids", "256"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
