#include "interop/safetensors.h"

#include <fmt/format.h>

#include <array>
#include <set>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::interop {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorInfo;

constexpr int64_t kMaxIndexBytes = 100'000'000;

std::vector<SafetensorsEntry> read_header(const RawFile& file) {
    const std::string place = file.path().string();
    if (file.size_bytes() < kSafetensorsLengthBytes)
        throw DamageError("{} is truncated: it has {} bytes", place, file.size_bytes());
    std::array<unsigned char, kSafetensorsLengthBytes> raw{};
    file.read_at(0, std::as_writable_bytes(std::span(raw)));
    uint64_t length = 0;
    for (size_t i = raw.size(); i-- > 0;) length = length << 8 | raw[i];
    if (length > kMaxSafetensorsHeaderBytes) {
        throw UserError("{} is no safetensors file: its header would have {} bytes; at most {} are allowed",
                        place, length, kMaxSafetensorsHeaderBytes);
    }
    const auto header_bytes = static_cast<int64_t>(length);
    const int64_t data_bytes = file.size_bytes() - kSafetensorsLengthBytes - header_bytes;
    if (data_bytes < 0) {
        throw DamageError(
            "{} is truncated: its header would end at byte {}, but the file has {} bytes. Copy it again",
            place, kSafetensorsLengthBytes + header_bytes, file.size_bytes());
    }
    std::string text(length, '\0');
    file.read_at(kSafetensorsLengthBytes, std::as_writable_bytes(std::span(text)));
    std::vector<SafetensorsEntry> entries = parse_safetensors_header(text, data_bytes, place);
    for (SafetensorsEntry& entry : entries) entry.at += kSafetensorsLengthBytes + header_bytes;
    return entries;
}

}  // namespace

Safetensors::Safetensors(const fs::path& path) : place_(path.string()) {
    if (!fs::is_directory(path)) {
        add_file(path);
    } else if (fs::exists(path / kSafetensorsName) || !fs::exists(path / kSafetensorsIndexName)) {
        add_file(path / kSafetensorsName);
    } else {
        add_index(path);
    }
}

void Safetensors::add_file(const fs::path& path) {
    const size_t index = files_.size();
    const RawFile& file = files_.emplace_back(RawFile::open_to_read(path));
    for (SafetensorsEntry& entry : read_header(file)) {
        const auto [known, is_new] = locations_.emplace(entry.info.name, Location{index, entry.at});
        if (!is_new) {
            throw UserError("tensor {} is in two files: {} and {}", shown(entry.info.name),
                            files_[known->second.file].path().string(), path.string());
        }
        tensors_.push_back(std::move(entry.info));
    }
}

void Safetensors::add_index(const fs::path& folder) {
    const fs::path path = folder / kSafetensorsIndexName;
    const auto file_of_tensor = parse_weights_index(read_text(path, kMaxIndexBytes), path.string());
    if (file_of_tensor.empty()) throw UserError("{} names no tensor", path.string());
    std::set<std::string> names;
    for (const auto& [tensor, file] : file_of_tensor) {
        const bool is_new = names.insert(file).second;
        if (is_new && !fs::exists(folder / file)) {
            throw UserError("{}: tensor {}: its file {} is missing", path.string(), shown(tensor),
                            shown(file));
        }
    }
    files_.reserve(names.size());
    for (const std::string& name : names) add_file(folder / name);
    check_index(file_of_tensor, path.string());
}

void Safetensors::check_index(const std::map<std::string, std::string>& file_of_tensor,
                              const std::string& place) const {
    const auto folder = fs::path(place).parent_path();
    for (const auto& [tensor, file] : file_of_tensor) {
        const auto found = locations_.find(tensor);
        if (found == locations_.end()) {
            throw UserError("{}: tensor {} is not in its file {}", place, shown(tensor), file);
        }
        const std::string holder = files_[found->second.file].path().string();
        if (holder != (folder / file).string()) {
            throw UserError("{}: tensor {} is not in its file {}, but in {}", place, shown(tensor), file,
                            holder);
        }
    }
    for (const auto& [tensor, location] : locations_) {
        if (!file_of_tensor.contains(tensor)) {
            throw UserError("{}: tensor {}, which is in {}, is not named", place, shown(tensor),
                            files_[location.file].path().string());
        }
    }
}

void Safetensors::read(const TensorInfo& tensor, const layout::Slab& slab, std::span<std::byte> out) const {
    const Location& location = locations_.find(tensor.name)->second;
    const int64_t width = size_bytes(tensor.type);
    if (slab.num_elements() == 0) return;
    layout::for_each_run(slab, layout::whole(tensor.shape), slab, [&](const layout::Run& run) {
        const std::span bytes = out.subspan(run.in_b * width, run.length * width);
        files_[location.file].read_at(location.at + run.in_a * width, bytes);
    });
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, const std::vector<TensorInfo>& tensors)
    : layout_(lay_out_safetensors(tensors)), file_(RawFile::create(path)) {
    file_.write_at(0, std::as_bytes(std::span(layout_.start)));
}

void SafetensorsWriter::write(size_t index, int64_t from, std::span<const std::byte> bytes) {
    file_.write_at(layout_.at[index] + from, bytes);
    file_.begin_sync(layout_.at[index] + from, std::ssize(bytes));
}

std::map<std::string, std::string> parse_weights_index(std::string_view text, const std::string& place,
                                                       std::string_view ending) {
    const nlohmann::ordered_json index = parse_json(text, place);
    if (!index.is_object()) throw UserError("{}: {} does not belong there", place, shown_value(index));
    const auto map = index.find("weight_map");
    if (map == index.end()) throw UserError("{}: \"weight_map\" is missing", place);
    if (!map->is_object())
        throw UserError("{}: \"weight_map\": {} does not belong there", place, shown_value(*map));
    std::map<std::string, std::string> file_of_tensor;
    for (const auto& [tensor, file] : map->items()) {
        const std::string name = file.is_string() ? file.get<std::string>() : "";
        if (name.find_first_of(std::string_view("/\\\0", 3)) != name.npos || !name.ends_with(ending)) {
            throw UserError(
                "{}: \"weight_map\": tensor {}: its file is {}, which is not the name of a {} file beside "
                "the index",
                place, shown(tensor), shown_value(file), ending);
        }
        file_of_tensor.emplace(tensor, name);
    }
    return file_of_tensor;
}

std::string safetensors_index_json(const std::map<std::string, std::string>& file_of_tensor,
                                   int64_t total_bytes) {
    const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                  {"weight_map", file_of_tensor}};
    return index.dump(2) + "\n";
}

}  // namespace argosy::interop
