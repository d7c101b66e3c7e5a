"""A file of a checkpoint, a Hugging Face folder or a token file is damaged at random. A program that reads it ends with
the exit code 2 or 3 and one message, or its output is that of the sound file: the damage lies in bytes without meaning.
Hugging Face's files have no checksums, so there a changed weight shows only as another output."""
import os
import pathlib
import random
import re
import shutil
import subprocess

import run

BIN = pathlib.Path(os.environ["ARGOSY_BIN"])
FORMS = ("sharded", "full", "hugging_face", "tokens")
LIMIT_SECONDS = 60
ERROR = re.compile(r"^(?:convert-checkpoint|prepare-data): error.*", re.MULTILINE)


class Trials:
    def __init__(self, shared):
        self.shared = shared
        tokens, step = shared / "tokens" / "tiny.h5", shared / "run" / "checkpoint" / "step-00000002"
        tokens.parent.mkdir()
        run.PretrainTest.tokenize(run.SOURCE / "data" / "tiny.jsonl", tokens)
        settings = {"training.dataset_path": tokens, "job.dump_folder": shared / "run", "training.seq_len": 32,
                    "training.local_batch_size": 2, "training.steps": 2, "checkpoint.enable": True}
        done = run.Job(2, run.words(settings)).finish()
        assert done.code == 0, str(done)
        shutil.copytree(step, shared / "sharded")
        for form, to in (("full", "full"), ("hugging_face", "hf")):
            place = shared / form / "model.h5" if to == "full" else shared / form
            place.parent.mkdir(exist_ok=True)
            done = program("convert-checkpoint", step, place, "--to", to)
            assert done.returncode == 0, done.stderr
        self.expected = {form: self.output_of(form, shared / form, shared / f"expected-{form}") for form in FORMS}
        for form, (code, output, text) in self.expected.items():
            assert code == 0 and output, f"{form}: {text}"

    def output_of(self, form, folder, place):
        """Exit code, the bytes of the output by the file's name, and stderr."""
        if form == "tokens":
            done = program("prepare-data", "--verify", folder / "tiny.h5")
            return done.returncode, re.sub(r'"file":"[^"]*"', "", done.stdout), done.stderr
        source = folder / "model.h5" if form == "full" else folder
        done = program("convert-checkpoint", source, place, "--to", "hf")
        output = {path.name: path.read_bytes() for path in sorted(place.glob("*"))} if place.is_dir() else {}
        return done.returncode, output, done.stderr

    def run(self, seed, folder):
        chance = random.Random(seed)
        form = chance.choice(FORMS)
        shutil.copytree(self.shared / form, folder / form)
        files = sorted(path for path in (folder / form).rglob("*") if path.is_file())
        how = damage(chance, files)
        code, output, text = self.output_of(form, folder / form, folder / "output")
        where = f"{form}: {how}: exit code {code}\n{text}"
        if code == 0:
            if form == "hugging_face" and output != self.expected[form][1]:
                return f"{form}: another model"
            assert output == self.expected[form][1], where
            return f"{form}: no harm"
        assert code in (2, 3), where
        assert len(ERROR.findall(text)) == 1, where
        assert form == "tokens" or output == {}, f"something was left behind: {where}"
        return f"{form}: exit code {code}"


def program(name, *words):
    return subprocess.run([BIN / name, *map(str, words)], capture_output=True, text=True, errors="replace",
                          timeout=LIMIT_SECONDS, stdin=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})


def damage(chance, files):
    """Changes one of the files, and says how."""
    path = chance.choice(files)
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data))
    kind = chance.choice(["bit", "byte", "zeros", "truncated", "longer", "removed", "moved", "swapped", "emptied"])
    if kind == "bit":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "byte":
        data[at] = chance.randrange(256)
    elif kind == "zeros":
        length = min(len(data) - at, chance.choice([1, 8, 512, 4096, 100000]))
        data[at:at + length] = bytes(length)
    elif kind == "truncated":
        del data[at:]
    elif kind == "longer":
        data += chance.randbytes(chance.choice([1, 512, 100000]))
    elif kind == "moved":  # a part of the file lies elsewhere, as after a lost block
        length = chance.choice([1, 8, 512, 4096])
        data[at:at + length], data[:length] = data[:length], data[at:at + length]
    elif kind == "emptied":
        data = bytearray()
    elif kind == "removed":
        path.unlink()
        return f"{path.name} removed"
    elif kind == "swapped":
        other = chance.choice(files)
        first, second = path.read_bytes(), other.read_bytes()
        path.write_bytes(second)
        other.write_bytes(first)
        return f"{path.name} and {other.name} swapped"
    path.write_bytes(data)
    return f"{path.name} {kind} at byte {at}"
