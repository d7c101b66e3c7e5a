#include "pytorch/distributed_checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"
#include "pytorch/archive.h"
#include "pytorch/distributed_metadata.h"

namespace argosy::pytorch {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorInfo;

constexpr const char* kMetadataName = ".metadata";
constexpr int64_t kMaxMetadataBytes = int64_t{1} << 31;

/// Opens files when they are first read. Only so many are open at a time, since a save may have one for each
/// rank.
class Files {
  public:
    std::shared_ptr<const RawFile> open(const fs::path& path) {
        constexpr size_t kMaxOpen = 128;
        const std::lock_guard lock(mutex_);
        if (const auto found = open_.find(path.string()); found != open_.end()) return found->second;
        if (open_.size() >= kMaxOpen) open_.clear();  // readers hold theirs
        return open_[path.string()] = std::make_shared<const RawFile>(RawFile::open_to_read(path));
    }

  private:
    std::mutex mutex_;
    std::unordered_map<std::string, std::shared_ptr<const RawFile>> open_;
};

DistributedMetadata parsed(const std::string& bytes, const std::string& place, KnownClasses more_classes) {
    return parse_metadata(Pickle(std::as_bytes(std::span(bytes)), place, more_classes), place);
}

}  // namespace

struct DistributedCheckpoint::Contents {
    fs::path folder;
    std::string place;
    KnownClasses more_classes;
    DistributedMetadata metadata;
    std::vector<TensorInfo> tensors;
    std::vector<OtherTensor> others;
    std::vector<std::string> object_keys;
    std::unordered_map<std::string, const ChunkedTensor*> chunked;
    Files files;
    std::mutex objects_mutex;
    std::map<std::string, std::unique_ptr<SavedFile>> objects;

    Contents(const fs::path& path, KnownClasses classes, const std::string& known)
        : folder(path),
          place(path.string()),
          more_classes(classes),
          metadata(parsed(known.empty() ? read_metadata(path) : known, (path / kMetadataName).string(),
                          classes)) {
        if (known.empty()) check_files();
        std::ranges::stable_sort(metadata.tensors, {}, [&](const ChunkedTensor& tensor) {
            if (tensor.chunks.empty()) return std::pair(std::string(), int64_t{0});
            const StoredItem& item = tensor.chunks.front().item;
            return std::pair(metadata.files[item.file], item.offset);
        });
        for (const ChunkedTensor& tensor : metadata.tensors) {
            chunked.emplace(tensor.name, &tensor);
            const std::optional<TypeOfTorch> type = type_of_torch(tensor.type_name);
            if (type && type->type) {
                tensors.push_back({tensor.name, *type->type, tensor.shape});
            } else {
                others.push_back({tensor.name, tensor.type_name});
            }
        }
        for (const auto& [key, item] : metadata.objects) object_keys.push_back(key);
    }

    /// DamageError if a file is missing, or ends before one of its items does.
    void check_files() const {
        std::vector<int64_t> num_bytes;
        for (const std::string& name : metadata.files) {
            std::error_code failed;
            const uintmax_t size = fs::file_size(folder / name, failed);
            if (failed) {
                throw DamageError(
                    "{} lacks the file {}: {}. Copy the whole folder, with the files of all ranks", place,
                    name, failed.message());
            }
            num_bytes.push_back(static_cast<int64_t>(size));
        }
        const auto check = [&](const std::string& key, const StoredItem& item) {
            const int64_t size = num_bytes[item.file];
            if (item.length <= size && item.offset <= size - item.length) return;
            throw DamageError(
                "{} is truncated: it has {} bytes, but item {} has {} at byte {}. Copy it again",
                (folder / metadata.files[item.file]).string(), size, shown(key), item.length, item.offset);
        };
        for (const ChunkedTensor& tensor : metadata.tensors) {
            for (const StoredChunk& chunk : tensor.chunks) check(tensor.name, chunk.item);
        }
        for (const auto& [key, item] : metadata.objects) check(key, item);
    }

    std::shared_ptr<const RawFile> file_of(const StoredItem& item) {
        return files.open(folder / metadata.files[item.file]);
    }

    std::string place_of(const std::string& key, const StoredItem& item) const {
        return fmt::format("{}: item {}", (folder / metadata.files[item.file]).string(), shown(key));
    }

    void read(const ChunkedTensor& tensor, const StoredChunk& chunk, const layout::Slab& wanted,
              std::span<std::byte> out) {
        const Archive archive(file_of(chunk.item), chunk.item.offset, chunk.item.length,
                              place_of(tensor.name, chunk.item), more_classes);
        const std::optional<StoredTensor> found = archive.tensor_of(archive.root());
        if (!found || found->type_name != tensor.type_name || found->shape != chunk.slab.size) {
            const std::string what =
                found ? fmt::format("{} {}", found->type_name, found->shape) : archive.root().shown();
            throw DamageError("{} is damaged: it is {}, and {} says that the chunk at {} is {} {}",
                              archive.place(), what, kMetadataName, chunk.slab.offset, tensor.type_name,
                              chunk.slab.size);
        }
        read_elements(archive.file(), *found, chunk.slab, wanted, out);
    }
};

DistributedCheckpoint::DistributedCheckpoint(const fs::path& folder, KnownClasses more_classes,
                                             const std::string& metadata)
    : contents_(std::make_unique<Contents>(folder, more_classes, metadata)) {}
DistributedCheckpoint::~DistributedCheckpoint() = default;

const std::vector<TensorInfo>& DistributedCheckpoint::tensors() const { return contents_->tensors; }
const std::vector<OtherTensor>& DistributedCheckpoint::other_tensors() const { return contents_->others; }
const std::string& DistributedCheckpoint::place() const { return contents_->place; }
const std::vector<std::string>& DistributedCheckpoint::object_keys() const { return contents_->object_keys; }

void DistributedCheckpoint::read(const TensorInfo& tensor, const layout::Slab& slab,
                                 std::span<std::byte> out) const {
    if (slab.num_elements() == 0) return;
    const ChunkedTensor& chunked = *contents_->chunked.at(tensor.name);
    for (const StoredChunk& chunk : chunked.chunks) {
        if (layout::intersection(chunk.slab, slab)) contents_->read(chunked, chunk, slab, out);
    }
}

const SavedFile* DistributedCheckpoint::object(const std::string& key) const {
    const auto found = contents_->metadata.objects.find(key);
    if (found == contents_->metadata.objects.end()) return nullptr;
    const std::lock_guard lock(contents_->objects_mutex);
    std::unique_ptr<SavedFile>& object = contents_->objects[key];
    if (!object) {
        const StoredItem& item = found->second;
        object = std::make_unique<SavedFile>(contents_->file_of(item), item.offset, item.length,
                                             contents_->place_of(key, item), contents_->more_classes);
    }
    return object.get();
}

bool is_distributed_checkpoint(const fs::path& folder) {
    std::error_code unreadable;
    return fs::is_regular_file(folder / kMetadataName, unreadable);
}

std::string read_metadata(const fs::path& folder) {
    const fs::path path = folder / kMetadataName;
    if (fs::exists(path)) return read_text(path, kMaxMetadataBytes);
    throw UserError(
        "{} is no distributed checkpoint: it has no {}, which is written last, so its save may have been "
        "interrupted; use another step",
        folder.string(), kMetadataName);
}

}  // namespace argosy::pytorch
