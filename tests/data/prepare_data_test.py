"""The command lines of prepare-data: their files, output and exit codes."""
import bz2
import fcntl
import json
import lzma
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

signal.signal(signal.SIGINT, signal.default_int_handler)  # the program must not inherit the ignored signal
PROGRAM = pathlib.Path(os.environ["ARGOSY_BIN"]) / "prepare-data"
TINY = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "data" / "tiny.jsonl"
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


class PrepareData(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_program(self, *arguments, code=0, stdout=subprocess.PIPE):
        command = [PROGRAM, *map(str, arguments)]
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def expect_error(self, *arguments, code, parts):
        done = self.run_program(*arguments, code=code)
        self.assertEqual(done.stdout, "")
        self.assertTrue(done.stderr.startswith("prepare-data: error: "), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_synthetic_writes_corpus_and_tasks(self):
        done = self.run_program("synthetic", "--output", self.folder / "s", "--megabytes", "0.1", "--seed", "7")
        self.assertEqual(done.stdout, "")
        files = sorted(str(path.relative_to(self.folder / "s")) for path in self.folder.rglob("*.jsonl"))
        self.assertEqual(files, ["tasks/agreement.jsonl", "tasks/arithmetic.jsonl", "tasks/last_word.jsonl",
                                 "tasks/perplexity.jsonl", "train.jsonl", "valid.jsonl"])
        for line in (self.folder / "s/tasks/agreement.jsonl").read_text().splitlines():
            self.assertEqual(set(json.loads(line)) - {"argosy"}, {"context", "choices", "gold"})

    def test_verify_names_every_damaged_file(self):
        paths = [self.folder / name for name in ("a.h5", "b.h5")]
        for path in paths:
            self.run_program("tokenize", "--input", TINY, "--output", path)
        done = self.run_program("--verify", *paths)
        self.assertEqual([json.loads(line)["okay"] for line in done.stdout.splitlines()], [True, True])
        self.assertEqual(json.loads(done.stdout.splitlines()[0])["documents"], len(TINY.read_text().splitlines()))
        damaged = bytearray(paths[1].read_bytes())
        damaged[damaged.index(b"w\0i\0t\0h\0")] ^= 1
        paths[1].write_bytes(damaged)
        done = self.run_program("--verify", *paths, code=3)
        self.assertEqual([json.loads(line)["okay"] for line in done.stdout.splitlines()], [True, False])
        self.assertIn("b.h5: tokens 0 .. ", done.stderr)
        self.assertIn("prepare-data: error: 1 of 2 token files are damaged", done.stderr)
        done = self.run_program("--verify", self.folder / "none.h5", code=2)
        self.assertIn("none.h5: No such file", json.loads(done.stdout)["error"])
        self.assertIn("prepare-data: error: 1 of 1 token files cannot be read", done.stderr)
        self.expect_error(code=2, parts=["there is nothing to do", "--verify"])

    def test_verify_goes_on_after_a_file_that_cannot_be_opened(self):
        sound, cut, none = (self.folder / name for name in ("sound.h5", "cut.h5", "none.h5"))
        self.run_program("tokenize", "--input", TINY, "--output", sound)
        cut.write_bytes(sound.read_bytes()[:-100])
        done = self.run_program("--verify", none, cut, sound, code=3)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(line["file"], line["okay"]) for line in lines],
                         [(str(none), False), (str(cut), False), (str(sound), True)])
        self.assertIn("cut.h5 is truncated", lines[1]["error"])
        self.assertIn("1 of 3 token files are damaged; copy or make them again. 1 of 3 token files cannot be read",
                      done.stderr)

    def test_verify_goes_on_after_damage_outside_of_the_tokens(self):
        """The tokenizer's name is no longer UTF-8, and HDF5 cannot list the file."""
        sound, name, heap = (self.folder / file for file in ("sound.h5", "name.h5", "heap.h5"))
        self.run_program("tokenize", "--input", TINY, "--output", sound)
        whole = sound.read_bytes()
        for path, mark in ((name, b"bytes\0"), (heap, b"HEAP")):
            damaged = bytearray(whole)
            damaged[damaged.index(mark)] ^= 0x80
            path.write_bytes(damaged)
        done = self.run_program("--verify", name, heap, sound, code=3)
        self.assertEqual([json.loads(line)["okay"] for line in done.stdout.splitlines()], [False, False, True])
        self.assertIn(f"{name}: dataset 'tokens' names its tokenizer \"\\ufffdytes\", not in UTF-8", done.stderr)
        self.assertIn(f"{heap}: cannot list the group '/': bad local heap signature; the file is damaged", done.stderr)
        self.assertIn("2 of 3 token files are damaged", done.stderr)
        odd = os.fsencode(self.folder) + b"/\xff.h5"
        os.rename(sound, odd)
        done = subprocess.run([PROGRAM, "--verify", odd, name], capture_output=True)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("/\ufffd.h5", json.loads(done.stdout.splitlines()[0])["file"])

    def test_unknown_words_are_named_before_missing_options(self):
        for words, part in ((["tokenize", "--inptu", "k.jsonl", "--output", "e.h5"],
                             "unknown option --inptu; did you mean --input?"),
                            (["tokenize", "--output=e.h5", "--colour=k.jsonl"], "unknown option --colour; --help lists"),
                            (["tokenise"], "unknown subcommand tokenise; did you mean tokenize?"),
                            (["frob"], "the subcommands are synthetic, tokenize, train-tokenizer"),
                            (["tokenize", "--output", "e.h5"], "--input is required")):
            self.expect_error(*words, code=2, parts=[part])

    def test_synthetic_is_the_same_on_every_machine(self):
        self.run_program("synthetic", "--output", self.folder, "--megabytes", "0.02", "--seed", "1")
        self.assertEqual((self.folder / "train.jsonl").read_bytes(), TINY.read_bytes())

    def test_tokenize_prints_what_it_wrote(self):
        documents = [json.loads(line)["text"] for line in TINY.read_text().splitlines()]
        done = self.run_program("tokenize", "--input", TINY, TINY, "--output", self.folder / "t.h5",
                                "--tokenizer", "bytes")
        printed = json.loads(done.stdout)
        self.assertEqual(printed["tokens"], 2 * sum(len(text) + 1 for text in documents))
        self.assertEqual(printed["documents"], 2 * len(documents))
        self.assertEqual(printed["vocab_size"], 257)
        self.assertTrue((self.folder / "t.h5").read_bytes().startswith(HDF5_SIGNATURE))
        self.assertEqual(os.listdir(self.folder), ["t.h5"])

    def waiting_tokenize(self, **more):
        """A tokenize process that has read one record from a pipe and waits for more, and the write end of the pipe."""
        os.mkfifo(self.folder / "pipe")
        job = subprocess.Popen([PROGRAM, "tokenize", "--input", self.folder / "pipe", "--output", self.folder / "t.h5"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.stderr.close)
        self.addCleanup(job.kill)
        pipe = open(self.folder / "pipe", "w")
        self.addCleanup(pipe.close)
        pipe.write('{"text": "first"}\n')
        pipe.flush()
        lock, deadline = self.folder / "t.h5.partial.lock", time.monotonic() + 30
        while not (lock.exists() and lock.read_text()):
            self.assertLess(time.monotonic(), deadline, "the first record was never read")
            time.sleep(0.01)
        return job, pipe

    def test_a_second_writer_is_refused(self):
        job, pipe = self.waiting_tokenize()
        self.expect_error("tokenize", "--input", TINY, "--output", f"{self.folder}/./t.h5", code=2,
                          parts=["t.h5 is being written by another process", f"process {job.pid} on {socket.gethostname()}"])
        pipe.write('{"text": "second"}\n')
        pipe.close()
        self.assertEqual((job.wait(30), json.loads(job.stdout.read())["documents"]), (0, 2))
        self.assertEqual(sorted(os.listdir(self.folder)), ["pipe", "t.h5"])

    def test_synthetic_refuses_a_second_writer(self):
        with open(self.folder / "train.jsonl.partial.lock", "w") as lock:
            lock.write("process 7 on n7")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.expect_error("synthetic", "--output", self.folder, "--megabytes", "0.02", code=2, parts=["process 7 on n7"])
        self.assertEqual(list(self.folder.rglob("*.jsonl")), [])

    def test_a_signal_leaves_nothing(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            job, _ = self.waiting_tokenize()
            job.send_signal(number)
            self.assertEqual(job.wait(30), 1)
            self.assertIn("stopped by a signal", job.stderr.read())
            self.assertEqual(os.listdir(self.folder), ["pipe"])
            os.unlink(self.folder / "pipe")

    def test_a_signal_that_is_ignored_from_the_start_ends_nothing(self):
        """nohup starts programs with this signal ignored."""
        job, pipe = self.waiting_tokenize(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        job.send_signal(signal.SIGHUP)
        pipe.close()
        self.assertEqual(job.wait(30), 0)

    def test_a_signal_leaves_an_earlier_corpus(self):
        corpus = self.folder / "corpus"
        self.run_program("synthetic", "--output", corpus, "--megabytes", "0.02")
        before = {path: path.read_bytes() for path in corpus.rglob("*.*")}
        self.assertEqual(len(before), 6)
        job = subprocess.Popen([PROGRAM, "synthetic", "--output", corpus, "--megabytes", "10000"], stderr=subprocess.PIPE)
        self.addCleanup(job.stderr.close)
        self.addCleanup(job.kill)
        written = corpus / "train.jsonl.partial"
        while not written.exists() or written.stat().st_size == 0:
            time.sleep(0.01)
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(30), 1)
        self.assertEqual({path: path.read_bytes() for path in corpus.rglob("*.*")}, before)

    def test_what_a_killed_writer_left_is_removed(self):
        job, pipe = self.waiting_tokenize()
        job.kill()
        job.wait(30)
        pipe.close()
        self.assertEqual(sorted(os.listdir(self.folder)), ["pipe", "t.h5.partial", "t.h5.partial.lock"])
        self.run_program("tokenize", "--input", TINY, "--output", self.folder / "t.h5")
        self.assertEqual(sorted(os.listdir(self.folder)), ["pipe", "t.h5"])

    def test_only_own_files_are_replaced(self):
        """A tool replaces its earlier results and empty files, but no file of other programs."""
        tokenize = ["tokenize", "--input", TINY, "--output", self.folder / "t.h5"]
        (self.folder / "t.h5").touch()
        for _ in range(2):
            self.run_program(*tokenize)
        synthetic = ["synthetic", "--output", self.folder / "c", "--megabytes", "0.02"]
        for seed in (1, 2):
            self.run_program(*synthetic, "--seed", seed)
        for path, command in ((self.folder / "t.h5", tokenize), (self.folder / "c/valid.jsonl", synthetic),
                              (self.folder / "c/tasks/last_word.jsonl", synthetic)):
            before = {name: name.read_bytes() for name in self.folder.rglob("*") if name.is_file()} | {path: b"mine"}
            path.write_bytes(b"mine")
            self.expect_error(*command, code=2, parts=[f"cannot write {path}", "did not write it"])
            self.assertEqual({name: name.read_bytes() for name in self.folder.rglob("*") if name.is_file()}, before)
            path.unlink()

    def test_the_output_needs_its_folder(self):
        self.expect_error("tokenize", "--input", TINY, "--output", self.folder / "none/t.h5", code=2,
                          parts=[f"the folder {self.folder}/none does not exist; make it first"])

    def test_a_tokenizer_without_effect_is_named(self):
        (self.folder / "text.jsonl").write_text('{"text":"a b a b"}\n')
        (self.folder / "tokens.jsonl").write_text('{"tokens":[1,2]}\n')
        self.run_program("train-tokenizer", "--input", self.folder / "text.jsonl", "--vocab-size", 258,
                         "--output", self.folder / "tokenizer.json")
        done = self.run_program("tokenize", "--input", self.folder / "tokens.jsonl", "--output", self.folder / "t.h5",
                                "--tokenizer", self.folder / "tokenizer.json")
        self.assertIn("the tokenizer 'tokenizer.json' has no effect: the records are {\"tokens\"}", done.stderr)

    def test_tokens_take_a_vocabulary_size(self):
        (self.folder / "a.jsonl").write_text('{"tokens": [0, 9]}\n')
        line = ["tokenize", "--input", self.folder / "a.jsonl", "--output", self.folder / "t.h5"]
        self.assertEqual(json.loads(self.run_program(*line).stdout)["vocab_size"], 10)
        self.assertEqual(json.loads(self.run_program(*line, "--vocab-size", "50").stdout)["vocab_size"], 50)
        self.expect_error(*line, "--vocab-size", "9", code=2, parts=["a.jsonl:1", "token 9", "0 .. 8"])

    def test_records_come_from_standard_input(self):
        def tokenize(text, code=0):
            return subprocess.run([PROGRAM, "tokenize", "--input", "-", "--output", self.folder / "t.h5"], input=text,
                                  capture_output=True, text=True)
        done = tokenize(TINY.read_text())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["documents"], len(TINY.read_text().splitlines()))
        before = (self.folder / "t.h5").read_bytes()
        self.run_program("tokenize", "--input", TINY, "--output", self.folder / "t.h5")
        self.assertEqual((self.folder / "t.h5").read_bytes(), before)
        done = tokenize('{"text": "a"}\n{"text": 5}\n')
        self.assertEqual(done.returncode, 2)
        self.assertIn("stdin:2: \"text\" is not a string", done.stderr)

    def test_folders_patterns_columns_and_compressed_inputs(self):
        lines = [json.dumps({"text": f"text {i} \u00e9", "score": i}) for i in range(5000)]
        whole = "".join(line + "\n" for line in lines).encode()

        def made(*arguments):
            self.run_program("tokenize", "--output", self.folder / "t.h5", "--input", *arguments)
            return (self.folder / "t.h5").read_bytes()
        (self.folder / "a.jsonl").write_bytes(whole)
        expected = made(self.folder / "a.jsonl")
        half = len(whole) // 2
        for name, compress in (("a.jsonl.bz2", bz2.compress), ("a.jsonl.xz", lzma.compress)):
            file = self.folder / name
            file.write_bytes(compress(whole[:half]) + compress(whole[half:]))  # as parallel compressors write
            self.assertEqual(made(file), expected)
            file.write_bytes(file.read_bytes()[:-20])
            self.expect_error("tokenize", "--output", self.folder / "t.h5", "--input", file, code=3, parts=[name, "it ends within "])
            file.unlink()
        for name, part in (("in/b/1.jsonl", lines[:9]), ("in/2.jsonl.xz", lines[9:20]), ("in/notes.md", ["no input"])):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            text = "".join(line + "\n" for line in part).encode()
            (self.folder / name).write_bytes(lzma.compress(text) if name.endswith("xz") else text)
        in_order = made(self.folder / "in/2.jsonl.xz", self.folder / "in/b/1.jsonl")
        self.assertEqual(made(self.folder / "in"), in_order)
        self.assertEqual(made(self.folder / "in/2*", self.folder / "in/[b]/?.jsonl"), in_order)
        for missing, part in (("in/*.txt", "no file matches"), ("none", "No such file")):
            self.expect_error("tokenize", "--output", self.folder / "t.h5", "--input", self.folder / missing, code=2, parts=[part])
        (self.folder / "empty").mkdir()
        self.expect_error("tokenize", "--output", self.folder / "t.h5", "--input", self.folder / "empty", code=2, parts=["has no file"])
        (self.folder / "c.jsonl").write_text("".join(line.replace('"text"', '"content"', 1).replace('"score": ', '"text": 1, "NaN": NaN, "s": -Infinity, "n": ')
                                                     + "\n" for line in lines))
        self.assertEqual(made(self.folder / "c.jsonl", "--column", "content"), expected)
        self.expect_error("tokenize", "--output", self.folder / "t.h5", "--input", self.folder / "c.jsonl", "--column", "body", code=2,
                          parts=['c.jsonl:1: the record has no key "body" (--column)'])
        (self.folder / "d.jsonl").write_text("".join(line.replace("{", '{"messages": [{"role": "user"}], "tokens": [1], ', 1) + "\n" for line in lines))
        self.assertEqual(made(self.folder / "d.jsonl", "--column", "text"), expected)
        self.expect_error("tokenize", "--output", self.folder / "t.h5", "--input", self.folder / "d.jsonl", code=2,
                          parts=['d.jsonl:1', '"text"', "--column text"])
        self.check_trained_from_text(lines)

    def check_trained_from_text(self, lines):
        texts = [json.loads(line)["text"] for line in lines]
        (self.folder / "a.txt").write_text("".join(text + "\n" for text in texts))
        made = []
        for name, arguments in (("p", [self.folder / "a.txt", "--document", "line"]), ("q", [self.folder / "a.jsonl"]),
                                ("r", [self.folder / "c.jsonl", "--column", "content"])):
            (self.folder / name).mkdir()
            self.run_program("train-tokenizer", "--vocab-size", 270, "--output", self.folder / name / "tokenizer.json", "--input", *arguments)
            made.append((self.folder / name / "tokenizer.json").read_bytes())
        self.assertEqual(made[0], made[1])
        self.assertEqual(made[0], made[2])

    def test_processes_share_the_pieces(self):
        corpus = self.folder / "c.jsonl"
        corpus.write_text("".join(json.dumps({"text": str(i) * (i % 300)}) + "\n" for i in range(20000)))
        self.run_program("tokenize", "--input", corpus, "--output", self.folder / "one.h5")
        mpirun = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "jobs" / "mpirun.sh"
        done = subprocess.run([mpirun, "3", PROGRAM, "tokenize", "--input", corpus, "--output", self.folder / "three.h5",
                               "--piece-megabytes", "1", "--threads", "1"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["documents"], 20000)
        self.assertEqual((self.folder / "three.h5").read_bytes(), (self.folder / "one.h5").read_bytes())
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["c.jsonl", "one.h5", "three.h5"])

    def test_a_killed_run_goes_on(self):
        corpus = self.folder / "c.jsonl"
        corpus.write_text((json.dumps({"text": "x" * 1000}) + "\n") * 20000)
        words = ["tokenize", "--input", corpus, "--output", self.folder / "t.h5", "--piece-megabytes", "1"]
        running = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL)
        while not (self.folder / "t.h5.parts" / "000001.part").exists():
            self.assertIsNone(running.poll())
        running.kill()
        running.wait()
        kept = (self.folder / "t.h5.parts" / "000001.part").stat().st_mtime_ns
        self.assertFalse((self.folder / "t.h5").exists())
        self.expect_error(*words[:-1], "2", code=2, parts=["t.h5.parts", "other options"])
        self.assertEqual((self.folder / "t.h5.parts" / "000001.part").stat().st_mtime_ns, kept)
        self.assertEqual(json.loads(self.run_program(*words).stdout)["documents"], 20000)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["c.jsonl", "t.h5"])

    def test_bad_records_can_be_left_out(self):
        corpus = self.folder / "c.jsonl"
        corpus.write_text('{"text": "a"}\n{"text": 1}\n{"text": "b"}\n')
        done = self.run_program("tokenize", "--input", corpus, "--output", self.folder / "t.h5", "--on-error", "skip")
        self.assertEqual(json.loads(done.stdout)["skipped"], 1)
        self.assertIn("c.jsonl:2: \"text\" is not a string, but 1", done.stderr)

    def test_malformed_texts_are_counted(self):
        """In one piece and in two; the tokenizer `bytes` keeps every byte."""
        names = [self.folder / name for name in ("a.txt", "b.txt")]
        for name in names:
            name.write_bytes(b"good \xc3\xa9\n" + b"bad \xff\xfe\n" + b"cut \xe2\x82\n" + b"x" * 600000)
        self.run_program("train-tokenizer", "--input", TINY, "--vocab-size", "300", "--output", self.folder / "tokenizer.json")
        words = ["tokenize", "--input", *names, "--document", "line", "--output", self.folder / "t.h5"]
        for more in ([], ["--piece-megabytes", "1"]):
            done = self.run_program(*words, "--tokenizer", self.folder / "tokenizer.json", *more)
            self.assertEqual(json.loads(done.stdout)["repaired"], 4)
            self.assertIn("4 of 8 texts have malformed UTF-8, which is read as U+FFFD", done.stderr)
        done = self.run_program(*words)
        self.assertEqual((json.loads(done.stdout)["repaired"], done.stderr), (0, ""))

    def test_paths_that_cannot_be_used_exit_with_2(self):
        loop = self.folder / "loop"
        loop.symlink_to(loop)
        target = self.folder / "t.h5"
        self.expect_error("tokenize", "--input", loop, "--output", target, code=2, parts=[f"cannot open {loop}: Too many"])
        self.expect_error("tokenize", "--input", TINY, "--output", loop, code=2, parts=[f"{loop}: it is a symbolic link"])
        self.expect_error("tokenize", "--input", TINY, "--output", "/dev/stdout", code=2, parts=["/dev/stdout"])
        self.expect_error("tokenize", "--input", TINY, "--output", "-", code=2, parts=["stdout (-)", "name a file"])
        self.assertEqual(os.listdir(self.folder), ["loop"])

    def test_bad_input_exits_with_2_and_leaves_nothing(self):
        (self.folder / "a.jsonl").write_text('{"text": "a"}\n{"text": \n')
        line = ["tokenize", "--input", self.folder / "a.jsonl", "--output", self.folder / "t.h5"]
        self.expect_error(*line, code=2, parts=["a.jsonl:2", "bad JSON"])
        self.expect_error(*line, "--tokenizer", "x.json", code=2, parts=["tokenizer", "x.json", "bytes"])
        self.assertEqual(os.listdir(self.folder), ["a.jsonl"])

    def test_bad_command_lines_exit_with_2(self):
        self.expect_error(code=2, parts=["subcommand"])
        self.expect_error("bake", code=2, parts=["bake"])
        self.expect_error("synthetic", code=2, parts=["--output"])
        self.expect_error("synthetic", "--output", self.folder, "--megabytes", "many", code=2, parts=["many"])
        self.expect_error("synthetic", "--output", self.folder, "--megabytes", "-1", code=2, parts=["-1"])
        self.expect_error("tokenize", "--output", "x", code=2, parts=["--input"])

    def test_a_full_disk_exits_with_1(self):
        with open("/dev/full", "w") as full:
            done = self.run_program("tokenize", "--input", TINY, "--output", self.folder / "t.h5",
                                    code=1, stdout=full)
        self.assertIn("stdout", done.stderr)

    def test_help_and_version(self):
        self.assertIn("synthetic", self.run_program("--help").stdout)
        self.assertIn("--megabytes", self.run_program("synthetic", "--help").stdout)
        self.assertRegex(self.run_program("--version").stdout, r"^prepare-data \d+\.\d+\.\d+ \(.+\)\n$")


if __name__ == "__main__":
    unittest.main()
