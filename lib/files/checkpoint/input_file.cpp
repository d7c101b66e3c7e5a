#include "checkpoint/input_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/content_kind.h"
#include "base/error.h"
#include "checkpoint/gather.h"
#include "checkpoint/step_folder.h"

namespace argosy::checkpoint {
namespace {

constexpr int64_t kBufferBytes = int64_t{1} << 20;

/// Refuses a file without a user block. The file is a damaged one of a checkpoint if its name is that of one,
/// if HDF5's signature follows where the user block should end, or if nothing but zeros is there.
[[noreturn]] void refuse_begin(const RawFile& file, const std::string& begin) {
    constexpr std::string_view kHdf5Mark = "\x89HDF\r\n\x1a\n";
    const std::string place = file.path().string(), name = file.path().filename().string();
    std::string next(kHdf5Mark.size(), '\0');
    if (file.size_bytes() >= kUserBlockBytes + static_cast<int64_t>(next.size()))
        file.read_at(kUserBlockBytes, std::as_writable_bytes(std::span(next)));
    if (name == kManifestName || name.starts_with("shard-") || next == kHdf5Mark ||
        begin.find_first_not_of('\0') == begin.npos) {
        throw DamageError("{} is damaged: it does not begin with '{}', as each file of a checkpoint does",
                          place, kMagic);
    }
    const std::string kind = kind_of_content(begin);
    throw UserError(
        "{} is {}, and does not begin with '{}'; a model of another form is read from a Hugging Face folder "
        "with config.json and model.safetensors",
        place, kind.empty() ? "not a checkpoint file" : kind, kMagic);
}

UserBlock read_block(const RawFile& file) {
    const std::string place = file.path().string();
    const int64_t size = file.size_bytes();
    std::string text(kUserBlockBytes, '\0');
    file.read_at(0, std::as_writable_bytes(std::span(text)).first(std::min(size, kUserBlockBytes)));
    if (size < kUserBlockBytes && kMagic.starts_with(text.substr(0, std::min<size_t>(size, kMagic.size())))) {
        throw DamageError("{} is truncated: it has {} bytes, but at least {} were expected", place, size,
                          kUserBlockBytes);
    }
    if (!text.starts_with(kMagic)) refuse_begin(file, text.substr(0, std::min(size, kUserBlockBytes)));
    const UserBlock block = parse_user_block(text, place);
    if (block.num_bytes != size) {
        throw DamageError("{} is {}: it has {} bytes, but {} were expected", place,
                          size < block.num_bytes ? "truncated" : "too long", size, block.num_bytes);
    }
    return block;
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    : file_(RawFile::open_to_read(path)), block_(read_block(file_)) {}

std::string InputFile::table() const {
    std::string text(block_.table_bytes, '\0');
    file_.read_at(block_.table_at, std::as_writable_bytes(std::span(text)));
    const Hash found = hash_of(text);
    if (found != block_.table_hash) {
        throw DamageError(
            "{}: its table ({} bytes at {}, outside the tensors) is damaged: it gives the check {}, and {} "
            "was expected",
            place(), block_.table_bytes, block_.table_at, found.hex(), block_.table_hash.hex());
    }
    return text;
}

Hash hash_of(const RawFile& file, std::span<const ByteRange> ranges) {
    Hasher hasher;
    std::vector<std::byte> buffer;
    for (ByteRange range : ranges) {
        while (range.num_bytes > 0) {
            const int64_t count = std::min(range.num_bytes, kBufferBytes);
            buffer.resize(std::max<size_t>(buffer.size(), count));
            const std::span<std::byte> part(buffer.data(), count);
            file.read_at(range.at, part);
            hasher.add(part);
            range = {range.at + count, range.num_bytes - count};
        }
    }
    return hasher.value();
}

CommonRead read_common(const RawFile& file, const TensorInfo& tensor, const StoredSlab& stored,
                       const layout::Slab& wanted, std::span<std::byte> out) {
    const layout::Slab common = *layout::intersection(stored.slab, wanted);
    const int64_t width = size_bytes(tensor.type);
    Gather gather(file, out);
    int64_t num_runs = 0, first = 0;  // number of runs; offset of the first in `out`
    for_each_run(common, stored.slab, wanted, [&](const layout::Run& run) {
        if (num_runs++ == 0) first = run.in_b * width;
        gather.add(stored.at + run.in_a * width, run.in_b * width, run.length * width);
    });
    gather.flush();
    const bool whole = num_runs == 1 && common == stored.slab;
    if (whole) {
        const Hash found = hash_of(out.subspan(first, stored.slab.num_elements() * width));
        const std::string fault = fault_of(file, tensor, stored, found);
        if (!fault.empty()) throw DamageError("{}", fault);
    }
    return {gather.fetched(), whole};
}

std::string fault_of(const RawFile& file, const TensorInfo& tensor, const StoredSlab& stored,
                     const Hash& found) {
    if (found == stored.hash) return {};
    return fmt::format(
        "{}: tensor '{}' is damaged: its slab at {} of {} gives the check {}, and {} was expected",
        file.path().string(), tensor.name, stored.slab.offset, stored.slab.size, found.hex(),
        stored.hash.hex());
}

std::string fault_of(const RawFile& file, const StoredAsset& asset, const Hash& found) {
    if (found == asset.hash) return {};
    return fmt::format("{}: asset '{}' is damaged: it gives the check {}, and {} was expected",
                       file.path().string(), asset.name, found.hex(), asset.hash.hex());
}

void check_save(const InputFile& shard, const Hash& found, const Hash& expected) {
    if (found == expected) return;
    throw DamageError("{} is a foreign shard: it belongs to the save {}, and {} was expected", shard.place(),
                      found.hex(), expected.hex());
}

ShardTable read_shard_table(const InputFile& shard, const Hash& set) {
    ShardTable table = parse_shard_table(shard.table(), shard.place() + ": its table", shard.table_file());
    check_save(shard, table.set, set);
    return table;
}

}  // namespace argosy::checkpoint
