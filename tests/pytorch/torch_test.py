#!/usr/bin/env python3
"""Torch writes, `saves` (saves.cpp) reads and writes, and torch reads: distributed checkpoints of 1, 2 and 4 ranks with even and
uneven shards on meshes of one and two dims, and files of torch.save. Ranks are forks of this process, since torch loads slowly."""
import ast
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings
import zipfile
from datetime import timedelta
from pathlib import Path

sys.setdlopenflags(os.RTLD_LAZY)  # nothing calls the libraries of CUDA, which a machine without a GPU does not have
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
try:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint._extension import StreamTransformExtension
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.distributed.tensor.placement_types import _StridedShard
except (ImportError, OSError) as error:
    print(f"skipped: torch does not load ({error}); jobs/setup.sh --tests installs what it needs")
    sys.exit(77)

SAVES = os.environ["ARGOSY_SAVES"]
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64, "i64": torch.int64,
         "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32,
         "u64": torch.uint64, "f8_e4m3": torch.float8_e4m3fn, "f8_e5m2": torch.float8_e5m2}
OBJECTS = {"step": 12, "text": "a b", "list": [1, 2.5, None, True, (1,)], "nested": {"x": {"y": 3.0, "z": -5}},
           "large": 1 << 40, "negative": -(1 << 33), "none": None}


def saves(*words, code=0):
    """Runs `saves`; returns its output, or its message if it is to fail with `code`."""
    run = subprocess.run([SAVES, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert run.returncode == code, (words, run.returncode, run.stderr)
    return run.stderr if code else run.stdout


def raw(tensor):
    """The bytes of a tensor, row-major."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def check(path, tensors, objects, others=(), max_elements=1 << 20):
    """Compares what `saves` reads at `path` with the whole tensors and the objects that were saved."""
    with tempfile.TemporaryDirectory() as folder:
        found, found_objects, found_others = set(), {}, set()
        for line in saves("dump", path, folder, max_elements).splitlines():
            first, rest = line.split(" ", 1)
            if first == "object":
                name, value = rest.split(" ", 1)
                found_objects[name] = ast.literal_eval(value)
                continue
            if first == "other":
                found_others.add(tuple(rest.split(" ")))
                continue
            kind, rest = rest.split(" ", 1)
            shape, name = rest.split("] ", 1)
            tensor = tensors[name]
            expected = TYPES[kind] if tensor.dtype != torch.bool else torch.bool
            assert tensor.dtype == expected, (name, kind)
            assert list(tensor.shape) == ast.literal_eval(shape + "]"), (name, shape)
            assert (Path(folder) / first).read_bytes() == raw(tensor), name
            found.add(name)
        assert found == set(tensors), found ^ set(tensors)
        assert found_objects == objects, (found_objects, objects)
        assert found_others == set(others), found_others


def flat(objects, prefix=""):
    """Objects under the keys of a distributed checkpoint: dicts are flattened."""
    result = {}
    for name, value in objects.items():
        if isinstance(value, dict):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[prefix + name] = value
    return result


def on_ranks(world, folder, body):
    """Runs body(rank) in `world` processes with a process group; fails if one of them does."""
    children, store = [], Path(tempfile.mkdtemp(dir=folder)) / "store"
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                dist.init_process_group("gloo", store=dist.FileStore(str(store), world), rank=rank, world_size=world,
                                        timeout=timedelta(seconds=60))
                body(rank)
                dist.destroy_process_group()
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    assert not any(codes), (body.__name__, world, codes)


def whole(name, *shape, kind=torch.float32):
    generator = torch.Generator().manual_seed(len(name) * 1000 + sum(shape))
    return torch.randn(shape, generator=generator).to(kind)


ON_LINE = {  # by a mesh of one dim
    "rows": (whole("rows", 9, 4), Shard(0)), "uneven": (whole("uneven", 5, 3), Shard(0)), "columns": (whole("columns", 6, 7), Shard(1)),
    "one_row": (whole("one_row", 1, 4), Shard(0)), "replicated": (whole("replicated", 3, 3), Replicate()),
    "inner": (whole("inner", 3, 5, 2, kind=torch.bfloat16), Shard(1)), "empty": (whole("empty", 0, 4), Shard(0)),
    "vector": (whole("vector", 11, kind=torch.float64), Shard(0))}
ON_GRID = {  # by a mesh of 2 x 2
    "grid": (whole("grid", 5, 7), [Shard(0), Shard(1)]), "hsdp": (whole("hsdp", 7, 2), [Replicate(), Shard(0)]),
    "twice": (whole("twice", 10, 3), [Shard(0), Shard(0)]), "strided": (whole("strided", 8, 3), [_StridedShard(0, split_factor=2), Shard(0)]),
    "last": (whole("last", 6, 9), [Shard(1), Replicate()])}
PLAIN = {"scalar": torch.tensor(3.5), "count": torch.tensor(7, dtype=torch.int32), "flags": torch.tensor([True, False, True]),
         "transposed": whole("transposed", 4, 6).t(), "short": torch.arange(3, dtype=torch.int16)}


def shards(world):
    """Saves shards of the tensors above, and objects."""
    def write(rank):
        line = init_device_mesh("cpu", (world,))
        state = {name: distribute_tensor(tensor, line, [placement]) for name, (tensor, placement) in ON_LINE.items()}
        if world == 4:
            grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
            state |= {name: distribute_tensor(tensor, grid, placements) for name, (tensor, placements) in ON_GRID.items()}
        writer = dcp.FileSystemWriter(str(FOLDER / f"shards-{world}"), thread_count=2 if world == 1 else 1)
        dcp.save(state | PLAIN | OBJECTS, storage_writer=writer)
    return write


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(6, 10)
        self.down = torch.nn.Linear(10, 6, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def trained(world):
    """Saves a model with FSDP (and tensor parallelism on 4 ranks) and its optimizer after a step; rank 0 saves them whole."""
    def write(rank):
        torch.manual_seed(1)
        model = torch.nn.Sequential(Block(), Block())
        if world == 4:
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            for block in model:
                parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
            mesh = mesh["dp"]
        else:
            mesh = init_device_mesh("cpu", (world,))
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
        model(torch.ones(2, 6)).square().sum().backward()
        optimizer.step()
        weights, states = get_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
        dcp.save({"model": weights, "optimizer": states}, checkpoint_id=str(FOLDER / f"trained-{world}"))
        full = {}
        for prefix, part in (("model.", weights), ("optimizer.", states)):
            for name, value in part.items():
                full[prefix + name] = value.full_tensor() if isinstance(value, DTensor) else value
        if rank == 0:
            torch.save(full, FOLDER / f"trained-{world}.pt")
    return write


def load_shards(rank):
    """Loads what `saves` wrote, each tensor cut in two."""
    mesh = init_device_mesh("cpu", (2,))
    state = {name: distribute_tensor(torch.zeros_like(tensor), mesh, [Shard(0)]) for name, (tensor, _) in ON_LINE.items()}
    dcp.load(state, checkpoint_id=str(FOLDER / "copy-4"))
    for name, (tensor, placement) in ON_LINE.items():
        expected = distribute_tensor(tensor, mesh, [Shard(0)])
        assert torch.equal(state[name].to_local(), expected.to_local()), name


def test_shards():
    for world in (1, 2, 4):
        on_ranks(world, FOLDER, shards(world))
        tensors = {name: tensor for name, (tensor, _) in ON_LINE.items()}
        if world == 4:
            tensors |= {name: tensor for name, (tensor, _) in ON_GRID.items()}
        tensors |= {name: tensor for name, tensor in PLAIN.items() if name != "short"}
        for max_elements in (1, 5, 1 << 20):
            check(FOLDER / f"shards-{world}", tensors, flat(OBJECTS), {("short", "torch.int16")}, max_elements)


def test_trained():
    for world in (2, 4):
        on_ranks(world, FOLDER, trained(world))
        full = torch.load(FOLDER / f"trained-{world}.pt")
        tensors = {name: value for name, value in full.items() if torch.is_tensor(value)}
        assert len(tensors) == 6 * 4 and any(name.endswith("exp_avg_sq") for name in tensors)
        check(FOLDER / f"trained-{world}", tensors, {name: value for name, value in full.items() if name not in tensors}, max_elements=7)


def test_copy():
    for name in ("shards-4", "trained-4"):
        copy = FOLDER / name.replace("shards", "copy")
        copy = copy if copy.name != name else FOLDER / f"{name}-copy"
        copy.mkdir()
        saves("copy", FOLDER / name, copy, 2000)
        assert len(list(copy.glob("__0_*.distcp"))) > 1
        for item in zip_items(copy):
            assert item.testzip() is None  # compares checksums
        dcp_to_torch_save(str(copy), FOLDER / "ours.pt")
        dcp_to_torch_save(str(FOLDER / name), FOLDER / "theirs.pt")
        ours = torch.load(FOLDER / "ours.pt")
        theirs = {key: value for key, value in flat(torch.load(FOLDER / "theirs.pt")).items() if key != "short"}
        assert set(ours) == set(theirs), set(ours) ^ set(theirs)
        for key, value in theirs.items():
            same = torch.equal(ours[key], value) and ours[key].dtype == value.dtype if torch.is_tensor(value) else ours[key] == value
            assert same or (key == "flags" and ours[key].tolist() == value.tolist()), key
    on_ranks(2, FOLDER, load_shards)


def zip_items(folder):
    """Each item of a distributed checkpoint, opened as a zip by Python."""
    import io
    info = dcp.FileSystemReader(str(folder)).read_metadata().storage_data
    for place in info.values():
        yield zipfile.ZipFile(io.BytesIO((folder / place.relative_path).read_bytes()[place.offset:place.offset + place.length]))


def test_saved_files():
    base = whole("base", 6, 8)
    tensors = {kind: torch.arange(6).to(TYPES[kind]).reshape(2, 3) for kind in TYPES}
    tensors |= {"transposed": base.t(), "part": base[1:4, 2:7], "stepped": base[::2, ::3], "shared": base,
                "expanded": base[0].expand(3, 8), "permuted": whole("permuted", 2, 3, 4).permute(1, 2, 0), "scalar": torch.tensor(2.0),
                "flag": torch.tensor([True, False]), "none": torch.zeros(0, 3), "parameter": torch.nn.Parameter(whole("parameter", 3)),
                "apart": whole("apart", 3000, 3)[:, 1]}
    tensors["attribute"] = whole("attribute", 3)
    tensors["attribute"].mark = "x"
    path = FOLDER / "weights.pth"
    torch.save({"model": tensors, "list": [base, (base + 1,)], 5: {"bytes": b"\xff", "set": {1, 2}}, "step": 3,
                "short": torch.arange(3, dtype=torch.int16), "complex": torch.zeros(2, dtype=torch.complex64)}, path)
    expected = {f"model.{name}": tensor for name, tensor in tensors.items()} | {"list.0": base, "list.1.0": base + 1}
    for max_elements in (1, 7, 1 << 20):
        check(path, expected, {}, {("short", "torch.int16"), ("complex", "torch.complex64")}, max_elements)

    module = torch.nn.Linear(3, 2)
    torch.save(module.state_dict(), path)
    check(path, dict(module.state_dict()), {})
    torch.save(base, path)
    check(path, {"": base}, {})


class Runs:
    """A class whose pickle runs a command when Python loads it."""

    def __reduce__(self):
        return os.system, (f"touch {FOLDER / 'executed'}",)


class Plain(StreamTransformExtension):
    @staticmethod
    def from_descriptor(version):
        return Plain()

    @staticmethod
    def registry_name():
        return "stream.plain"

    def get_descriptor(self):
        return "stream.plain/1"

    def transform_to(self, output):
        return output

    def transform_from(self, input):
        return input


def test_refused():
    path, nowhere = FOLDER / "refused.pth", FOLDER / "nowhere"
    nowhere.mkdir()

    def refused(*words, code=2, at=path):
        message = saves("dump", at, nowhere, code=code)
        assert all(word in message for word in words) and message.count("\n") == 1, message

    torch.save({"a": torch.zeros(2)}, path, _use_new_zipfile_serialization=False)
    refused("before torch 1.6", str(path), "torch.load")
    torch.save(torch.nn.Linear(2, 2), path)
    refused("torch.nn.modules.linear.Linear", "state_dict()")
    torch.save({"a": torch.zeros(2), "b": Runs()}, path)
    refused("posix.system")
    assert not (FOLDER / "executed").exists()
    torch.save({"a": torch.zeros(2, dtype=torch.complex64).conj()}, path)
    refused("conjugate")
    torch.save({"a": torch.zeros(100)}, path)
    with zipfile.ZipFile(path) as plain, zipfile.ZipFile(FOLDER / "packed.pth", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    refused("compressed", at=FOLDER / "packed.pth")
    with zipfile.ZipFile(FOLDER / "big.pth", "w") as big:
        big.writestr("x/data.pkl", b"\x80\x02}.")
        big.writestr("x/byteorder", "big")
    refused("big", "little-endian", at=FOLDER / "big.pth")
    with zipfile.ZipFile(FOLDER / "other.pth", "w") as other:
        other.writestr("x.txt", "x")
    refused("torch.save", "data.pkl", at=FOLDER / "other.pth")
    path.write_bytes(b"")
    refused("empty", code=3)
    path.write_text("{}")
    refused("no file of torch.save")

    dcp.save({"a": torch.zeros(2)}, storage_writer=dcp.FileSystemWriter(str(FOLDER / "extended"), _extensions=[Plain()]), no_dist=True)
    refused("item", "stream.plain/1", at=FOLDER / "extended")
    for name, damage, words, code in DAMAGES:
        copy = FOLDER / f"damaged-{name}"
        shutil.copytree(FOLDER / "shards-2", copy)
        damage(copy)
        refused(*words, code=code, at=copy)


def truncate(path, count):
    path.write_bytes(path.read_bytes()[:-count])


def edit_metadata(change):
    def edit(folder):
        import pickle
        metadata = pickle.loads((folder / ".metadata").read_bytes())
        change(metadata)
        (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    return edit


def swap_types(metadata):
    metadata.state_dict_metadata["rows"].properties.dtype = torch.int32


def drop_chunk(metadata):
    metadata.state_dict_metadata["rows"].chunks.pop()


def repeat_rows(metadata):
    chunk = metadata.state_dict_metadata["rows"].chunks[1]
    old = chunk.offsets
    chunk.offsets = torch.Size([4, 0])
    places = metadata.storage_data
    index = next(key for key in places if key.fqn == "rows" and key.offset == old)
    places[dcp.metadata.MetadataIndex("rows", chunk.offsets)] = places.pop(index)


def drop_place(metadata):
    places = metadata.storage_data
    del places[next(key for key in places if key.fqn == "rows")]


def swap_items(metadata):
    places = metadata.storage_data
    one, other = (next(key for key in places if key.fqn == name) for name in ("rows", "columns"))
    places[one], places[other] = places[other], places[one]


DAMAGES = (
    ("lacks-file", lambda folder: (folder / "__1_0.distcp").unlink(), ("lacks the file __1_0.distcp",), 3),
    ("lacks-end", lambda folder: truncate(folder / "__0_0.distcp", 100), ("__0_0.distcp is truncated",), 3),
    ("metadata-cut", lambda folder: truncate(folder / ".metadata", 50), (".metadata", "lacks its end"), 3),
    ("other-type", edit_metadata(swap_types), ("rows", "torch.float32", "torch.int32", "distcp"), 3),
    ("gap", edit_metadata(drop_chunk), ("rows", "20 of 36 elements"), 3),
    ("overlap", edit_metadata(repeat_rows), ("rows", "[0, 0] of [5, 4]", "[4, 0] of [4, 4]", "overlap"), 3),
    ("no-place", edit_metadata(drop_place), ("rows", "storage_data"), 3),
    ("swapped", edit_metadata(swap_items), ("distcp", "is damaged"), 3),
)


def main():
    for test in (test_shards, test_trained, test_copy, test_saved_files, test_refused):
        test()
        print(test.__name__, "passed", flush=True)


if __name__ == "__main__":
    FOLDER = Path(tempfile.mkdtemp(prefix="argosy-test-"))
    try:
        main()
    finally:
        shutil.rmtree(FOLDER)
