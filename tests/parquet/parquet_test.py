"""prepare-data reads Parquet files as pyarrow writes them: parquet_test.py PYARROW, its folder, empty for a build without."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ARROW = sys.argv.pop() if len(sys.argv) > 1 else ""
PREPARE_DATA = pathlib.Path(os.environ["ARGOSY_BIN"]) / "prepare-data"
TINY = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "data" / "tiny.jsonl"
if ARROW:
    sys.path.append(str(pathlib.Path(ARROW).parent))
    import pyarrow
    import pyarrow.parquet


class Parquet(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def tokenize(self, *inputs, code=0, options=()):
        """Returns the report, or the error, of a token file made from these inputs."""
        words = ["tokenize", "--input", *inputs, "--output", self.folder / "t.h5", *options]
        done = subprocess.run([PREPARE_DATA, *map(str, words)], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout) if code == 0 else done.stderr

    def write(self, name, columns, **options):
        pyarrow.parquet.write_table(pyarrow.table(columns), self.folder / name, **options)
        return self.folder / name

    @unittest.skipIf(ARROW, "this build reads Parquet")
    def test_a_build_without_arrow_says_so(self):
        (self.folder / "a.parquet").write_bytes(b"PAR1")
        self.assertIn("this build cannot read Parquet", self.tokenize(self.folder / "a.parquet", code=2))

    @unittest.skipUnless(ARROW, "this build has no Arrow")
    def test_a_column_gives_the_tokens_of_the_same_texts_in_jsonl(self):
        texts = [json.loads(line)["text"] for line in TINY.read_text().splitlines()] + ["", "\u00e9\u4e2d"]
        jsonl = self.folder / "a.jsonl"
        jsonl.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        self.tokenize(jsonl)
        expected = (self.folder / "t.h5").read_bytes()
        nested = [{"x": 1, "text": "not this one"}] * len(texts)
        for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())):
            for compression in ("none", "snappy", "zstd"):
                body = pyarrow.array(texts).dictionary_encode() if pyarrow.types.is_dictionary(kind) else pyarrow.array(texts, kind)
                file = self.write("a.parquet", {"meta": nested, "body": body}, row_group_size=3, compression=compression)
                self.tokenize(file, options=["--column", "body"])
                self.assertEqual((self.folder / "t.h5").read_bytes(), expected)

    @unittest.skipUnless(ARROW, "this build has no Arrow")
    def test_rows_without_text_are_errors_or_left_out(self):
        file = self.write("n.parquet", {"text": ["a", None, "b"]})
        self.assertIn("n.parquet:2: the row has no text", self.tokenize(file, code=2))
        self.assertEqual(self.tokenize(file, options=["--on-error", "skip"]),
                         self.tokenize(file, options=["--on-error", "skip"]) | {"documents": 2, "skipped": 1})

    @unittest.skipUnless(ARROW, "this build has no Arrow")
    def test_files_that_cannot_be_read_are_refused(self):
        self.assertIn("has no column 'text' (--column); its columns are: content, id",
                      self.tokenize(self.write("c.parquet", {"content": ["x"], "id": [1]}), code=2))
        self.assertIn("column 'text' of", self.tokenize(self.write("i.parquet", {"text": [1, 2]}), code=2))
        whole = self.write("a.parquet", {"text": ["x" * 1000] * 1000}).read_bytes()
        for content, code, text in ((b"", 3, "d.parquet is damaged"), (b"{}", 2, "d.parquet is text, not Parquet"), (whole[:-9], 3, "d.parquet is damaged"),
                                    (whole[:4] + bytes(len(whole) - 60) + whole[-56:], 3, "d.parquet is damaged"),
                                    ("{}".encode("utf-16"), 2, "d.parquet is UTF-16 text")):
            (self.folder / "d.parquet").write_bytes(content)
            self.assertIn(text, self.tokenize(self.folder / "d.parquet", code=code))


if __name__ == "__main__":
    unittest.main()
