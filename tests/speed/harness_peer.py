"""The peer of compare_harness.py, under a Python that has lm-eval 0.4.13, transformers and PyTorch (CPU).

    harness_peer.py make FOLDER SIZES.json             writes a random Llama for transformers; FOLDER has its tokenizer
    harness_peer.py run MODEL TASK.json BATCH THREADS  prints the results and the times of the evaluation, as JSON"""
import json
import os
import pathlib
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["DISABLE_MULTIPROC"] = "1"

import torch  # noqa: E402


def make(folder, sizes):
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(1)
    # Weights this large give logits far apart, so that rounding does not change the likeliest token.
    LlamaForCausalLM(LlamaConfig(**json.loads(sizes), initializer_range=0.1, tie_word_embeddings=False)).save_pretrained(folder)


def task_config(task):
    """The configuration of lm-evaluation-harness for a task of compare_harness.py."""
    import lm_eval
    from lm_eval.tasks._yaml_loader import load_yaml
    files = {"dataset_path": "json", "dataset_name": None, "tag": None, "task": task["name"],
             "dataset_kwargs": {"data_files": {"test": task["file"], "train": task["file"]}}}
    if task["name"] == "choices":
        return files | {"output_type": "multiple_choice", "doc_to_text": "{{context}}", "doc_to_target": "{{gold}}",
                        "doc_to_choice": "{{choices}}", "metric_list": [{"metric": "acc"}], "test_split": "test"}
    config = load_yaml(pathlib.Path(lm_eval.__file__).parent / "tasks/gsm8k/gsm8k.yaml") | files
    config["generation_kwargs"]["max_gen_toks"] = task["max_new_tokens"]
    return config


def run(model, task, batch, threads):
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    torch.set_num_threads(int(threads))
    task = json.loads(task)
    held = HFLM(pretrained=model, device="cpu", dtype="float32")
    config, manager = task_config(task), TaskManager()
    wall, cpu = time.monotonic(), time.process_time()
    found = lm_eval.simple_evaluate(model=held, tasks=[config], num_fewshot=0, log_samples=True, task_manager=manager,
                                    batch_size=int(batch), bootstrap_iters=0)
    seconds = {"wall": time.monotonic() - wall, "cpu": time.process_time() - cpu}
    lines = sorted((line for line in found["samples"][task["name"]] if line["filter"] in ("none", "strict-match")),
                   key=lambda line: line["doc_id"])
    responses = [[response[0] for response in line["resps"]] for line in lines]
    print(json.dumps({"seconds": seconds, "responses": responses}, default=float))


if __name__ == "__main__":
    {"make": make, "run": run}[sys.argv[1]](*sys.argv[2:])
