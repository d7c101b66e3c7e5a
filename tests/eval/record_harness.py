"""Records what lm-evaluation-harness and transformers compute for small tasks, as the oracle of harness_test.py.
usage: record_harness.py FOLDER [TASK ...], with a Python that has lm-eval 0.4.13 and transformers 4.57.6 (CPU). FOLDER gets the
task files, a trained tokenizer.json, and harness.json: the harness's results and, for each sample, its responses. With TASKs,
only their scores are recorded anew, into the harness.json that is there. The model is the one that run.write_model() makes, so
that its weights need not be stored."""
import json
import os
import pathlib
import random
import sys
import tempfile

os.environ.setdefault("ARGOSY_BIN", "")
os.environ.setdefault("ARGOSY_SOURCE", "")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["DISABLE_MULTIPROC"] = "1"

import lm_eval  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
from lm_eval.api.metrics import exact_match_hf_evaluate  # noqa: E402
from lm_eval.filters.extraction import RegexFilter  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from lm_eval.tasks._yaml_loader import load_yaml  # noqa: E402

from harness_tasks import FEWSHOT, PROMPTS, TASKS, TEXTS  # noqa: E402
from run import favour, write_model  # noqa: E402

END = "<|endoftext|>"
MODEL = {"vocabulary": 320, "positions": 128}
OWN = {
    "texts": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
              "metric_list": [{"metric": m} for m in ("word_perplexity", "byte_perplexity", "bits_per_byte")]},
    "choices": {"output_type": "multiple_choice", "doc_to_text": "{{query}}", "doc_to_target": "{{gold}}",
                "doc_to_choice": "{{choices}}", "metric_list": [{"metric": m} for m in ("acc", "acc_norm", "acc_bytes")]},
    "words": {"output_type": "loglikelihood", "doc_to_text": "{{context}}", "doc_to_target": "{{' '+continuation}}",
              "target_delimiter": "", "metric_list": [{"metric": "acc"}, {"metric": "perplexity"}]},
}
# The file of lm_eval/tasks, the split of the task's file, and that of its examples.
PUBLIC = {"hellaswag": ("hellaswag/hellaswag.yaml", "validation", "train"), "piqa": ("piqa/piqa.yaml", "validation", "train"),
          "arc_easy": ("arc/arc_easy.yaml", "test", "train"),
          "winogrande": ("winogrande/default.yaml", "validation", "train"),
          "lambada_openai": ("lambada/lambada_openai.yaml", "test", "train"),  # its file names no split for examples
          "mmlu_anatomy": ("mmlu/default/mmlu_anatomy.yaml", "test", "dev"),
          "boolq": ("super_glue/boolq/default.yaml", "validation", "train"), "openbookqa": ("openbookqa/openbookqa.yaml", "test", "train"),
          "sciq": ("sciq/sciq.yaml", "test", "train"), "wikitext": ("wikitext/wikitext.yaml", "test", None),
          "truthfulqa_mc1": ("truthfulqa/truthfulqa_mc1.yaml", "validation", None),
          "truthfulqa_mc2": ("truthfulqa/truthfulqa_mc2.yaml", "validation", None)}
PROMPTS_KEPT = ("boolq", "openbookqa", "sciq", "wikitext", "truthfulqa_mc1")  # the first of each document
GENERATED = {"gsm8k": ("gsm8k/gsm8k.yaml", "test", "train")}

# The model of GENERATED chooses among these tokens, so that its texts have numbers, marks of answers and stop texts.
ANSWER_TOKENS = ["</s", "#### 1", ">", "ion:", ",", "$", "Quest", "7", " of", " 3", "Question:", "#### ", "12", ".", "\n", "x", " 2", "-"]
ANSWER_ENDS = ["<|im_end|>", "<|eot|>", END]  # special tokens


def byte_tokenizer():
    """The tokenizer `bytes`: a token for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in printable}
    names |= {byte: chr(256 + i) for i, byte in enumerate(b for b in range(256) if b not in names)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE({names[byte]: byte for byte in range(256)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens([END])
    return made, {"eos_token": END}


def trained_tokenizer():
    """A byte-level BPE whose template puts a begin of text before each text."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator(TEXTS, tokenizers.trainers.BpeTrainer(
        vocab_size=MODEL["vocabulary"], special_tokens=["<|begin|>", END], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    made.post_processor = tokenizers.processors.TemplateProcessing("<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    return made, {"bos_token": "<|begin|>", "eos_token": END}


def answer_tokenizer():
    """Bytes, and added tokens. Returns the ids of the tokens that the model may choose as well."""
    made, config = byte_tokenizer()
    made.add_tokens(ANSWER_TOKENS)
    made.add_special_tokens(ANSWER_ENDS)
    return made, config, [made.token_to_id(token) for token in ANSWER_TOKENS + ANSWER_ENDS]


def own_configs(folder):
    for name, config in OWN.items():
        files = {"test": str(folder / f"{name}.jsonl")}
        if name in FEWSHOT:
            files["train"] = str(folder / f"{name}_fewshot.jsonl")
        yield config | {"task": name, "dataset_path": "json", "test_split": "test", "metadata": {"version": 1.0},
                        "fewshot_split": "train" if name in FEWSHOT else None, "dataset_kwargs": {"data_files": files}}


def public_configs(folder, tasks):
    for name, (file, split, examples) in tasks.items():
        files = {split: str(folder / f"{name}.jsonl")}
        if examples:
            files[examples] = str(folder / f"{name}_fewshot.jsonl")
        config = load_yaml(pathlib.Path(lm_eval.__file__).parent / "tasks" / file)
        for key in ("training_split", "validation_split", "test_split"):
            if config.get(key) not in files:
                config[key] = None  # a split without a file
        if config["training_split"] is None and examples:
            config.setdefault("fewshot_split", examples)
        yield config | {"task": name, "dataset_path": "json", "dataset_name": None, "tag": None,
                        "dataset_kwargs": {"data_files": files}}


def evaluate(model, folder, num_fewshot, tasks):
    configs = [config for config in [*own_configs(folder), *public_configs(folder, PUBLIC)]
               if config["task"] in tasks and (num_fewshot == 0 or config["task"] in FEWSHOT)]
    if not configs:
        return {}
    found = lm_eval.simple_evaluate(model=model, tasks=configs, num_fewshot=num_fewshot, log_samples=True,
                                    task_manager=TaskManager(include_defaults=False), batch_size=4)
    metrics = {task: {key: value for key, value in values.items() if "," in key}
               for task, values in found["results"].items()}
    def numbers(response):
        return float(response) if isinstance(response, (int, float)) else [response[0], bool(response[1])]
    samples = {task: [[numbers(response[0]) for response in sample["resps"]]
                      for sample in sorted(lines, key=lambda line: line["doc_id"])]
               for task, lines in found["samples"].items()}
    prompts = {task: [line["arguments"][0][0] for line in sorted(lines, key=lambda line: line["doc_id"])]
               for task, lines in found["samples"].items() if task in PROMPTS_KEPT}
    return {"results": metrics, "higher_is_better": found["higher_is_better"], "versions": found["versions"],
            "n-samples": found["n-samples"], "samples": samples, "prompts": prompts}


def evaluate_generated(model, folder, num_fewshot):
    """With batches of one: in a larger batch a text goes on until all have ended."""
    configs = list(public_configs(folder, GENERATED))
    found = lm_eval.simple_evaluate(model=model, tasks=configs, num_fewshot=num_fewshot, log_samples=True,
                                    task_manager=TaskManager(include_defaults=False), batch_size=1)
    keys = ("target", "resps", "filtered_resps", "filter", "metrics", "exact_match")
    return {"results": {task: {key: value for key, value in values.items() if "," in key}
                        for task, values in found["results"].items()},
            "higher_is_better": found["higher_is_better"], "versions": found["versions"], "n-samples": found["n-samples"],
            "samples": {task: [{key: line[key] for key in keys} | {"context": line["arguments"][0][0],
                                                                   "options": line["arguments"][0][1]} for line in lines]
                        for task, lines in found["samples"].items()}}


def record_generated(folder):
    with tempfile.TemporaryDirectory() as scratch:
        place = pathlib.Path(scratch) / "answers"
        tokenizer, config, favoured = answer_tokenizer()
        recorded = {"model": {"vocabulary": 320, "positions": 420}, "favoured": favoured,
                    "generation_config": {"eos_token_id": [tokenizer.token_to_id("<|eot|>"), 999]}}
        write_model(place, favour(favoured), **recorded["model"])
        (place / "generation_config.json").write_text(json.dumps(recorded["generation_config"]))
        save_tokenizer(tokenizer, config, place)
        (folder / "answers").mkdir(exist_ok=True)
        save_tokenizer(tokenizer, config, folder / "answers")
        model = HFLM(pretrained=str(place), device="cpu", dtype="float32")
        return recorded | {f"fewshot_{count}": evaluate_generated(model, folder, count) for count in (0, 2)}


def random_answers():
    """Texts with what each filter extracts from them and whether that matches a reference, by the harness's functions."""
    numbers = random.Random(3)
    filters = {"strict": RegexFilter(), "flexible": RegexFilter(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", -1)}
    config = load_yaml(pathlib.Path(lm_eval.__file__).parent / "tasks" / GENERATED["gsm8k"][0])
    ignored = config["metric_list"][0]["regexes_to_ignore"]

    def text():
        return "".join(numbers.choice(["#### ", "####", "# ", "1", "20", "-", ".", ",", "$", "\n", "a", "B", " "])
                       for _ in range(numbers.randrange(9)))
    rows = []
    for _ in range(150):
        row = {"text": text(), "reference": text()}
        for name, each in filters.items():
            row[name] = each.apply([[row["text"]]], [])[0][0]
        row |= {"match": bool(exact_match_hf_evaluate([row["text"]], [row["reference"]], ignored, True)["exact_match"])}
        rows.append(row)
    return rows


def generate(model):
    """The text that transformers generates greedily after each prompt."""
    made = []
    for prompt in PROMPTS:
        ids = model.tok_encode(prompt)
        tokens = torch.tensor([ids])
        out = model.model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=40, do_sample=False,
                                   pad_token_id=0, eos_token_id=model.tokenizer.eos_token_id)[0]
        made.append({"prompt": prompt, "ids": ids, "new_ids": out[len(ids):].tolist(),
                     "text": model.tokenizer.decode(out[len(ids):], skip_special_tokens=True)})
    return made


def save_tokenizer(tokenizer, config, folder):
    """Each file ends with a line break, as text files of a repository do."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = config | {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text().rstrip() + "\n")


def record_scores(folder, tasks):
    """{tokenizer: {fewshot_K: what evaluate() returns}, and what generate() returns}."""
    recorded = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, (tokenizer, config) in (("bytes", byte_tokenizer()), ("trained", trained_tokenizer())):
            place = pathlib.Path(scratch) / name
            write_model(place, **MODEL)
            save_tokenizer(tokenizer, config, place)
            if name == "trained":
                save_tokenizer(tokenizer, config, folder)
            model = HFLM(pretrained=str(place), device="cpu", dtype="float32")
            recorded[name] = {f"fewshot_{count}": evaluate(model, folder, count, tasks) for count in (0, 2)}
            recorded[name]["generated"] = generate(model)
    return recorded


def merged(old, new):
    """Entries of dictionaries are merged at each level; other values are the new ones."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return old | {key: merged(old[key], value) if key in old else value for key, value in new.items()}


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(exist_ok=True)
    for name, records in TASKS.items():
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(text)
    chosen, path = sys.argv[2:], folder / "harness.json"
    recorded = {"model": MODEL} | record_scores(folder, chosen or TASKS)
    if chosen:
        recorded = merged(json.loads(path.read_text()), recorded)
    else:
        recorded |= {"answers": record_generated(folder), "answer_texts": random_answers()}
    path.write_text(json.dumps(recorded, indent=1) + "\n")


main()
