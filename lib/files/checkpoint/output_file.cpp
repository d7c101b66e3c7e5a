#include "checkpoint/output_file.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "checkpoint/input_file.h"

namespace argosy::checkpoint {
namespace {

constexpr const char* kTableName = "table";

UserBlock lay_out_file(const std::filesystem::path& path, UserBlock block,
                       const OutputFile::LayOut& lay_out) {
    RawFile::create(path);  // its error tells a forbidden path from a full disk; HDF5's does not
    h5::File file = h5::File::create(path, kUserBlockBytes);
    block.table_bytes = static_cast<int64_t>(lay_out(file).size());
    if (block.table_bytes > kMaxTableBytes) {
        throw UserError(
            "{}: its table has {} bytes, and readers take {} at most: the step has too many tensors",
            path.string(), block.table_bytes, kMaxTableBytes);
    }
    block.table_at = place_dataset(file, kTableName, ElementType::UInt8, std::array{block.table_bytes});
    file.close();
    return block;
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path, FileKind kind, const LayOut& lay_out,
                       std::string_view format)
    : block_(lay_out_file(path, {.format = format, .kind = kind}, lay_out)),
      file_(RawFile::open_to_write(path)) {
    block_.num_bytes = file_.size_bytes();
}

void OutputFile::finish(const std::string& table, std::vector<ByteRange> checked,
                        const std::optional<Hash>& set) {
    ARGOSY_CHECK(static_cast<int64_t>(table.size()) == block_.table_bytes, "{}: a table of {} bytes in {}",
                 file_.path().string(), table.size(), block_.table_bytes);
    file_.write_at(block_.table_at, std::as_bytes(std::span(table)));
    block_.table_hash = hash_of(table);
    checked.push_back({block_.table_at, block_.table_bytes});
    block_.rest = hash_of(file_, gaps(std::move(checked), file_.path().string(), block_.num_bytes));
    block_.set = set;
    const std::string block = to_text(block_);
    file_.write_at(0, std::as_bytes(std::span(block)));
    file_.sync();
}

void describe(h5::File& file, FileKind kind, std::string_view format, const Description& description) {
    constexpr size_t kMaxBytes = 60'000;  // HDF5's oldest format has room for 64 KiB in one attribute
    const auto set_text = [&](const char* name, const std::string& text) {
        if (text.size() <= kMaxBytes) file.set_attribute(name, text);
    };
    file.set_attribute("format", fmt::format("{}{}", kMagic, format));
    file.set_attribute("kind", name(kind));
    file.set_attribute("program", description.program);
    file.set_attribute("step", description.step);
    file.set_attribute("model_only", int64_t{description.model_only});
    set_text("mesh", description.mesh);
    set_text("model", description.model);
    set_text("config", description.config);
}

int64_t place_dataset(h5::File& file, const std::string& name, ElementType type,
                      std::span<const int64_t> shape) {
    const h5::Dataset dataset = file.create_dataset(name, type, shape);
    return dataset.num_elements() == 0 ? kUserBlockBytes : dataset.offset();
}

std::vector<StoredAsset> place_assets(h5::File& file, const std::vector<Asset>& assets) {
    std::vector<StoredAsset> places;
    for (const Asset& asset : assets) {
        check_file_name(asset.name, file.place());
        const auto size = static_cast<int64_t>(asset.bytes.size());
        const int64_t at = place_dataset(file, "assets/" + asset.name, ElementType::UInt8, std::array{size});
        places.push_back({asset.name, at, size, hash_of(asset.bytes)});
    }
    return places;
}

void write_assets(const OutputFile& file, const std::vector<StoredAsset>& places,
                  const std::vector<Asset>& assets) {
    for (size_t i = 0; i < assets.size(); ++i) {
        file.file().write_at(places[i].at, std::as_bytes(std::span(assets[i].bytes)));
    }
}

}  // namespace argosy::checkpoint
