#!/usr/bin/env python3
"""quickstart_check.py METRICS.jsonl ENTROPY.json UNTRAINED.json BIGRAM.json TRAINED.json: prints a table of what three models
know of the quick start's tasks, and checks that training made the difference. Exits with 3 unless
1. the mean loss of the last steps is below the corpus's bigram entropy,
and, for the forms of verbs (of two, one is right) and the last words of stories (of all words, one is right),
2. the untrained model answers by chance: within two standard errors,
3. the trained model's accuracy is at least 20 points above chance,
4. the bigram model's gain over chance is below half of the trained one's, so that pairs of tokens do not explain it.
ENTROPY.json is what bigram_model.py printed. The last three files are results of `eval`."""
import json
import math
import sys

CHANCE = {"agreement": 0.5, "last_word": 0.0}
KNOWLEDGE = {"agreement": "which form of a verb belongs to a distant subject", "last_word": "which word ends a story"}
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
    lines = [f"| {'model':<9} | {'verbs (chance 0.50)':>19} | {'last words (0.00)':>17} | {'their perplexity':>16} |",
             f"|{'-' * 11}|{'-' * 20}:|{'-' * 18}:|{'-' * 17}:|"]
    for name, results in models.items():
        verbs, words, perplexity = (results[task][metric] for task, metric in COLUMNS)
        verbs, words = (f"{value:.3f} +- {results[task]['acc_stderr,none']:.3f}"
                        for task, value in (("agreement", verbs), ("last_word", words)))
        lines.append(f"| {name:<9} | {verbs:>19} | {words:>17} | {perplexity:>16.4g} |")
    return "\n".join(lines)


def failures(loss, bigram_entropy, models):
    """Conditions are negated as a whole, so that a NaN fails too."""
    if not loss < bigram_entropy:
        yield "the trained model learned no more than pairs of tokens"
    for task, chance in CHANCE.items():
        untrained, bigram, trained = (models[name][task]["acc,none"] - chance for name in ("untrained", "bigram", "trained"))
        if not abs(untrained) <= 2 * models["untrained"][task]["acc_stderr,none"]:
            yield f"the untrained model is more than two standard errors away from chance, so {task} measures something else"
        if not trained >= 0.2:
            yield f"the trained model did not learn {KNOWLEDGE[task]}"
        elif not bigram < trained / 2:
            yield f"the bigram model has half of the trained model's gain over chance in {task}"


def main():
    metrics, entropy, *results = sys.argv[1:]
    models = {}
    for name, path in zip(("untrained", "bigram", "trained"), results, strict=True):
        with open(path) as file:
            models[name] = json.load(file)["results"]
    with open(entropy) as file:
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
