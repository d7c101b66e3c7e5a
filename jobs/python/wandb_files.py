"""Writes a run as an offline run of Weights & Biases: DIR/offline-run-TIME-ID/run-ID.wandb.

The file is a log of records in blocks, in the format of LevelDB's log with another checksum, after a header of 7 bytes. A
record is a message of wandb's protocol (wandb/proto/wandb_internal.proto) in the encoding of protocol buffers; the constants
below are its field numbers.
"""
import json
import struct
import time
import zlib

HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
BLOCK_BYTES, PREFIX_BYTES = 32768, 7  # a piece of a record has a prefix: checksum, length, kind
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4

# Record
NUM, HISTORY, SUMMARY, RUN, EXIT, HEADER_RECORD = 1, 2, 3, 17, 18, 21
# RunRecord
RUN_ID, PROJECT, CONFIG, DISPLAY_NAME, NOTES, HOST, START_TIME = 1, 3, 4, 8, 9, 13, 17
# HistoryRecord, ConfigRecord and SummaryRecord: items; an item of each has a key and a value
ITEM, STEP, KEY, VALUE_JSON = 1, 2, 1, 16
EXIT_CODE, RUNTIME = 1, 2  # RunExitRecord


def varint(number):
    """A number of the encoding: seven bits per byte, lowest first."""
    number &= (1 << 64) - 1  # negative numbers are two's complements of 64 bits
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes(found + bytes([number]))


def field(number, value):
    """A field of a message: an integer, a text, or another message as bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def item(name, value):
    return field(ITEM, field(KEY, name) + field(VALUE_JSON, json.dumps(value)))


class RecordFile:
    def __init__(self, file):
        self.file, self.size, self.num_records = file, 0, 0
        self.put(HEADER)

    def put(self, data):
        self.file.write(data)
        self.size += len(data)

    def piece(self, kind, data):
        self.put(struct.pack("<IHB", zlib.crc32(data, zlib.crc32(bytes([kind]))), len(data), kind) + data)

    def write(self, number, message):
        """Adds a record with `message` as its field `number`."""
        self.num_records += 1
        data, is_first = field(NUM, self.num_records) + field(number, message), True
        while True:
            room = BLOCK_BYTES - self.size % BLOCK_BYTES
            if room < PREFIX_BYTES:
                self.put(bytes(room))
                room = BLOCK_BYTES
            part, data = data[:room - PREFIX_BYTES], data[room - PREFIX_BYTES:]
            self.piece((LAST if not is_first else FULL) if not data else FIRST if is_first else MIDDLE, part)
            if not data:
                return
            is_first = False


def typed(text):
    """A value of the configuration: numbers, booleans and lists as JSON has them; other values stay texts."""
    try:
        return json.loads(text.replace("_", "") if text[:1].isdigit() else text)
    except ValueError:
        return text


def config_of(run):
    """By section, as W&B nests them."""
    sections = {"argosy": run.facts}
    for name, text in run.config.items():
        section, _, key = name.rpartition(".")
        sections.setdefault(section or "run", {})[key] = typed(text)
    return sections


def run_id(run):
    return run.digest[:8]


def place_of(run, target):
    """The folder of an earlier export, or a new one."""
    earlier = sorted(target.glob(f"offline-run-*-{run_id(run)}"))
    return earlier[0] if earlier else target / f"offline-run-{time.strftime('%Y%m%d_%H%M%S', time.gmtime(run.begin))}-{run_id(run)}"


def run_record(run):
    seconds = int(run.begin)
    begin = field(1, seconds) + field(2, int(1e9 * (run.begin - seconds)))
    config = b"".join(item(name, value) for name, value in config_of(run).items())
    return (field(RUN_ID, run_id(run)) + field(PROJECT, run.project) + field(CONFIG, config) + field(DISPLAY_NAME, run.name) +
            field(NOTES, run.config.get("job.description", "")) + field(HOST, str(run.facts.get("host", ""))) + field(START_TIME, begin))


def write(run, made, folder):
    """`made`: the empty folder to fill; `folder`: where it will be."""
    (made / "files").mkdir()
    with open(made / f"run-{run_id(run)}.wandb", "wb") as file:
        records, newest = RecordFile(file), {}
        records.write(HEADER_RECORD, b"")
        records.write(RUN, run_record(run))
        for step, seconds, values in run.steps():
            values = {**values, "_step": step, "_timestamp": round(seconds, 3), "_runtime": round(seconds - run.begin, 3)}
            records.write(HISTORY, b"".join(item(name, value) for name, value in values.items()) + field(STEP, field(1, step)))
            newest.update(values)
        records.write(SUMMARY, b"".join(item(name, value) for name, value in newest.items()))
        if run.state != "running":
            records.write(EXIT, field(EXIT_CODE, run.exit_code) + field(RUNTIME, int(newest["_runtime"])))
