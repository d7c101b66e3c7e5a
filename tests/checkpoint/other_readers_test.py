"""Checkpoints as others read them: h5py through the views, and a reader of FORMAT.md written here again."""
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import h5py
    import ml_dtypes
    import numpy
    import xxhash
except ImportError as missing:
    print(f"skipped: {missing}; `jobs/setup.sh --tests` installs what this reads checkpoints with")
    sys.exit(77)

TYPES = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": ml_dtypes.bfloat16, "i64": "<i8", "u32": "<u4", "u16": "<u2",
         "u8": "u1"}
FLOATS = ("f64", "f32", "f16", "bf16")


def check(data):
    return xxhash.xxh3_128(data).hexdigest()


def raw(dataset, dtype):
    """A dataset's elements as the file has them: HDF5 converts nothing."""
    elements = numpy.empty(dataset.shape, dtype)
    if dataset.size:
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, elements.view(f"V{elements.itemsize}"), mtype=dataset.id.get_type())
    return elements


def read_file(path):
    """A file of a checkpoint by FORMAT.md, every check compared: its user block's lines, its table, its bytes."""
    data = path.read_bytes()
    block = data[:512].decode("ascii")
    lines = block[:block.index("\ncheck ")].split("\n")
    last, padding = block[block.index("\ncheck ") + 1:].split("\n", 1)
    assert padding[-1] == "\n" and not padding.strip(), block
    fields = {line.split(" ")[0]: line.split(" ")[1:] for line in lines}
    assert lines[0] in (["argosy checkpoint 2.0", "argosy checkpoint 3.0"] if fields["kind"] == ["manifest"]
                        else ["argosy checkpoint 2.0"]), lines[0]
    assert list(fields) == ["argosy", "kind", "bytes", "table", "rest"] + ["set"] * (fields["kind"] == ["shard"]), fields
    assert int(fields["bytes"][0]) == len(data)
    assert check(block[:block.index("check ")].encode()) == last.split(" ")[1]
    at, size = int(fields["table"][0]), int(fields["table"][1])
    table = json.loads(data[at:at + size])
    assert check(data[at:at + size]) == fields["table"][2]
    assert fields.get("set", [table["set"]]) == [table["set"]]
    return fields["kind"][0], fields["rest"][0], last.split(" ")[1], table, data, (at, size)


def check_rest(expected, data, ranges):
    """What is in none of the ranges, in file order."""
    rest, end = b"", 512
    for at, size in sorted(ranges):
        assert at >= end or size == 0, (at, end)
        if size:
            rest += data[end:at]
            end = at + size
    assert check(rest + data[end:]) == expected


def index(slab):
    return tuple(slice(begin, begin + size) for begin, size in zip(slab["offset"], slab["size"]))


def slabs_of(manifest, tensor):
    """[{"file", "offset", "size"}] by the rule of FORMAT.md; those with elements."""
    slabs = []
    for writer, coordinates in enumerate(itertools.product(*map(range, manifest["grid"]))):
        offset, size, holds = [0] * len(tensor["shape"]), list(tensor["shape"]), True
        for number, (dim, parts, first, *named) in enumerate(tensor["cuts"]):
            coordinate, degree = 0, 1
            for axis in named[0] if named else [number]:
                coordinate = coordinate * manifest["grid"][axis] + coordinates[axis]
                degree *= manifest["grid"][axis]
            chunk, apart = divmod(coordinate - first, degree // parts)
            holds = holds and 0 <= chunk < parts and apart == 0
            if holds and parts > 1:
                rows = -(-size[dim] // parts)
                begin = min(size[dim], rows * chunk)
                offset[dim], size[dim] = offset[dim] + begin, min(size[dim], begin + rows) - begin
        if holds and 0 not in size:
            slabs.append({"file": writer, "offset": offset, "size": size})
    return slabs


def read_checkpoint(manifest_path):
    """{name: array} of a step or a full file."""
    kind, rest, _, manifest, data, table_range = read_file(manifest_path)
    files, ranges = manifest["files"], [table_range]
    shards, tables = [], []
    for number, file in enumerate(files):
        shard = read_file(manifest_path.parent / shard_name(number, len(files)))
        assert (shard[0], shard[2], len(shard[4])) == ("shard", file["check"], file["bytes"])
        assert shard[3]["set"] == manifest["set"]
        own = shard[3]["slabs"]
        widths = [(slab["at"], int(numpy.prod(slab["size"])) * numpy.dtype(TYPES[slab["type"]]).itemsize) for slab in own]
        check_rest(shard[1], shard[4], [shard[5], *widths])
        shards.append(shard[4])
        tables.append({slab["tensor"]: slab for slab in own})
    tensors = {}
    for tensor in manifest["tensors"]:
        dtype = numpy.dtype(TYPES[tensor["type"]])
        whole = tensors[tensor["name"]] = numpy.zeros(tensor["shape"], dtype)
        for slab in tensor["slabs"] if kind == "full" else slabs_of(manifest, tensor):
            if kind == "manifest":
                stored = tables[slab["file"]].pop(tensor["name"])
                assert (stored["offset"], stored["size"]) == (slab["offset"], slab["size"])
                slab = {**slab, **stored}
            count = int(numpy.prod(slab["size"]))
            source = data if kind == "full" else shards[slab["file"]]
            part = source[slab["at"]:slab["at"] + count * dtype.itemsize]
            assert check(part) == slab["hash"]
            whole[index(slab)] = numpy.frombuffer(part, dtype).reshape(slab["size"])
            if kind == "full":
                ranges.append((slab["at"], len(part)))
    assert not any(tables), "shards have slabs that the plan does not give them"
    for asset in manifest["assets"]:
        ranges.append((asset["at"], asset["bytes"]))
        assert check(data[asset["at"]:asset["at"] + asset["bytes"]]) == asset["hash"]
    check_rest(rest, data, ranges)
    return tensors


def shard_name(writer, num_writers):
    return f"shard-{writer:05}-of-{num_writers:05}.h5"


class OtherReaders(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        subprocess.run([os.environ["ARGOSY_WRITE_SAMPLE"], self.folder, "17"], check=True)
        self.step, self.joint = (self.folder / run / "step-00000007" for run in ("run", "joint"))
        self.tensors = json.loads((self.folder / "tensors.json").read_text())
        self.assertEqual({tensor["type"] for tensor in self.tensors}, TYPES.keys())

    def expected(self, tensor):
        return numpy.fromfile(self.folder / tensor["file"], TYPES[tensor["type"]]).reshape(tensor["shape"])

    def assert_same(self, array, tensor):
        self.assertEqual(list(array.shape), tensor["shape"], tensor["name"])
        self.assertEqual(array.tobytes(), self.expected(tensor).tobytes(), tensor["name"])

    def test_h5py_reads_the_full_tensors_bit_for_bit(self):
        for path in (self.step / "checkpoint.h5", self.joint / "checkpoint.h5", self.folder / "all.h5"):
            with h5py.File(path) as file:
                for tensor in self.tensors:
                    self.assertEqual(file[tensor["name"]].is_virtual, path.name != "all.h5" and 0 not in tensor["shape"])
                    self.assert_same(raw(file[tensor["name"]], TYPES[tensor["type"]]), tensor)
                self.assertEqual(bytes(file["assets/tokenizer.json"][()]), b'{"a": 1}\n')
                self.assertEqual(json.loads(bytes(file["table"][()]))["step"], 7)

    def test_h5py_reads_values_as_people_do(self):
        """Without a word about types: bf16 and f16 come as floats that hold the same numbers."""
        with h5py.File(self.step / "checkpoint.h5") as file:
            for tensor in self.tensors:
                values = file[tensor["name"]][()]
                expected = self.expected(tensor)
                if tensor["type"] in FLOATS:  # random bits: a NaN's payload may change, its being one may not
                    values, expected = numpy.asarray(values, "f8"), expected.astype("f8")
                self.assertTrue(numpy.array_equal(values, expected, equal_nan=tensor["type"] in FLOATS), tensor["name"])

    def test_attributes_say_what_a_file_is(self):
        for path, kind, version in ((self.step / "checkpoint.h5", "manifest", "2.0"), (self.joint / "checkpoint.h5", "manifest", "3.0"),
                                    (self.folder / "all.h5", "full", "2.0")):
            with h5py.File(path) as file:
                table = json.loads(bytes(file["table"][()]))
                found = {name: value.decode() if isinstance(value, bytes) else int(value)
                         for name, value in file.attrs.items()}
            self.assertEqual(json.loads(found.pop("model")), table["model"])
            expected = {name: table[name] for name in ("program", "mesh", "config", "step", "model_only")}
            self.assertEqual(found, {"format": f"argosy checkpoint {version}", "kind": kind, **expected})

    def test_a_missing_shard_reads_as_nan_never_as_a_number(self):
        manifest = json.loads(bytes(h5py.File(self.step / "checkpoint.h5")["table"][()]))
        (self.step / shard_name(1, len(manifest["files"]))).unlink()
        lost = 0
        with h5py.File(self.step / "checkpoint.h5") as file:
            for listed in manifest["tensors"]:
                tensor = next(each for each in self.tensors if each["name"] == listed["name"])
                values, expected = raw(file[tensor["name"]], TYPES[tensor["type"]]), self.expected(tensor)
                for slab in slabs_of(manifest, listed):
                    part = values[index(slab)]
                    if slab["file"] != 1:
                        self.assertEqual(part.tobytes(), expected[index(slab)].tobytes())
                        continue
                    lost += 1
                    missing = numpy.isnan(part.astype("f8")) if tensor["type"] in FLOATS else part == 0
                    self.assertTrue(numpy.all(missing), tensor["name"])
        self.assertGreater(lost, 5)

    def test_the_format_is_as_it_is_described(self):
        for path in (self.step / "checkpoint.h5", self.joint / "checkpoint.h5", self.folder / "all.h5"):
            tensors = read_checkpoint(path)
            self.assertEqual(tensors.keys(), {tensor["name"] for tensor in self.tensors})
            for tensor in self.tensors:
                self.assert_same(tensors[tensor["name"]], tensor)

    def test_files_carry_old_superblocks(self):
        """Version 0, which every HDF5 opens and which bears no mark of being written."""
        for path in (*self.step.iterdir(), self.folder / "all.h5"):
            self.assertEqual(path.read_bytes()[512:521], b"\x89HDF\r\n\x1a\n\x00", path)


if __name__ == "__main__":
    unittest.main()
