#!/usr/bin/env python3
"""quickstart_check.py METRICS.jsonl CORPUS.json UNTRAINED.json BIGRAM.json TRAINED.json: prints a table of what three models
know of the quick start's tasks, and checks that training made the difference. Exits with 3 unless
1. the mean loss of the last steps is below the corpus's bigram entropy,
2. the untrained model chooses verbs' forms by chance: within two standard errors of a half,
3. the trained model's accuracy there is at least 20 points above chance,
4. the bigram model's gain over chance is below half of the trained one's, so that pairs of tokens do not explain it.
The last three files are results of `eval`."""
import json
import math
import sys

CHANCE = 0.5  # of two forms of a verb, one is right
COLUMNS = [("agreement", "acc,none"), ("last_word", "acc,none"), ("last_word", "perplexity,none")]


def final_loss(path):
    """NaN if a loss is null, as metrics.jsonl writes one that is not finite."""
    with open(path) as file:
        losses = [json.loads(line)["loss"] for line in file]
    losses = [math.nan if loss is None else loss for loss in losses]
    if not losses:
        sys.exit("quickstart: pretrain wrote no step to " + path)
    return sum(losses[-10:]) / len(losses[-10:])


def table(models):
    lines = [f"| {'model':<9} | {'verbs (chance 0.50)':>19} | {'last words':>10} | {'their perplexity':>16} |",
             f"|{'-' * 11}|{'-' * 20}:|{'-' * 11}:|{'-' * 17}:|"]
    for name, results in models.items():
        verbs, words, perplexity = (results[task][metric] for task, metric in COLUMNS)
        error = results["agreement"]["acc_stderr,none"]
        lines.append(f"| {name:<9} | {f'{verbs:.3f} +- {error:.3f}':>19} | {words:>10.3f} | {perplexity:>16.4g} |")
    return "\n".join(lines)


def failures(loss, bigram_entropy, models):
    """Conditions are negated as a whole, so that a NaN fails too."""
    untrained, bigram, trained = (models[name]["agreement"]["acc,none"] - CHANCE for name in ("untrained", "bigram", "trained"))
    error = models["untrained"]["agreement"]["acc_stderr,none"]
    if not loss < bigram_entropy:
        yield "the trained model learned no more than pairs of tokens"
    if not abs(untrained) <= 2 * error:
        yield "the untrained model is more than two standard errors away from chance, so the task measures something else"
    if not trained >= 0.2:
        yield "the trained model did not learn which form of a verb belongs to a distant subject"
    elif not bigram < trained / 2:
        yield "the bigram model has half of the trained model's gain over chance"


def main():
    metrics, corpus, *results = sys.argv[1:]
    models = {}
    for name, path in zip(("untrained", "bigram", "trained"), results, strict=True):
        with open(path) as file:
            models[name] = json.load(file)["results"]
    with open(corpus) as file:
        bigram_entropy = json.load(file)["bigram_entropy"]
    loss = final_loss(metrics)
    print(table(models))
    numbers = f"the mean loss of the last steps is {loss:.4f}, the corpus's bigram entropy {bigram_entropy:.4f}"
    found = list(failures(loss, bigram_entropy, models))
    if found:
        print(f"quickstart: FAILED: {'; '.join(found)} ({numbers})", file=sys.stderr)
        sys.exit(3)
    print(f"quickstart: passed: {numbers}")


main()
