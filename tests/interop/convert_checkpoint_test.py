"""convert-checkpoint as its users start it: exit codes, messages, what is left, memory; and its export as the safetensors
package reads it."""
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

signal.signal(signal.SIGINT, signal.default_int_handler)  # the program must not inherit that it is ignored
PROGRAM = pathlib.Path(os.environ["ARGOSY_BIN"]) / "convert-checkpoint"
REFERENCE = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "tests" / "reference"
MEBIBYTE = 1 << 20
# Of config.json, each by itself: what would be another model.
UNSUPPORTED = {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "rope_parameters": {"rope_type": "longrope"},
               "use_sliding_window": True, "layer_types": ["sliding_attention"], "num_local_experts": 8,
               "quantization_config": {"quant_method": "gptq"}, "model_type": "deepseek_v3",
               "architectures": ["LlamaForSequenceClassification"]}


def write_safetensors(path, tensors):
    """{name: (type, shape, bytes)} without the package, large tensors as holes in the file."""
    header, at = {}, 0
    for name, (kind, shape, size) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def write_model(folder, dim, layers, vocab, kind="F32", size=4):
    """A Llama of zeros that takes no room on disk."""
    folder.mkdir()
    config = {"model_type": "llama", "vocab_size": vocab, "hidden_size": dim, "num_hidden_layers": layers,
              "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 2 * dim, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {}

    def add(name, *shape):
        count = size
        for extent in shape:
            count *= extent
        tensors[name] = (kind, list(shape), count)

    add("model.embed_tokens.weight", vocab, dim)
    for i in range(layers):
        layer = f"model.layers.{i}."
        for name in "qkvo":
            add(f"{layer}self_attn.{name}_proj.weight", dim, dim)
        for name in ("gate", "up"):
            add(f"{layer}mlp.{name}_proj.weight", 2 * dim, dim)
        add(f"{layer}mlp.down_proj.weight", dim, 2 * dim)
        add(f"{layer}input_layernorm.weight", dim)
        add(f"{layer}post_attention_layernorm.weight", dim)
    add("model.norm.weight", dim)
    add("lm_head.weight", vocab, dim)
    write_safetensors(folder / "model.safetensors", tensors)
    return max(count for _, _, count in tensors.values())


def write_tokenizer(folder, end_id=256):
    """A byte-level BPE without merges, whose token <end> has the id `end_id`; its file does not say that this ends a text."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    names = [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]
    added = [*(f"<unused {i}>" for i in range(256, end_id)), "<end>"]
    tokens = [{"id": 256 + i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
               "special": True} for i, name in enumerate(added)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": {name: i for i, name in enumerate(names)}, "merges": []}}))


def peak_anonymous_bytes(process):
    """The most anonymous memory that was seen while it ran: sampled, since the kernel keeps no peak of it alone."""
    peak = 0
    while process.poll() is None:
        try:
            text = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except OSError:
            break
        for line in text.splitlines():
            if line.startswith("Anonymous:"):
                peak = max(peak, int(line.split()[1]) * 1024)
        time.sleep(0.005)
    return peak


class ConvertTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_program(self, *arguments, code=0, limit=None):
        """Its stdout; its stderr is kept. `limit`: the most bytes that a file may have."""
        def set_limit():
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                              preexec_fn=set_limit)
        self.assertEqual(done.returncode, code, done.stderr)
        self.stderr = done.stderr
        return done.stdout

    def assert_error(self, *parts):
        errors = [line for line in self.stderr.splitlines() if line.startswith("convert-checkpoint: error: ")]
        self.assertEqual(len(errors), 1, self.stderr)
        for part in parts:
            self.assertIn(part, errors[0])

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def convert(self, to, destination, *more, source=REFERENCE / "qwen3", **rest):
        return self.run_program(source, self.folder / destination, "--to", to, *more, **rest)

    def test_there_and_back_is_the_same_and_verified(self):
        self.convert("sharded", "s", "--shards", 3, "--verify")
        self.assertIn("verified", self.stderr)
        self.assertIn("/s", self.stderr)
        self.convert("full", "f", "--verify", "--threads", 1, source=self.folder / "s")
        self.convert("hf", "h", "--verify", source=self.folder / "f")
        self.assertEqual((self.folder / "h" / "model.safetensors").read_bytes(),
                         (REFERENCE / "qwen3" / "model.safetensors").read_bytes())
        self.assertEqual(self.names(), ["f", "h", "s"])

    def export(self, name, **files):
        """Exports a model with a tokenizer and `files` through a full file, and returns what the files then say."""
        folder, exported = self.folder / name, self.folder / f"{name}.hf"
        write_model(folder, 16, 1, 300)
        if files.pop("tokenizer", True):
            write_tokenizer(folder)
        for file, content in files.items():
            (folder / f"{file}.json").write_text(json.dumps(content))
        self.convert("full", f"{name}.h5", source=folder)
        self.convert("hf", exported, "--verify", source=self.folder / f"{name}.h5")
        return {path.stem: json.loads(path.read_text()) for path in exported.glob("*config.json")}

    def test_an_export_says_its_end_of_text(self):
        for name, files in (("named", {"tokenizer_config": {"eos_token": "<end>", "model_max_length": 7}}),
                            ("mapped", {"special_tokens_map": {"eos_token": {"content": "<end>", "lstrip": False}}})):
            with self.subTest(name):
                found = self.export(name, **files)
                self.assertEqual(found["config"]["eos_token_id"], 256)
                self.assertEqual(found["generation_config"], {"eos_token_id": 256})
                self.assertEqual(found["tokenizer_config"]["eos_token"], "<end>")
                self.assertNotIn("end of text", self.stderr)
        own = {"eos_token_id": [256, 7], "temperature": 0.5}
        found = self.export("listed", tokenizer_config={"eos_token": "<end>"}, generation_config=own)
        self.assertEqual((found["config"]["eos_token_id"], found["generation_config"]), ([256, 7], own))

    def test_an_export_without_an_end_of_text_says_so(self):
        self.assertIsNone(self.export("bare", tokenizer=False)["config"]["eos_token_id"])
        self.assertIn("has no tokenizer, so the export has no end of text", self.stderr)
        self.assertIsNone(self.export("nameless")["config"]["eos_token_id"])
        self.assertIn("names no eos_token", self.stderr)

    def test_results_go_to_stdout_and_nothing_else(self):
        self.assertEqual(self.convert("full", "f"), "")
        text = self.run_program("--inspect", self.folder / "f", "--verify")
        for line in (r"form +full", r"step +0", r"model +qwen3: ", r"checks +every byte is as it was saved",
                     r"model/norm\.weight +f32 +\[40\] +160 [0-9a-f]{32}"):
            self.assertRegex(text, line)

    def test_a_damaged_file_fails_its_check(self):
        self.convert("full", "f")
        some = (REFERENCE / "qwen3" / "model.safetensors").read_bytes()[-64:]
        whole = (self.folder / "f").read_bytes()
        (self.folder / "f").write_bytes(whole.replace(some, bytes(64), 1))
        text = self.run_program("--inspect", self.folder / "f", "--verify", code=3)
        self.assertRegex(text, r"checks +1 fault\n")
        self.run_program("--inspect", self.folder / "f")
        self.convert("hf", "h", source=self.folder / "f", code=3)
        self.assert_error("damaged", "model/")
        self.assertEqual(self.names(), ["f"])

    def test_a_missing_shard_is_found_without_verify(self):
        self.convert("sharded", "s", "--shards", 3)
        self.run_program("--inspect", self.folder / "s")
        shard = self.folder / "s" / "shard-00001-of-00003.h5"
        shard.unlink()
        for arguments in ((), ("--verify",)):
            text = self.run_program("--inspect", self.folder / "s", *arguments, code=3)
            for part in (str(shard), "No such file", "it holds parts of ", "as NaN"):
                self.assertIn(part, text)

    def test_a_damaged_start_of_a_file_fails_its_check(self):
        self.convert("full", "f")
        with open(self.folder / "f", "r+b") as file:
            file.seek(40)
            file.write(b"9")
        for arguments in (("--inspect", self.folder / "f"), ("--inspect", self.folder / "f", "--verify"),
                          (self.folder / "f", self.folder / "g", "--to", "full")):
            self.run_program(*arguments, code=3)
            self.assert_error("user block", "damaged")

    def test_a_lost_start_of_a_file_is_damage(self):
        self.convert("full", "f")
        self.convert("sharded", "s")
        for file, source in ((self.folder / "f", self.folder / "f"), (self.folder / "s/checkpoint.h5", self.folder / "s"),
                             (next((self.folder / "s").glob("shard-*")), self.folder / "s")):
            whole = file.read_bytes()
            file.write_bytes(b"\xa5" * 512 + whole[512:])
            self.run_program("--inspect", source, "--verify", code=3)
            file.write_bytes(whole)
        for name, content, kind in (("x.gguf", b"GGUF\3" + bytes(600), "a GGUF model"), ("x.pth", b"PK\3\4" + bytes(600), ".pth"),
                                    ("x.jsonl", "{}\n".encode("utf-16"), "UTF-16 text"), ("x.txt", b"text\n" * 200, "not a checkpoint file")):
            (self.folder / name).write_bytes(content)
            self.run_program("--inspect", self.folder / name, code=2)
            self.assert_error(name, kind, "model.safetensors")

    def test_paths_that_cannot_be_used_exit_with_2(self):
        loop = self.folder / "loop"
        loop.symlink_to(loop)
        self.convert("full", "loop", code=2)
        self.assert_error("loop is a symbolic link")
        self.convert("full", "/dev/stdout", code=2)
        self.assert_error("/dev/stdout is a symbolic link")
        self.run_program(REFERENCE / "qwen3", "-", "--to", "full", code=2)
        self.assert_error("not written to stdout (-)")
        self.run_program(loop, self.folder / "g", "--to", "full", code=2)
        self.assert_error("loop")

    def test_what_exists_is_replaced_only_by_force(self):
        self.convert("hf", "d")
        before = (self.folder / "d" / "config.json").read_text()
        self.convert("hf", "d", source=REFERENCE / "llama", code=2)
        self.assert_error("d exists", "--force")
        self.assertEqual((self.folder / "d" / "config.json").read_text(), before)
        for to, form in (("sharded", "sharded"), ("full", "full"), ("hf", "hf")):
            self.convert(to, "d", "--force", source=REFERENCE / "llama")
            self.assertRegex(self.run_program("--inspect", self.folder / "d"), f"form +{form}")
            self.assertEqual(self.names(), ["d"])
        (self.folder / "letters").mkdir()
        (self.folder / "letters" / "a.txt").write_text("dear")
        self.convert("hf", "letters", "--force", code=2)
        self.assert_error("no checkpoint or model")
        self.run_program(self.folder / "d", self.folder / "d", "--to", "full", "--force", code=2)
        self.assert_error("the source")
        self.assertEqual((self.folder / "letters" / "a.txt").read_text(), "dear")

    def test_force_keeps_what_no_conversion_wrote(self):
        """A file, a folder and a link of the user's beside the model; what an earlier conversion wrote goes."""
        model = self.folder / "in"
        shutil.copytree(REFERENCE / "llama", model)
        (model / "tokenizer.json").write_text("{}")
        place = self.folder / "d"
        self.convert("hf", "d", source=model)
        self.assertIn("tokenizer.json", os.listdir(place))
        (place / "README.md").write_text("mine")
        (place / "logs" / "deep").mkdir(parents=True)
        (place / "logs" / "deep" / "a.txt").write_text("mine, too")
        (place / "latest").symlink_to("logs/deep")
        mine = {"README.md", "logs", "latest"}
        hf = {"config.json", "generation_config.json", "model.safetensors"}
        for to, written in (("hf", hf), ("sharded", {"checkpoint.h5", "shard-00000-of-00001.h5"}), ("hf", hf)):
            self.convert(to, "d", "--force", source=REFERENCE / "llama")
            self.assertEqual(set(os.listdir(place)), written | mine | {"conversion.json"})
            self.assertEqual(set(json.loads((place / "conversion.json").read_text())["files"]), written)
            self.assertEqual((place / "README.md").read_text(), "mine")
            self.assertEqual((place / "latest" / "a.txt").read_text(), "mine, too")
            self.assertEqual(self.names(), ["d", "in"])
        self.convert("full", "d", "--force", source=REFERENCE / "llama", code=2)
        self.assert_error("cannot be replaced by a file", "which no conversion wrote")
        (place / "tokenizer.json").write_text("mine")
        self.convert("hf", "d", "--force", source=model, code=2)
        self.assert_error(f"{place / 'tokenizer.json'} would be replaced")
        self.assertEqual(set(os.listdir(place)), hf | {"conversion.json", "tokenizer.json"} | mine)
        self.assertEqual((place / "tokenizer.json").read_text(), "mine")

    def test_force_replaces_no_symbolic_link(self):
        self.convert("hf", "d", source=REFERENCE / "llama")
        (self.folder / "link").symlink_to("d")
        self.convert("hf", "link", "--force", source=REFERENCE / "llama", code=2)
        self.assert_error("link is a symbolic link", "leads to, d")
        self.assertTrue((self.folder / "link").is_symlink())

    def test_force_replaces_no_model_of_somebody_else(self):
        shutil.copytree(REFERENCE / "llama", self.folder / "downloaded")
        before = sorted(os.listdir(self.folder / "downloaded"))
        self.convert("hf", "downloaded", "--force", source=REFERENCE / "llama", code=2)
        self.assert_error("no checkpoint or model that a conversion wrote")
        self.assertEqual(sorted(os.listdir(self.folder / "downloaded")), before)

    def test_no_source_is_in_the_way_of_its_copy(self):
        self.convert("hf", "d.partial")
        self.convert("hf", "d", source=self.folder / "d.partial", code=2)
        self.assert_error("the source", "rename")
        self.convert("sharded", "s", "--shards", 2, source=self.folder / "d.partial")
        shard = self.folder / "s" / "shard-00000-of-00002.h5"
        before = shard.read_bytes()
        self.convert("full", shard, "--force", source=self.folder / "s", code=2)
        self.assert_error("inside the source")
        self.assertEqual(shard.read_bytes(), before)
        self.run_program(self.folder / "s", f"{self.folder}/slash/", "--to", "hf")
        self.assertEqual(self.names(), ["d.partial", "s", "slash"])

    def test_bad_input_and_bad_command_lines(self):
        other = self.folder / "other"
        for arguments, parts in {
                ("--to", "hf"): ("SRC",), (REFERENCE / "llama", "--to", "hf"): ("DST is missing",),
                (REFERENCE / "llama", other): ("--to is missing",), (REFERENCE / "llama", other, "--to", "gguf"): ("gguf",),
                (REFERENCE / "llama", other, "--to", "hf", "--shards", 2): ("--shards needs --to sharded",),
                (REFERENCE / "llama", other, "--to", "full", "--max-shard-size", "1GB"): ("--max-shard-size",),
                (REFERENCE / "llama", other, "--to", "hf", "--max-shard-size", "5 apples"): ("--max-shard-size", "apples"),
                (REFERENCE / "llama", other, "--to", "hf", "--max-shard-size", "99999999999GB"): ("99999999999",),
                (REFERENCE / "llama", other, "--to", "hf", "--dtype", "int8"): ("int8",),
                (REFERENCE / "llama", other, "--inspect"): ("DST cannot be combined with --inspect",),
                (REFERENCE / "llama", "--inspect", "--force"): ("--force cannot be combined",),
                (REFERENCE / "llama", self.folder / "x.pt", "--to", "full"): ("x.pt", "a full file is HDF5", "x.h5"),
                (REFERENCE / "llama", self.folder / "x.safetensors", "--to", "full"): ("x.safetensors", "a full file is HDF5"),
                (REFERENCE, other, "--to", "hf"): ("holds no model", "looked for"),
                (self.folder / "none", other, "--to", "hf"): ("does not exist",),
                (REFERENCE / "llama", other / "deeper", "--to", "hf"): ("the folder", "does not exist")}.items():
            with self.subTest(arguments=arguments):
                self.run_program(*arguments, code=2)
                self.assert_error(*parts)
                self.assertEqual(self.names(), [])

    def test_tensors_that_do_not_fit_the_model_are_all_named(self):
        write_model(self.folder / "m", dim=64, layers=2, vocab=100)
        config = json.loads((self.folder / "m" / "config.json").read_text())
        config.update(num_hidden_layers=3, vocab_size=101, model_type="qwen2")
        (self.folder / "m" / "config.json").write_text(json.dumps(config))
        self.convert("full", "f", source=self.folder / "m", code=2)
        self.assert_error("model.layers.2.self_attn.q_proj.weight is missing", "model.layers.0.self_attn.q_proj.bias is missing",
                          "model.embed_tokens.weight has shape [100, 64], expected [101, 64]")
        self.assertEqual(self.names(), ["m"])

    def test_features_that_are_not_supported_are_named(self):
        write_model(self.folder / "m", dim=64, layers=2, vocab=100)
        config = json.loads((self.folder / "m" / "config.json").read_text())
        for key, value in UNSUPPORTED.items():
            with self.subTest(key):
                (self.folder / "m" / "config.json").write_text(json.dumps(config | {key: value}))
                self.convert("full", "f", source=self.folder / "m", code=2)
                self.assert_error("m/config.json", key, "supported")
                self.assertEqual(self.names(), ["m"])

    def test_unknown_keys_are_accepted_one_by_one_and_kept(self):
        write_model(self.folder / "m", dim=64, layers=2, vocab=100)
        path = self.folder / "m" / "config.json"
        unknown = {"logits_scaling": 8.0, "use_qk_norm": True}
        path.write_text(json.dumps(json.loads(path.read_text()) | unknown))
        accepted = ["--accept-config-key", "use_qk_norm", "--accept-config-key", "logits_scaling"]
        self.convert("full", "f", *accepted[:2], source=self.folder / "m", code=2)
        self.assert_error("m/config.json", '"logits_scaling"', "--accept-config-key")
        self.assertEqual(self.names(), ["m"])
        self.convert("full", "f", *accepted, "--verify", source=self.folder / "m")
        self.convert("hf", "back", "--verify", source=self.folder / "f")
        exported = json.loads((self.folder / "back" / "config.json").read_text())
        self.assertEqual({key: exported[key] for key in unknown}, unknown)
        self.run_program(self.folder / "back", "--inspect", code=2)
        self.run_program(self.folder / "back", "--inspect", *accepted)

    def test_verify_refuses_weights_that_are_not_finite(self):
        write_model(self.folder / "m", dim=64, layers=2, vocab=100)
        path = self.folder / "m" / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[-8:] = struct.pack("<2f", float("nan"), float("inf"))
        path.write_bytes(data)
        self.convert("full", "f", source=self.folder / "m")
        self.assertIn("W model/output.weight: of 6400 elements 2 are NaN or infinite", self.stderr)
        self.convert("hf", "d", "--dtype", "bf16", "--verify", source=self.folder / "m", code=3)
        self.assert_error("--verify found 1 fault in ")
        self.assertIn("E model/output.weight: of 6400 elements 2 are NaN or infinite", self.stderr)
        self.assertEqual(self.names(), ["f", "m"])

    def test_parts_without_their_index(self):
        write_model(self.folder / "m", dim=64, layers=2, vocab=100)
        (self.folder / "m" / "model.safetensors").rename(self.folder / "m" / "model-00001-of-00002.safetensors")
        self.convert("full", "f", source=self.folder / "m", code=2)
        self.assert_error("model-00001-of-00002.safetensors", "no model.safetensors.index.json")

    def test_a_disk_that_is_full_leaves_nothing(self):
        """A limit on a file's size stands for it: every write beyond fails."""
        write_model(self.folder / "m", dim=256, layers=2, vocab=2000)
        for to in ("sharded", "full", "hf"):
            with self.subTest(to=to):
                self.convert(to, "d", source=self.folder / "m", limit=3 * MEBIBYTE, code=1)
                self.assert_error("File too large")
                self.assertEqual(self.names(), ["m"])
        self.convert("hf", "d", "--max-shard-size", "2500KB", source=self.folder / "m", limit=3 * MEBIBYTE)
        self.assertGreater(len(self.names()), 1)

    def test_a_folder_that_may_not_be_written(self):
        """As somebody else, where this is root, who may write everywhere."""
        for name, mode in (("closed", 0o700), ("readable", 0o755), ("m", 0o755)):
            (self.folder / name).mkdir(mode=mode)
        for path in (REFERENCE / "llama").iterdir():
            (self.folder / "m" / path.name).write_bytes(path.read_bytes())
        self.folder.chmod(0o755)
        somebody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        try:
            subprocess.run([PROGRAM, "--version"], capture_output=True, check=True, **somebody)
        except (OSError, subprocess.CalledProcessError) as failed:
            self.skipTest(f"nobody else than root can run it here: {failed}")
        if not somebody:
            (self.folder / "readable").chmod(0o555)
            (self.folder / "closed").chmod(0)
        for to in ("sharded", "full", "hf"):
            for place in ("readable/d", "closed/d", "closed/deeper/d"):
                with self.subTest(to=to, place=place):
                    done = subprocess.run([PROGRAM, self.folder / "m", self.folder / place, "--to", to],
                                          capture_output=True, text=True, timeout=60, **somebody)
                    self.stderr = done.stderr
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assert_error(place.split("/")[0], "Permission denied")
        (self.folder / "closed").chmod(0o700)
        self.assertEqual(list((self.folder / "readable").iterdir()) + list((self.folder / "closed").iterdir()), [])

    def test_a_signal_leaves_nothing(self):
        write_model(self.folder / "m", dim=1024, layers=2, vocab=16000)
        for number in (signal.SIGTERM, signal.SIGINT):
            process = subprocess.Popen([PROGRAM, self.folder / "m", self.folder / "d", "--to", "full", "--verify"],
                                       stderr=subprocess.PIPE, text=True)
            while not (self.folder / "d.partial").exists():
                self.assertIsNone(process.poll(), "it ended early")
                time.sleep(0.002)
            process.send_signal(number)
            self.stderr = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 1, self.stderr)
            self.assert_error("stopped by a signal")
            self.assertEqual(self.names(), ["m"])

    def test_memory_does_not_grow_with_the_model(self):
        """Anonymous memory stays below twice the largest tensor and 256 MiB; the model itself has 320 MiB."""
        largest = write_model(self.folder / "m", dim=1024, layers=4, vocab=20000)
        source = self.folder / "m"
        for to, more in (("sharded", ["--shards", "4"]), ("hf", ["--dtype", "bf16"]), ("full", ["--verify"])):
            with self.subTest(to=to):
                process = subprocess.Popen([PROGRAM, source, self.folder / to, "--to", to, *more],
                                           stderr=subprocess.DEVNULL)
                peak = peak_anonymous_bytes(process)
                self.assertEqual(process.wait(), 0)
                self.assertGreater(peak, MEBIBYTE)
                # What it does by itself: LibTorch's 60 MiB, a few blocks for each thread, whatever the tensors' size, and
                # to verify one layer of 50 MiB or the table of 80 MiB.
                self.assertLess(peak, 2 * largest + 256 * MEBIBYTE)
            source = self.folder / to

    def test_the_safetensors_package_reads_the_export(self):
        try:
            import numpy
            import safetensors.numpy
        except ImportError as missing:
            self.skipTest(f"{missing}; `jobs/setup.sh --tests` installs what this reads with")
        for case in sorted(path.parent.name for path in REFERENCE.glob("*/model.safetensors")):
            self.convert("sharded", f"{case}.s", "--shards", 2, source=REFERENCE / case)
            self.convert("hf", f"{case}.h", "--max-shard-size", "20KB", source=self.folder / f"{case}.s")
            expected = safetensors.numpy.load_file(REFERENCE / case / "model.safetensors")
            index = json.loads((self.folder / f"{case}.h" / "model.safetensors.index.json").read_text())
            self.assertGreater(len(set(index["weight_map"].values())), 1)
            found = {}
            for name in set(index["weight_map"].values()):
                part = safetensors.numpy.load_file(self.folder / f"{case}.h" / name)
                self.assertEqual({index["weight_map"][tensor] for tensor in part}, {name})
                found |= part
            self.assertEqual(set(found), set(expected))
            for name, tensor in expected.items():
                self.assertEqual(found[name].dtype, tensor.dtype)
                numpy.testing.assert_array_equal(found[name], tensor, err_msg=name, strict=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
