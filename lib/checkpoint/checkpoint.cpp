#include "checkpoint/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/manifest_file.h"
#include "checkpoint/slab_bytes.h"
#include "checkpoint/slab_runs.h"
#include "checkpoint/step_folder.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_without_manifest(const fs::path& folder) {
    std::vector<std::string> steps;
    for (const int64_t step : whole_steps(folder)) steps.push_back(step_name(step));
    const std::string remedy = steps.empty()
                                   ? std::string("a save that was not finished has none either")
                                   : fmt::format("name one of the steps in it: {}", fmt::join(steps, ", "));
    throw UserError("{} is no checkpoint: it has no {}; {}", folder.string(), kManifestName, remedy);
}

fs::path manifest_path(const fs::path& path) {
    std::error_code ignored;  // opening the file reports a path that cannot be read
    if (!fs::is_directory(path, ignored)) return path;
    if (!fs::exists(path / kManifestName, ignored)) fail_without_manifest(path);
    return path / kManifestName;
}

Manifest read_manifest(const StoredBytes& file) {
    if (file.block().kind == FileKind::Shard) {
        throw UserError("{} is a single shard; name the folder of its step", file.place());
    }
    Manifest manifest = parse_manifest(file.table(), file.place() + ": its table", file.block().num_bytes);
    const bool full = file.block().kind == FileKind::Full;
    if (full && !manifest.files.empty()) throw UserError("{} is a full file, and names shards", file.place());
    return manifest;
}

void check_inside(const TensorInfo& tensor, const layout::Slab& slab, size_t out_bytes) {
    ARGOSY_CHECK(static_cast<int64_t>(out_bytes) == slab.num_elements() * h5::size_bytes(tensor.type),
                 "'{}': {} bytes for a slab of {}", tensor.name, out_bytes, slab.size);
    ARGOSY_CHECK(slab.offset.size() == tensor.shape.size() && slab.size.size() == tensor.shape.size());
    for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
        ARGOSY_CHECK(slab.offset[dim] >= 0 && slab.offset[dim] + slab.size[dim] <= tensor.shape[dim],
                     "'{}' of {}: a slab at {} of {}", tensor.name, tensor.shape, slab.offset, slab.size);
    }
}

}  // namespace

const StoredBytes& Checkpoint::Files::open(const std::vector<StoredFile>& files, int file) {
    if (file == StoredSlab::kThisFile) return own;
    const std::lock_guard lock(mutex_);
    if (const auto found = shards_.find(file); found != shards_.end()) return found->second;
    const StoredFile& expected = files[file];
    StoredBytes shard(folder_of(own.file().path()) / expected.name);
    const UserBlock& block = shard.block();
    if (block.num_bytes != expected.num_bytes || block.check != expected.check) {
        throw UserError(
            "{} is a foreign shard: it has {} bytes and the check {}, and the manifest expects {} and {}",
            shard.place(), block.num_bytes, block.check.hex(), expected.num_bytes, expected.check.hex());
    }
    return shards_.emplace(file, std::move(shard)).first->second;
}

Checkpoint::Checkpoint(const fs::path& path)
    : place_(path.string()), files_(std::make_unique<Files>(manifest_path(path))) {
    manifest_ = read_manifest(files_->own);
    for (const StoredTensor& tensor : manifest_.tensors) {
        files_->tensors.emplace(tensor.info.name, tensors_.size());
        tensors_.push_back(tensor.info);
    }
}

Checkpoint::~Checkpoint() = default;

void Checkpoint::read(const TensorInfo& tensor, const layout::Slab& slab, std::span<std::byte> out) const {
    const auto found = files_->tensors.find(tensor.name);
    ARGOSY_CHECK(found != files_->tensors.end() && tensors_[found->second] == tensor, "{} has no tensor '{}'",
                 place_, tensor.name);
    check_inside(tensor, slab, out.size());
    const StoredTensor& stored = manifest_.tensors[found->second];
    for (const StoredSlab& part : stored.slabs) {
        const std::optional<layout::Slab> common = intersection(part.slab, slab);
        if (!common) continue;
        bytes_read_ +=
            read_part(files_->open(manifest_.files, part.file).file(), stored, part, {*common, slab}, out);
    }
}

std::string Checkpoint::asset(const std::string& name) const {
    std::vector<std::string> names;
    for (const StoredAsset& asset : manifest_.assets) {
        if (asset.name != name) {
            names.push_back(asset.name);
            continue;
        }
        std::string bytes(asset.num_bytes, '\0');
        files_->own.file().read_at(asset.at, std::as_writable_bytes(std::span(bytes)));
        const Hash hash = hash_of(std::as_bytes(std::span(bytes)));
        if (hash == asset.hash) return bytes;
        throw UserError("{}: asset '{}' is torn: it gives the check {}, and {} was expected",
                        files_->own.place(), name, hash.hex(), asset.hash.hex());
    }
    throw UserError("{} has no asset '{}'; it holds: {}", place_, name, fmt::join(names, ", "));
}

}  // namespace argosy::checkpoint
