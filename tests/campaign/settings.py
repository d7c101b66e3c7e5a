"""Wrong settings, each a row of a table: every ends with the exit code 2 and one message that names the setting, and
leaves nothing behind. `python3 settings.py TABLE.md` runs all rows and writes the table with the messages."""
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parent.parent / "pretrain"))
import run

LIMIT_SECONDS = 60
ERROR = re.compile(r"^pretrain: error.*", re.MULTILINE)
SETTING = re.compile(r"^(?:# )?(\w+) (?:= (.*)|is unset: .*)$")
HUGE = "1" + 40 * "0"

# {setting: value} and what the message must name, beside the settings of a sound run.
ROWS_ABOUT_SEVERAL = [
    ({"training.dtype": "float64"}, "float64"),
    ({"training.mixed_precision_param": "float64"}, "float64"),
    ({"optimizer.state_dtype": "float64"}, "optimizer.state_dtype"),
    ({"training.dtype": "bfloat16", "training.mixed_precision_param": "float32"}, "training.dtype"),
    ({"training.mixed_precision_param": "float16"}, "training.mixed_precision_param"),
    ({"training.global_batch_size": 7}, "multiple of training.local_batch_size"),
    ({"training.local_batch_size": 3, "parallelism.pipeline_parallel_microbatch_size": 2}, "microbatch_size"),
    ({"parallelism.pipeline_parallel_layers_per_stage": "1,2,3"}, "layers_per_stage"),
    ({"parallelism.pipeline_parallel_layers_per_stage": "5"}, "adds up to 5 layers"),
    ({"lr_scheduler.warmup_steps": 9, "lr_scheduler.total_steps": 8}, "lr_scheduler.warmup_steps"),
    ({"loss_spike.window": 4}, "loss_spike"),
    ({"loss_spike.loss_zscore": 6, "loss_spike.window": 4, "loss_spike.warmup_steps": 5}, "loss_spike.warmup_steps"),
    ({"checkpoint.keep_latest_k": 1, "checkpoint.enable": "true"}, "checkpoint.keep_latest_k"),
    ({"checkpoint.keep_every": 3, "checkpoint.interval": 2}, "checkpoint.keep_every"),
    ({"checkpoint.export_dtype": "bfloat16"}, "checkpoint.export_dtype"),
    ({"checkpoint.load_step": 4}, "checkpoint.load_step"),
    ({"checkpoint.load_step": 4, "checkpoint.enable": "true"}, "checkpoint.load_step = 4 is not in"),
    ({"checkpoint.load_only": "true"}, "checkpoint.load_only"),
    ({"checkpoint.initial_load_in_hf": "true"}, "initial_load_in_hf"),
    ({"checkpoint.initial_load_model_only": "false"}, "initial_load_path"),
    ({"checkpoint.initial_load_path": "FOLDER/none"}, "FOLDER/none"),
    ({"checkpoint.initial_load_path": "/dev/null"}, "/dev/null"),
    ({"model.name": "llama7"}, "llama7"),
    ({"model.name": "qwen3", "model.flavor": "70B"}, "70B"),
    ({"model.flavor": ""}, "model.flavor"),
    ({"model.hf_assets_path": "FOLDER/none"}, "FOLDER/none"),
    ({"model.hf_assets_path": "/dev/null"}, "/dev/null"),
    ({"training.dataset_path": "FOLDER/none.h5"}, "FOLDER/none.h5"),
    ({"training.dataset_path": "FOLDER"}, "holds no token file"),
    ({"training.dataset_path": "/dev/zero"}, "/dev/zero"),
    ({"training.dataset_path": ""}, "training.dataset_path"),
    ({"training.seq_len": 10**6}, "shorten the sequence"),
    ({"training.seq_len": 2**31 - 1}, "shorten the sequence"),
    ({"job.dump_folder": "/dev/null"}, "/dev/null"),
    ({"job.dump_folder": "/dev/null/run"}, "/dev/null/run"),
    ({"job.dump_folder": "/proc/run"}, "/proc/run"),
    ({"job.dump_folder": "/sys/run"}, "/sys/run"),
    ({"job.dump_folder": ""}, "job.dump_folder"),
    ({"job.dump_folder": "FOLDER/" + 300 * "x"}, "name too long"),
    ({"parallelism.tensor_parallel_degree": 2}, "2"),
    ({"parallelism.tensor_parallel_degree": 7}, "7"),
    ({"parallelism.pipeline_parallel_degree": 2}, "pp 2"),
    ({"parallelism.data_parallel_replicate_degree": 4}, "dp_replicate 4"),
    ({"parallelism.data_parallel_shard_degree": 2}, "dp_shard 2"),
    ({"parallelism.data_parallel_shard_degree": 0}, "data_parallel_shard_degree"),
    ({"parallelism.data_parallel_shard_degree": 2**30, "parallelism.tensor_parallel_degree": 2**30}, "but the run has"),
    ({"parallelism.pipeline_parallel_schedule": "1f1b"}, "1f1b"),
    ({"parallelism.pipeline_parallel_schedule": ""}, "pipeline_parallel_schedule"),
    ({"checkpoint.exclude_from_loading": "dataloadr"}, "exclude_from_loading"),
    ({"activation_checkpoint.mode": "op"}, "activation_checkpoint.mode"),
]
# Words of a command line, without those of a sound run.
ROWS_OF_WORDS = [
    (["--training.seq_length", "8"], "did you mean --training.seq_len?"),
    (["--steps", "8"], "--steps"),
    (["-n", "8"], "'-n'"),
    (["training.steps=8"], "training.steps=8"),
    (["--training.steps"], "--training.steps needs a value"),
    (["--training.steps", "--optimizer.lr"], "--training.steps needs a value"),
    (["--version=2"], "--version takes no value"),
    (["--config"], "--config needs a value"),
    (["--config", "FOLDER"], "is a folder"),
    (["--config", "FOLDER/none.toml"], "FOLDER/none.toml"),
    (["--config", "FOLDER/none.toml", "--config", "x"], "--config is given twice"),
    (["--", "x"], "--"),
    ([""], "unexpected ''"),
    (["--.steps", "3"], "--.steps"),
    (["--training.", "3"], "--training."),
    (["--\u00e9", "3"], "unknown option"),
]
# The content of a configuration file.
ROWS_OF_FILES = [
    ("[training\nsteps = 1\n", "FILE:1:"),
    ("[training]\nsteps = \n", "FILE:2:"),
    ("[training]\nsteps = 1\nsteps = 2\n", "FILE:3:"),
    ("[training]\nsteps = 99999999999999999999\n", "FILE:2:"),
    ("[training]\nsteps = 1979-05-27\n", "training.steps in FILE:2"),
    ("[training]\nsteps = {}\n", "training.steps in FILE:2"),
    ("[training]\nsteps = [1]\n", "training.steps in FILE:2"),
    ("[training]\nstepz = 8\n", "did you mean training.steps?"),
    ("[trainning]\nsteps = 8\n", "did you mean [training]?"),
    ("[[training]]\nsteps = 8\n", "training"),
    ("training = 3\n", "training in FILE:1"),
    ("steps = 3\n", "steps"),
    ("[training.steps]\nx = 1\n", "training.steps in FILE:1"),
    ("[training]\nsteps = \"3\"\n", "training.steps in FILE:2"),
    ("[training]\nshuffle = 1\n", "training.shuffle in FILE:2"),
    ("[optimizer]\nlr = nan\n", "optimizer.lr in FILE:2"),
    ("[optimizer]\nlr = inf\n", "optimizer.lr in FILE:2"),
    ("[optimizer]\nlr = 1e400\n", "FILE:2"),
    ("[job]\ndescription = 3\n", "job.description in FILE:2"),
    ("[training]\nmax_time = \"11x\"\n", "training.max_time in FILE:2"),
    ("\u0000", "FILE:1:"),
    ("[training]\nsteps = 1\u0000\n", "FILE:2:"),
    ("\ufffe[training]\n", "FILE:1:"),
]


def key_rows():
    """For each key a value of a wrong type, and for numbers also values far outside every range."""
    text = subprocess.run([run.PRETRAIN, "--print-config"], capture_output=True, text=True, check=True).stdout
    rows, section = [], ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        found = SETTING.match(line)
        if not found:
            continue
        key, value = f"{section}.{found[1]}", found[2]
        if value in ("true", "false"):
            rows.append(({key: "perhaps"}, key))
        elif value and re.fullmatch(r"-?[\d.e+-]+", value):
            is_integer = re.fullmatch(r"-?\d+", value)
            rows += [({key: wrong}, key) for wrong in ("many", "nan", "-7", *((HUGE, "1.5") if is_integer else ("1e400",)))]
        elif value and value.startswith("[") and section != "model":  # model.accept_config_keys takes any names
            rows.append(({key: "1,,2"}, key))
        elif value is None and section != "model" and "dtype" not in key:
            rows += [({key: wrong}, key) for wrong in ("many", "-7")]
    return rows


class Trials:
    def __init__(self, shared):
        self.tokens = shared / "tiny.h5"
        run.PretrainTest.tokenize(run.SOURCE / "data" / "tiny.jsonl", self.tokens)
        self.rows = key_rows() + ROWS_ABOUT_SEVERAL + ROWS_OF_WORDS + ROWS_OF_FILES
        random.Random(0).shuffle(self.rows)  # so that a few trials have rows of every kind

    def words_of(self, row, folder):
        """The command line, and the row as the table shows it."""
        settings, part = row
        file = folder / "c.toml"
        if isinstance(settings, str):
            file.write_text(settings)
            return ["--config", file], repr(settings)
        if isinstance(settings, list):
            return [word.replace("FOLDER", str(folder)) for word in settings], " ".join(settings)
        sound = {"training.dataset_path": self.tokens, "job.dump_folder": folder / "run", "training.steps": 2,
                 "training.seq_len": 32, "training.local_batch_size": 2}
        changed = {key: str(value).replace("FOLDER", str(folder)) for key, value in settings.items()}
        shown = ", ".join(f"{key} = {value}" for key, value in settings.items())
        return run.words(sound | changed), shown if len(shown) < 100 else shown[:100] + "..."

    def message(self, row, folder):
        """Runs a row and returns how the table shows it, the exit code and the message."""
        words, shown = self.words_of(row, folder)
        done = subprocess.run([run.PRETRAIN, *map(str, words)], capture_output=True, text=True, timeout=LIMIT_SECONDS,
                              stdin=subprocess.DEVNULL, env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1",
                                                                          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        errors = ERROR.findall(done.stderr)
        part = row[1].replace("FOLDER", str(folder)).replace("FILE", str(folder / "c.toml"))
        where = f"{shown}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == 2 and len(errors) == 1, where
        assert part.lower() in errors[0].lower(), f"'{part}' is not in the message of {where}"
        assert len(errors[0]) < 1000, f"a long message: {where}"
        assert not (folder / "run").exists(), f"something was left behind: {where}"
        return shown, done.returncode, errors[0].replace(str(folder), "FOLDER")

    def run(self, seed, folder):
        self.message(self.rows[(seed - 1) % len(self.rows)], folder)
        return "refused"


def main():
    with tempfile.TemporaryDirectory() as shared:
        trials = Trials(pathlib.Path(shared))
        lines = ["| setting | exit code | message |", "| --- | --- | --- |"]
        for row in trials.rows:
            with tempfile.TemporaryDirectory() as folder:
                shown, code, message = trials.message(row, pathlib.Path(folder))
            cells = [shown, str(code), message.removeprefix("pretrain: error: ")]
            lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
        pathlib.Path(sys.argv[1]).write_text("\n".join(lines) + "\n")
        print(f"{len(trials.rows)} rows")


if __name__ == "__main__":
    main()
