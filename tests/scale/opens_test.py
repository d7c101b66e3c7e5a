#!/usr/bin/env python3
"""What the ranks of a run ask of the file system: strace counts the calls of each rank that open files and list folders.
opens_test.py [PRETRAIN]: prints the table of README.md for that executable, without judging it.

Ranks 0 and 1 are on one node, 2 and 3 on another. The run saves, and a second one resumes from what it has saved.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BIN, SOURCE = (pathlib.Path(os.environ[name]) for name in ("ARGOSY_BIN", "ARGOSY_SOURCE"))
NUM_FILES = 12
KINDS = {"token file opened": r'openat\([^"]*"[^"]*/data/[^"]*\.h5", (?!.*O_DIRECTORY)',
         "token folder or file listed or looked up": r'(stat\w*|access|readlink)\([^"]*"[^"]*/data[^"]*"|openat\([^"]*"[^"]*/data[^"]*", .*O_DIRECTORY',
         "manifest opened": r'openat\([^"]*"[^"]*checkpoint\.h5", [^)]*O_RDONLY',
         "shard opened": r'openat\([^"]*"[^"]*shard-[^"]*", [^)]*O_RDONLY',
         "step folder or file looked up": r'(stat\w*|access|readlink)\([^"]*"[^"]*/step-[^"]*"',
         "list of a foreign checkpoint opened": r'openat\([^"]*"[^"]*/\.metadata", [^)]*O_RDONLY',
         "file of a foreign checkpoint looked up": r'(stat\w*|access|readlink)\([^"]*"[^"]*\.distcp"',
         "file of a foreign checkpoint opened": r'openat\([^"]*"[^"]*\.distcp"',
         "arrivals": r'\w+\([^"]*"[^"]*/arrivals[^"]*"'}
NODES = (("a", 2), ("b", 2))


def run(folder, program, name, steps, *more):
    trace = folder / name
    trace.mkdir()
    shutil.rmtree(folder / "arrivals", ignore_errors=True)
    (folder / "arrivals").mkdir()
    words = ["sh", "-c", f'exec strace -f -qq -e trace=%file -o {trace}/$OMPI_COMM_WORLD_RANK "$@"', "sh", str(program),
             "--model.flavor", "debugmodel", "--training.dataset_path", folder / "data", "--training.steps", steps,
             "--training.shuffle", "false", "--training.local_batch_size", 1, "--training.seq_len", 64, "--job.dump_folder",
             folder / (name if more else "run"), "--checkpoint.enable", "true", "--checkpoint.interval", 2, *more]
    command = [SOURCE / "jobs" / "mpirun.sh"]
    for index, (node, count) in enumerate(NODES):
        command += [count] if index == 0 else [":", "-n", count]
        command += ["-x", f"SLURMD_NODENAME={node}", *words] if index else ["env", f"SLURMD_NODENAME={node}", *words]
    done = subprocess.run(list(map(str, command)), env=os.environ | {"ARGOSY_ARRIVALS": str(folder / "arrivals")},
                          capture_output=True, text=True, timeout=100)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.returncode}\n{done.stdout}{done.stderr}")
    counts = {}
    for rank in range(sum(count for _, count in NODES)):
        lines = [line for line in (trace / str(rank)).read_text().splitlines() if " = -1 ENOENT" not in line]
        counts[rank] = {kind: sum(bool(re.search(pattern, line)) for line in lines) for kind, pattern in KINDS.items()}
    return counts


def table(title, counts):
    print(f"{title}: calls of rank " + ", ".join(map(str, counts)))
    for kind in KINDS:
        print(f"  {kind}: " + ", ".join(str(each[kind]) for each in counts.values()))


def expect(what, condition):
    if not condition:
        sys.exit(f"not true: {what}")


def judge(first, second, foreign):
    for counts in first, second:
        for rank in counts:
            expect("a rank opens its node's file of arrivals once", counts[rank]["arrivals"] == 1)
            if rank != 0:
                expect("a rank opens the one token file that it reads from", counts[rank]["token file opened"] == 1)
                expect("rank 0 alone looks for files", counts[rank]["token folder or file listed or looked up"] == 1)
    for rank, is_first_of_node in enumerate((True, False, True, False)):
        lists = foreign[rank]["list of a foreign checkpoint opened"]
        lookups, opened = (foreign[rank]["file of a foreign checkpoint " + what] for what in ("looked up", "opened"))
        expect("one rank of each node opens a foreign checkpoint's list", (lists > 0) == is_first_of_node)
        expect("and looks for files that it does not read", (lookups > opened) == is_first_of_node)
        expect("one rank of each node opens the manifest", (second[rank]["manifest opened"] > 0) == is_first_of_node)
        expect("a rank opens its own shard alone", rank == 0 or second[rank]["shard opened"] <= 1)


def main():
    if not shutil.which("strace") or subprocess.run(["strace", "-o", "/dev/null", "true"]).returncode != 0:
        print("skipped: strace cannot trace here")
        return 77
    program = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else BIN / "pretrain")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "data").mkdir()
        subprocess.run([BIN / "prepare-data", "tokenize", "--input", SOURCE / "data" / "tiny.jsonl", "--tokenizer", "bytes", "--output",
                        folder / "data" / "00.h5"], check=True, capture_output=True)
        for number in range(1, NUM_FILES):
            shutil.copy(folder / "data" / "00.h5", folder / "data" / f"{number:02}.h5")
        first = run(folder, program, "first", 2)
        second = run(folder, program, "second", 3)
        subprocess.run([BIN / "convert-checkpoint", folder / "run", folder / "dcp", "--to", "dcp", "--max-shard-size", "500kB"], check=True,
                       capture_output=True)
        foreign = run(folder, program, "foreign", 1, "--checkpoint.initial_load_path", folder / "dcp")
        table(f"a run over {NUM_FILES} token files", first)
        table("its resumption", second)
        table("a run that begins with a folder of torch.distributed.checkpoint", foreign)
        if len(sys.argv) == 1:
            judge(first, second, foreign)
    return 0


if __name__ == "__main__":
    sys.exit(main())
