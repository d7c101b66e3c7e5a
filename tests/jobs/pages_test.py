#!/usr/bin/env python3
"""The commands of the pages for people: each program and script exists and has the options, each key exists, and submit.sh and
bringup.sh take their commands (--dry-run)."""
import functools
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
BIN = pathlib.Path(os.environ["ARGOSY_BIN"])
JOBS = SOURCE / "jobs"
PAGES = ("README.md", "jobs/README.md", "jobs/CLUSTER.md", "jobs/FAILURES.md", "jobs/WHY_SLOW.md", "jobs/REPORTS.md",
         "configs/ARRIVING.md", "configs/README.md", "configs/FLOAT8.md", "configs/expected/README.md")
PROGRAMS = ("pretrain", "prepare-data", "convert-checkpoint", "eval", "nccl-bench", "preflight")
PASSED_ON = {"bringup.sh": ("submit.sh",), "pipeline.sh": ("submit.sh",), "status.sh": ("python/compare_runs.py",),
             "why_slow.sh": ("shell/alternate.sh",), "fabric_ab.sh": ("shell/alternate.sh",)}
COMMAND = re.compile(r"^(?:\./)?(?:(?P<script>(?:\w+/)*\w+\.(?:sh|py))|(?:\S*/)?(?P<program>" + "|".join(PROGRAMS) + r"))(?= |$)(?P<words>.*)")
LAUNCHER = re.compile(r"^(?:(?:jobs/)?mpirun\.sh \w+|mpirun -n \w+) (?!COMMAND)")
THEIRS = {"convert_to_hf.py"}  # scripts of other programs
PLACEHOLDER = re.compile(r"[\w.]*[.]{3}|\[.*?\]")


def commands(page):
    """Yields (script or "", program or "", words) of the code blocks and of the code in sentences."""
    text = re.sub(r" \\\n +", " ", page.read_text())  # a command in two lines
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"^    (\S.*)$", text, re.MULTILINE)
    for line in lines + re.findall(r"`([^`\n]+)`", text):
        match = COMMAND.match(LAUNCHER.sub("", line.split("    #")[0].split(" > ")[0].strip()))
        if match and match["script"] not in THEIRS:
            yield match["script"] or "", match["program"] or "", shlex.split(PLACEHOLDER.sub("", match["words"].replace("\\|", " ")))


def path_of(script):
    """A page names a script from the root, or without the folder of the page."""
    return next((path for path in (SOURCE / script, JOBS / script, SOURCE / "configs" / "expected" / script) if path.is_file()), None)


@functools.lru_cache(None)
def answer(*words):
    done = subprocess.run([BIN / words[0], *words[1:]], capture_output=True, text=True)
    return done.stdout + done.stderr


def keys():
    return set(re.findall(r"^  --(\w+(?:\.\w+)+) ", answer("pretrain", "--help", "all"), re.MULTILINE))


def has_option(script, program, words, option):
    if program:
        subcommand = words[:1] if program == "prepare-data" else []
        return re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", answer(program, *subcommand, "--help")) is not None
    texts = [path_of(name).read_text() for name in (script, *PASSED_ON.get(pathlib.Path(script).name, ()))]
    # A case of a shell's `case`, or an argument of argparse.
    return any(re.search(rf'(?m)^[^#]*(?:[\s|]{option}(?:\)| \||=)|"{option}")', text) for text in texts)


def mistakes(script, program, words):
    """What the command names that does not exist."""
    if script and not path_of(script):
        return [script]
    options = [word.split("=")[0] for before, word in zip(["", *words], words)
               if re.match(r"--?[a-z]", word) and before != "--sbatch"]
    known = {"--" + key for key in keys()}
    return [option for option in options
            if option not in known and ("." in option or not has_option(script, program, words, option))]


class Pages(unittest.TestCase):
    def test_commands_name_what_exists(self):
        number = 0
        for page in PAGES:
            for command in commands(SOURCE / page):
                number += 1
                self.assertEqual(mistakes(*command), [], (page, *command))
        self.assertGreater(number, 60)

    def test_mistakes_are_found(self):
        for command in (("jobs/submit.sh", "", ["c.toml", "--nods", "2"]), ("jobs/sumbit.sh", "", []), ("report.py", "", ["RUN", "--evry=3"]),
                        ("jobs/submit.sh", "", ["c.toml", "--training.stepz", "2"]), ("", "eval", ["--tusks", "x"]),
                        ("", "prepare-data", ["tokenize", "--inputs", "x"]), ("status.sh", "", ["--compare", "RUN", "--formt", "csv"])):
            self.assertEqual(len(mistakes(*command)), 1, command)

    def test_keys_of_the_page_of_arriving_exist(self):
        """Code in sentences that is a key, alone or with a value: `section.key = value`, `key = value`."""
        text, short = (SOURCE / "configs" / "ARRIVING.md").read_text(), {key.rpartition(".")[2] for key in keys()}
        answers = "\n".join(line.split("|")[2] for line in text.splitlines() if line.count("|") >= 3)
        sections = {key.split(".")[0] for key in keys()}
        named = [name for name in re.findall(r"`(\w+\.\w+)(?: = [^`]*)?`", answers) if name.split(".")[0] in sections and not name.endswith(".jsonl")]
        self.assertGreater(len(named), 20)
        self.assertEqual([name for name in named if name not in keys()], [])
        assigned = re.findall(r"(?<![\w.])(\w+_\w+) = ", text)
        self.assertGreater(len(assigned), 4)
        self.assertEqual([name for name in assigned if name not in short], [])

    def test_submit_and_bringup_take_their_commands(self):
        environment = os.environ | {"ARGOSY_SITE": str(JOBS / "site.conf"), "ARGOSY_PLAN": "no", "ARGOSY_RANKS_PER_NODE": "8"}
        found = {(pathlib.Path(script).name, *words) for page in PAGES for script, _, words in commands(SOURCE / page)
                 if script in ("jobs/submit.sh", "jobs/bringup.sh") and words}
        self.assertGreater(len(found), 5)
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "configs").symlink_to(SOURCE / "configs")
            for config in ("run.toml", "CONFIG"):
                (folder / config).write_text((SOURCE / "configs" / "debug_cpu.toml").read_text().replace(
                    "[training]", "[training]\ndataset_path = '/data/tokens.h5'", 1))
            (folder / "tokens.h5").touch()
            (folder / "POINTS").write_text("--optimizer.lr 1e-3\n")
            for name in ("OLD_SWEEP", "outputs/llama3_8b_1node"):
                (folder / name).mkdir(parents=True)
                (folder / name / "points").touch()
            for script, *words in sorted(found):
                words = ["2" if word == "N" else word for word in words]
                done = subprocess.run([JOBS / script, *words, "--dry-run"], env=environment, cwd=folder, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, f"{script} {words}: {done.stderr}")


if __name__ == "__main__":
    unittest.main()
