#!/usr/bin/env python3
"""Prints the sizes of files and functions in lib/ and apps/, and holds them to limits: check_sizes.py [ROOT]."""
import os
import re
import sys
from pathlib import Path

from check_layers import SOURCES, includes

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_P90_FUNCTION_LINES = 20
# Lines of sources in a wing, and why it has as many. A change that leaves fewer lowers its budget. One that needs more writes here
# what the lines are worth to a user, and what was looked at to remove instead.
BUDGETS = {
    "lib/ground": (3686, "errors, files, text, the one reader of JSON with the checks of its fields; the arithmetic of meshes and slabs. The axes that divide experts are 80: a mesh names them, so that everything that has a mesh knows them. 56 of them are two parts of the shard axis, by which experts stay inside a node of a large mesh, and the degrees that suit mesh and model; looked at instead: a sixth axis (its place is in 60 lists of degrees, and each user of the shard axis would name two), and blocks of neighbours on the shard axis (a cut and a group would number them in two ways)"),
    "lib/platform": (10767, "six wrappers, four of them with a twin for builds without CUDA; the watchdog and collectives. An all-to-all with parts of any size is 75 of the lines, which experts on several ranks need; looked at instead: Sends and Receives by its callers (NCCL has channels between neighbours only, and a rank with no parts would be in no stream of the flight recorder), and a pattern of the shared-memory exchange (its rounds publish equal blocks). The versions from which recorded operations run at once are 7. Communicators that are made before the model takes memory, their limits and their memory are 66; looked at instead: all kinds for every group when it is made (communicators that nothing uses, 240 MiB each). Their number in a recorded world is 40: plans leave them their memory; looked at instead: a formula of the mesh (a second place that knows the groups of the model and its optimizers). The multiprocessors that a product may use are 9, for trials on GPUs. The tree of watchdogs is 250: with a star, rank 0 of 16,384 accepts them all at once, and the kernel drops what it cannot queue; looked at instead: longer limits (tries after a drop are seconds apart, and each costs a start), a first rank of each node (2,048 connections are still more than a kernel queues), and ranks that join rank 0 anew when the one between them dies (the job ends then). Files of arrivals by node, in place of one by rank, are 35: one rank reads 2,048 files after a timeout, where 16,384 ranks looked at 16,384 each; looked at instead: a rank that writes for its node (it is the one that may have stopped). Values that are reduced on the host, without an NCCL communicator of all ranks, and the ranks of a node, are 40. Memory that NCCL has registered, and the channels under way, are 268: 95 give freed parts of segments to tensors of the same size, 75 wrap NCCL's calls; looked at instead: LibTorch's pool with an allocator of its own (nothing promises that its parts have the same offsets on all ranks, and no stand-in of it runs without a GPU), and a registration for every tensor (two MiB each)"),
    "lib/numerics": (16964, "kernels twice, for processors and GPUs; each operation with its backward; the parts of models, which declare all that others need to know of a parameter. OLMo 2 and 3 and Gemma 3 are 750 of the lines: layers that differ, norms at three places, QK-norm over ranks, GeGLU, config.json both ways; looked at instead: one part for both halves of a block (they differ in all but their norms, which are one class now), and the scale of Gemma's scores in six attention kernels (a factor of the rotation has none). FLOPs of a token are 50, which lib/trainer had before. Phi-3 is 140: a head of which a part rotates, longrope; looked at instead: attention split into rotated columns (every kernel of rope takes whole heads), longrope as frequencies in the file of a run (its two lists are config.json's own), and refusals of what transformers cannot read (a user would find out after the export). Products with factors and the orthogonal part of a matrix, also of its slices on several ranks, which Muon needs, are 160; looked at instead: LibTorch's addmm (bf16 at an eighth of the kernels' speed without AVX-512), and linear() with passes for the factors (they round twice, and read every matrix again). That tensors without data choose the attention of a planned GPU is 55, for which lib/tools lost a formula of 25. One copy of a float8 weight for all pieces of its products is 14. That work says which attention only FlashAttention computes is 7: plans with context parallelism were 55 % too fast; looked at instead: a share for each mesh (a window on one GPU is as slow). The largest scores of attention, which QK-clip needs exactly, are 275, of which 115 are a kernel for GPUs and 95 the loop for processors; looked at instead: the log-sum-exp in place of the maximum (it clips heads whose scores are within 9 of the limit, and by too much), maxima from the kernels of attention (LibTorch's give none, and those for processors are 5 builds of two more outputs), and a composition on GPUs for all types (all scores in memory: 8 GB for 32 heads of 8,192 tokens). Experts on one rank are 760: 380 choose them and permute rows, 210 multiply groups of rows, 105 are weights of a gated unit's rows and sums of slots, 65 add products of groups to sums; looked at instead: the composition without the loops, 110 lines less (sort() of a row takes longer than the products of small experts, and sigmoid() has other bits on other numbers of threads), a kernel for the permutation (embedding() is one), and a kernel for groups (a loop over products reaches their speed). Experts as a half of a block are 360 of the lines: their declaration, tape, passes, and what config.json will say of them; looked at instead: experts inside FeedForward (its products are cut over tensor ranks, and cast, which those of experts are not). Mixtral and Qwen3-MoE in config.json, and their presets, are 115: half of the lines refuse impossible models; looked at instead: a member of Family for each key and default (two families then take as many lines, and no third one has the same keys). Experts on GPUs are 635: 260 choose and differentiate, 200 order slots and add them, 60 are weights of a gated unit's rows, the rest arguments and calls; looked at instead: LibTorch's operations (15 launches for a choice, two of them sorts, and a sum of slots of seven times the bytes), a kernel for the permutation (embedding() is one), and counting with atomic operations (the order of slots would change from run to run). A shared expert, which computes while slots travel, is 158: 105 are its part, 30 are slots under way; looked at instead: FeedForward in its place (its products are cut over tensor ranks, which gather rows on the links of the slots), and one more group of the grouped products (it has another width, and all tokens). GLM-4-MoE in config.json is 68: sigmoid scores, groups and shared experts can then be compared with transformers, without latent attention; looked at instead: options of the router in a run's own file (no file of another program would have them). The balance of experts is 345: 110 are three losses' gradients and a choice in turn, 190 what a layer counts and its share of them, 45 the names of biases and what passes on to a half; looked at instead: losses on the logits after the step (every layer's logits would stay for the whole step), and f of a microbatch (the loss then depends on accumulation and mesh). The list of presets, among which that of weights without a description is found, is 13. That products leave multiprocessors to channels is 21"),
    "lib/files": (20252, "three kinds of tokenizers and four forms of data, as other programs have them; checkpoints; conversion, which compares logits. Phi-3's fused matrices are 50 of the lines; looked at instead: a source and a target of their own around the others (more lines, and a second place for every name). What one rank tells others about token files and a step's manifest, and slabs that are verified as they are loaded, are 150: ranks open the files that they read from, once; looked at instead: a library of serialization (one more for two structures), and the manifest in memory that a node's ranks share (parsing it takes 0.08 s). Cuts over several axes together, which experts need, are 130; looked at instead: one cut for each axis (its chunks are others where the rows have a rest), and slabs in the manifest (56 million for 405B on 16,384 ranks). A tensor for each expert is 60; looked at instead: stacks split by a source of their own (the target would need the inverse of it, and faults would name no tensor of the file). That nodes have one index of Megatron is 16. A model's shared expert in inspect is 2. Biases of experts are 107, of which 91 serve GLM's files, which have them, and say where transformers would choose others: each form keeps their type, and an export that would be another model is refused; looked at instead: biases as parameters (every list of them would exclude these from norms, optimizers, casts and Hugging Face's names). PyTorch's files are 2380: 670 the values of pickles and their reader, 710 zips and tensors with any strides, 500 distributed checkpoints of any mesh, 500 their writer; looked at instead: LibTorch's reader of pickles (it knows TorchScript's classes only, trusts its input and reads whole tensors), and a library for zips (none gives places of stored entries inside a file). The models of TorchTitan, Meta and pytorch_model.bin are 1300: 420 are the pieces of which one format's tensors are made of another's, in place of a source and a writer of Hugging Face's rows, 360 TorchTitan's names of all versions with their optimizer, 260 its folders and what they say of a run, 320 files of torch.save; looked at instead: a source for each kind of row (each would need its inverse for a writer), and names by date (a checkpoint has none). Megatron's folders are 422, of which 95 compare the run's arguments with the model, since no shape shows a rotary base; looked at instead: the table of Hugging Face's names with more columns (fused rows in groups, stacks and padding fit none of them), and a model made of the arguments (their names change between versions, and half of the folders have none). Conversations are 1675: 1,150 render the tokenizer's own chat template and say where each character comes from, 320 find the turns of assistants and keep special tokens out of messages, 120 read the records, 70 are special tokens of each form of tokenizer; looked at instead: a table of known forms by marks in the template's text (Qwen3's thoughts, Llama's dates and Gemma's system message are programs, and each fine-tune changes its own: what differs would differ in silence), and known templates by their digests (a line break more, and a template is unknown); 111 are the arguments of Megatron and the padding of its vocabulary that no shape shows, and limits on what places of a pickle may share; looked at instead: limits on single dims, fields and names alone (a list of chunks that many tensors share is still read for each of them). Saying what a folder of another program lacks, comparing Meta's parameters with the given model, warnings of one rank alone, and reading the rows of rotary pairs once are 104; looked at instead: warnings in the result (those before an error are lost), and a buffer for each piece (twice the bytes)"),
    "lib/trainer": (22286, "parallelism and its schedules, the step, metrics and diagnosis, files of other programs, saving. Sets of parameters with shard axes of their own are 140 of the lines, which experts need; looked at instead: collectives of all sets of a unit in one operation (a set without shards then hides in it, and sums of one set wait for the other's reduction). Optimizers behind an interface are 105; looked at instead: moments by name in the saving and the plan, which every new optimizer would have to enter. Lists of tables with any columns, and groups of parameters, are 135; looked at instead: two more kinds of lists beside the mixture's. Muon is 680: 330 of them make matrices whole on their owners and serve any optimizer that needs whole matrices, 90 translate TorchTitan's groups and check keys; looked at instead: an all-gather of every matrix on every rank (no owners and no exchange, but each rank then repeats all steps: 8 to 512 times the work), and one owner for all replicas (three lines less, but it sends a matrix once to each replica). Sharing large matrices among tensor ranks is 130 more: Muon's update of 405B on 4,096 GPUs takes 0.16 s instead of 0.87 s; looked at instead: sharing every matrix above the mean (20 lines less, but 405B on 512 GPUs becomes slower), and slices over all ranks (any number of them, but then A travels between nodes). QK-clip is 243, of which 40 watch attention; looked at instead: scores that the model keeps (every part of it would carry them, and evaluation too), and one number for exact scores and bounds without min(log-sum-exp, limit) (it would depend on how a ring divides the keys). The choice of CUDA graphs by mesh, nodes and versions is 110: graphs with messages hang under an older NCCL or driver; looked at instead: a check of the configuration (it knows neither), and a choice in RankContext (async tensor parallelism is chosen after it). The comparison of the ranks' libraries is 18: products follow from them; looked at instead: timed algorithms and a broadcast of each choice (600 lines that 280e4032 removed). Groups opened before the units, those of optimizers too, and their memory in the log, are 92; looked at instead: a dry step that finds the groups (a second at every start, on every rank). A save's copy from a GPU beside the next passes is 51: it blocks 0.2 s for 8B on 8 GPUs; looked at instead: a copy on the GPU (its memory is full), and the wait inside of the Step (it knows no save). Channels in whole clusters are 13. Files that rank 0 or the first rank of a node reads for the others are 190: a start of 16,384 ranks with 1,000 token files opens 20,000 files in place of 66 million; looked at instead: all ranks with what rank 0 has found (a rank may have paths of its own, to equal contents). Saves of parameters with such cuts are 56; looked at instead: one grid for all models (older programs would refuse the steps of dense ones). That graphs are off with experts, and that eight bits leave them alone, is 20: a run says both, and a plan refuses what a run refuses. What a plan takes for the rank with the most tokens is 33; looked at instead: a factor of the finished plan (the memory is then largest at another moment, and the all-to-alls grow by something else). Experts divided over ranks are 178, of which 3 tell their number to the mesh, so that one error names the degrees that suit both: 150 send rows to the ranks of their experts and back; looked at instead: a message for each expert (no order to restore, but as many messages as experts). Owners of parts of a stack of experts are 155: a whole stack went to one rank, so Qwen3-30B-A3B kept 144 of 512 ranks at work, and ranks that hold whole experts sent them; looked at instead: ranks that update their own experts without the exchange (replicas would all do the same work). Slots that are under way while the rank computes are 12. The balance of experts is 377, of which 7 read figures without tensors: 190 move biases and keep loads by the counts of all ranks, 85 are figures in metrics, log and TensorBoard, 60 save and load both, 35 are keys; looked at instead: counts in a reduction of their own (one more wait of the host in each step), and biases of a stage on its ranks alone (they would need cuts, and the metrics of rank 0 another exchange). The options of a step have a file of their own, which is 20: options.cpp had 410 lines. That waits for the exchange of rows have a name of their own is 7; looked at instead: the axes of the group (advice on them is about other collectives). What is wrong with experts, in words, is 285; looked at instead: rules of single steps (chance leaves experts without tokens there), and rules in the table of the diagnosis (its rules are shares of the time, and know no layers). Whether a command line asks for text alone is 13; looked at instead: parsing it before MPI starts (every rank would read the file twice). That a run goes on from a checkpoint that knows no place in this program's data, from a sample that the user names, is 33. A key for the first tokens of documents, and words of other trainers for loss masks, are 22; looked at instead: an option of prepare-data (Megatron's files are read as they are). Memory that NCCL has registered, and products that leave multiprocessors, are 50. Tokens that a checkpoint of another program does not know, the step that rank 0 chooses for all, and why states are missing are 49; looked at instead: tokens from the rank's count times the ranks (whether context parallelism divided it is not saved)"),
    "lib/tools": (15967, "the plan, the tasks of lm-evaluation-harness, collectives measured, the checks of nodes. Memory, links and programs in words are 100; looked at instead: one recorded layer that is repeated (its memory depends on what is gathered before and after it). Large steps from small ones, tables of collectives made with the plan, and casts tried on several threads, are 180: a search for 405B with 16 million tokens a step ends, in a fifteenth of the memory; looked at instead: fewer meshes (the best had 32 stages). Power, the slowest rank, multiprocessors that collectives hold, NCCL's memory and launches by the host are 151: plans of published runs on three other kinds of GPUs are within 13 %; looked at instead: a share for each kind (nothing then says what a kind without a run reaches). Collectives timed beside products are 234: they say what limits of channels and multiprocessors are worth on a cluster; looked at instead: two programs at the same time (nothing says when both run), and LibTorch's products (the room would need it). Plans of deep models from shallow ones are 114, in whole periods of layers with experts: a search takes half of its time. All-to-alls of experts among the collectives of a plan, and the imbalance that it states, are 24; looked at instead: a table of their own (the same columns). Degrees that divide experts are 21 of the search. The waits for all-to-alls, and what they would be with nothing beside them, are 98; looked at instead: the seconds of the links as the second number (it leaves out what waits behind them)"),
    "apps": (1993, "six executables: the command line, and the order of the parts. Two options of nccl-bench are 3. The pre-flight opens token files only where ranks differ in their paths. Figures of experts go from the step to the metrics in one. Answers of pretrain without MPI are 10; looked at instead: the same in run_program() of ranks (it knows no command line). --assets, in two executables, is 21. The chat template beside a tokenizer, in the options and their help, is 4; looked at instead: opening it with the tokenizer (evaluation would read it, too)"),
}
FEW_LINES = 30
LONG_ON_PURPOSE = {"lib/trainer/config/fields.cpp"}  # a table: one line for each key

# clang-format puts the head of a function at the margin of its class or file, and its last brace as well.
NOT_A_FUNCTION = re.compile(r"(namespace|class|struct|enum|union|extern|using|template|friend|#|//|\}|.* = \{$)")
CLASS = re.compile(r"(?:template .*>\s)?(class|struct|union) [^;]*$")


def function_lengths(lines, before=0):
    """Yields (line of the head, number of lines) of each function, `lines` being those of a file after the first `before`, or
    of a class's body at the margin."""
    head, end_of_class = None, 0
    lines = [re.sub(r"\s*//.*", "", line) for line in lines]
    for number, line in enumerate(lines, 1):
        if number <= end_of_class:
            continue
        if head is None and CLASS.match(line):
            begin = next((i for i in range(number, len(lines) + 1) if lines[i - 1].endswith("{")), len(lines))
            end_of_class = next((i for i in range(begin, len(lines) + 1) if lines[i - 1].startswith("}")), begin)
            body = [text[4:] if text.startswith("    ") else "" for text in lines[begin:end_of_class - 1]]
            yield from function_lengths(body, before + begin)
            continue
        if head is None and line[:1].strip() and not NOT_A_FUNCTION.match(line):
            head = number
        if head is not None and line.startswith("}"):
            if any("(" in text for text in lines[head - 1:number]):
                yield before + head, number - head + 1
            head = None
        elif head is not None and line.endswith(";") and not any("{" in text for text in lines[head - 1:number]):
            head = None  # a declaration
        elif head is not None and (line.endswith(";") or line.endswith("}")) and not line.startswith(" "):
            if line.endswith("}"):
                yield before + head, number - head + 1
            head = None


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0


def single_user_headers(root, texts):
    """Headers of lib/ that no file includes besides their own source and at most one other, and no test."""
    users = {}
    for top in ("lib", "apps", "tests"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCES:
                for header in {own for _, own, _ in includes(path) if own}:
                    users.setdefault(header, set()).add(path.relative_to(root).with_suffix("").as_posix())
    found = []
    for path in texts:
        if path.suffix == ".h" and root / "lib" in path.parents:
            header = "/".join(path.relative_to(root / "lib").parts[1:])
            others = users.get(header, set()) - {path.relative_to(root).with_suffix("").as_posix()}
            if len(others) <= 1 and not any(user.startswith("tests/") for user in others):
                found.append(header)
    return found


def measure(root):
    """Returns (the report's lines, the violations)."""
    texts = {path: path.read_text() for top in ("lib", "apps") for path in sorted((root / top).rglob("*"))
             if path.suffix in SOURCES}
    files = {path.relative_to(root).as_posix(): text.count("\n") for path, text in texts.items()}
    functions = {f"{path.relative_to(root).as_posix()}:{head}": length for path, text in texts.items()
                 for head, length in function_lengths(text.split("\n"))}
    file_p90, function_p90 = percentile(files.values(), 0.9), percentile(functions.values(), 0.9)
    small = sum(lines < FEW_LINES for lines in files.values())
    headers = [name for name in files if name.startswith("lib/") and name.endswith(".h")]
    single = single_user_headers(root, texts)
    report = [f"files: {len(files)}, lines p50 {percentile(files.values(), 0.5)}, p90 {file_p90}, "
              f"max {max(files.values(), default=0)}; {small} under {FEW_LINES} lines",
              f"functions: {len(functions)}, lines p50 {percentile(functions.values(), 0.5)}, p90 {function_p90}, "
              f"max {max(functions.values(), default=0)}",
              f"headers of lib/: {len(headers)}, of which {len(single)} have at most one user and no test"]
    violations = [f"{name}: {lines} lines; split it before {MAX_FILE_LINES}" for name, lines in files.items()
                  if lines > MAX_FILE_LINES]
    violations += [f"{place}: a function of {length} lines; split it before {MAX_FUNCTION_LINES}"
                   for place, length in functions.items()
                   if length > MAX_FUNCTION_LINES and place.split(":")[0] not in LONG_ON_PURPOSE]
    if function_p90 > MAX_P90_FUNCTION_LINES:
        violations.append(f"{function_p90} lines in the 90th percentile of functions; the limit is {MAX_P90_FUNCTION_LINES}")
    for wing, (budget, _) in BUDGETS.items():
        used = [lines for name, lines in files.items() if name.startswith(wing + "/")]
        report.append(f"{wing}: {sum(used)} lines in {len(used)} files, of {budget} lines")
        if sum(used) > budget:
            violations.append(f"{wing}: {sum(used)} lines; its budget is {budget}: remove some, or give the reason in BUDGETS")
    wings = tuple(f"{wing}/" for wing in BUDGETS)
    violations += [f"{name}: not in a wing that BUDGETS names" for name in files if not name.startswith(wings)]
    return report, violations


def check(root):
    return measure(root)[1]


def main():
    report, violations = measure(Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["ARGOSY_SOURCE"]))
    print("\n".join(report + violations))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
