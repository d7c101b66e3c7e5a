#include "checkpoint/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/input_file.h"
#include "checkpoint/step_folder.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_without_manifest(const fs::path& folder) {
    std::vector<std::string> steps;
    for (const int64_t step : whole_steps(folder)) steps.push_back(step_name(step));
    const std::string remedy = steps.empty()
                                   ? std::string("an unfinished save has none either")
                                   : fmt::format("name one of the steps in it: {}", fmt::join(steps, ", "));
    throw UserError("{} is not a checkpoint: it has no {}; {}", folder.string(), kManifestName, remedy);
}

fs::path manifest_path(const fs::path& path) {
    std::error_code ignored;  // opening the file reports a path that cannot be read
    if (!fs::is_directory(path, ignored)) return path;
    if (!fs::exists(path / kManifestName, ignored)) fail_without_manifest(path);
    return path / kManifestName;
}

Manifest read_manifest(const InputFile& file) {
    if (file.block().kind == FileKind::Shard) {
        throw UserError("{} is a single shard; name the folder of its step", file.place());
    }
    Manifest manifest = parse_manifest(file.table(), file.place() + ": its table", file.table_file());
    const bool full = file.block().kind == FileKind::Full;
    if (full != manifest.files.empty()) {
        throw UserError("{}: its user block says '{}', but its table lists {} shards", file.place(),
                        name(file.block().kind), manifest.files.size());
    }
    if ((file.block().format == kJointFormat) != manifest.plan.names_axes()) {
        throw UserError(
            "{}: it is of format {}, but its cuts {} axes; in format {} they do, in format {} not",
            file.place(), file.block().format, manifest.plan.names_axes() ? "name" : "do not name",
            kJointFormat, kFormat);
    }
    return manifest;
}

/// Throws UserError if the folder's name is that of another step, because the folder was renamed or swapped.
void check_step(const fs::path& path, const Manifest& manifest) {
    if (path.filename() != kManifestName) return;
    const fs::path folder = fs::absolute(folder_of(path)).lexically_normal();
    const std::string name = without_slash(folder).filename().string();
    const std::optional<int64_t> step = parse_step_name(name.substr(0, name.find('.')));
    if (!step || *step == manifest.description.step) return;
    throw UserError("{} holds step {}, says its manifest: the folder was renamed or swapped; rename it to {}",
                    folder_of(path).string(), manifest.description.step,
                    step_name(manifest.description.step));
}

void check_inside(const TensorInfo& tensor, const layout::Slab& slab, size_t out_bytes) {
    ARGOSY_CHECK(static_cast<int64_t>(out_bytes) == slab.num_elements() * size_bytes(tensor.type),
                 "'{}': {} bytes for a slab of {}", tensor.name, out_bytes, slab.size);
    ARGOSY_CHECK(slab.offset.size() == tensor.shape.size() && slab.size.size() == tensor.shape.size());
    for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
        ARGOSY_CHECK(slab.offset[dim] >= 0 && slab.offset[dim] + slab.size[dim] <= tensor.shape[dim],
                     "'{}' of {}: a slab at {} of {}", tensor.name, tensor.shape, slab.offset, slab.size);
    }
}

/// The slabs in a shard's own table. UserError if they are not those of the plan.
std::vector<Checkpoint::Files::LocatedSlab> read_slabs(const Manifest& manifest, int file,
                                                       const InputFile& bytes) {
    const ShardTable table = read_shard_table(bytes, manifest.set);
    const auto refuse = [&](const std::string& listed, const std::string& planned) {
        throw UserError(
            "{}: its table and the manifest disagree: tensor '{}' in the one, tensor '{}' in the other",
            bytes.place(), listed, planned);
    };
    std::vector<Checkpoint::Files::LocatedSlab> located;
    auto next = table.tensors.begin();
    for (size_t tensor = 0; tensor < manifest.plan.tensors.size(); ++tensor) {
        const CutTensor& cut = manifest.plan.tensors[tensor];
        const std::optional<layout::Slab> slab = slab_of(manifest.plan.grid, cut, file);
        if (!slab) continue;
        if (next == table.tensors.end()) refuse("", cut.info.name);
        if (next->info != cut.info || next->slabs.empty() || next->slabs.front().slab != *slab)
            refuse(next->info.name, cut.info.name);
        located.push_back({tensor, next->slabs.front().at, next->slabs.front().hash});
        ++next;
    }
    if (next != table.tensors.end()) refuse(next->info.name, "");
    return located;
}

}  // namespace

Checkpoint::Files::Shard& Checkpoint::Files::shard(const Manifest& manifest, int file) {
    if (const auto found = shards_.find(file); found != shards_.end()) return found->second;
    const StoredFile& expected = manifest.files[file];
    InputFile bytes(folder_of(path) / expected.name);
    const UserBlock& block = bytes.block();
    if (block.num_bytes != expected.num_bytes || block.check != expected.check) {
        throw DamageError(
            "{} is a foreign shard: it has {} bytes and the check {}, and the manifest expects {} and {}",
            bytes.place(), block.num_bytes, block.check.hex(), expected.num_bytes, expected.check.hex());
    }
    if (block.kind != FileKind::Shard)
        throw UserError("{} is no shard: its user block says '{}'", bytes.place(), name(block.kind));
    check_save(bytes, *block.set, manifest.set);
    return shards_.emplace(file, Shard{std::move(bytes), {}}).first->second;
}

const InputFile& Checkpoint::Files::own() {
    const std::lock_guard lock(mutex_);
    if (!own_) own_.emplace(path);
    return *own_;
}

const InputFile& Checkpoint::Files::open(const Manifest& manifest, int file) {
    if (file == StoredSlab::kThisFile) return own();
    const std::lock_guard lock(mutex_);
    return shard(manifest, file).bytes;
}

const std::vector<Checkpoint::Files::LocatedSlab>& Checkpoint::Files::slabs(const Manifest& manifest,
                                                                            int file) {
    const std::lock_guard lock(mutex_);
    Shard& found = shard(manifest, file);
    if (!found.slabs) found.slabs = read_slabs(manifest, file, found.bytes);
    return *found.slabs;
}

void Checkpoint::Files::note_verified(int file, size_t tensor) {
    const std::lock_guard lock(mutex_);
    std::ranges::lower_bound(*shards_.at(file).slabs, tensor, {}, &LocatedSlab::tensor)->verified = true;
}

bool Checkpoint::Files::is_verified(const LocatedSlab& slab) {
    const std::lock_guard lock(mutex_);
    return slab.verified;
}

Checkpoint::Checkpoint(const fs::path& path)
    : place_(path.string()), files_(std::make_unique<Files>(manifest_path(path))) {
    manifest_ = read_manifest(files_->own());
    check_step(files_->path, manifest_);
    index_tensors();
}

Checkpoint::Checkpoint(const fs::path& path, const std::string& manifest)
    : place_(path.string()),
      manifest_(parse_manifest(manifest, place_, {.num_bytes = std::numeric_limits<int64_t>::max()})),
      files_(std::make_unique<Files>(path / kManifestName)) {
    index_tensors();
}

Checkpoint::~Checkpoint() = default;

void Checkpoint::index_tensors() {
    for (const StoredTensor& tensor : manifest_.tensors) tensors_.push_back(tensor.info);
    for (const CutTensor& tensor : manifest_.plan.tensors) tensors_.push_back(tensor.info);
    for (size_t i = 0; i < tensors_.size(); ++i) files_->tensors.emplace(tensors_[i].name, i);
}

size_t Checkpoint::index_of(const TensorInfo& tensor) const {
    const auto found = files_->tensors.find(tensor.name);
    ARGOSY_CHECK(found != files_->tensors.end() && tensors_[found->second] == tensor, "{} has no tensor '{}'",
                 place_, tensor.name);
    return found->second;
}

/// Visits the slabs of a tensor that share elements with `wanted`.
void Checkpoint::for_each_stored(size_t tensor, const layout::Slab& wanted,
                                 const std::function<void(const StoredSlab&)>& visit) const {
    if (manifest_.is_full()) {
        for (const StoredSlab& stored : manifest_.tensors[tensor].slabs)
            if (intersection(stored.slab, wanted)) visit(stored);
        return;
    }
    for_each_slab(
        manifest_.plan.grid, manifest_.plan.tensors[tensor], wanted, [&](int file, const layout::Slab& slab) {
            const std::vector<Files::LocatedSlab>& located = files_->slabs(manifest_, file);
            const auto found = std::ranges::lower_bound(located, tensor, {}, &Files::LocatedSlab::tensor);
            visit({.file = file, .slab = slab, .at = found->at, .hash = found->hash});
        });
}

void Checkpoint::read(const TensorInfo& tensor, const layout::Slab& slab, std::span<std::byte> out) const {
    const size_t index = index_of(tensor);
    check_inside(tensor, slab, out.size());
    for_each_stored(index, slab, [&](const StoredSlab& stored) {
        const RawFile& file = files_->open(manifest_, stored.file).file();
        const CommonRead common = read_common(file, tensor, stored, slab, out);
        bytes_read_ += common.num_bytes;
        if (common.verified && stored.file != StoredSlab::kThisFile)
            files_->note_verified(stored.file, index);
    });
}

std::vector<StoredSlab> Checkpoint::slabs(const TensorInfo& tensor) const {
    std::vector<StoredSlab> all;
    for_each_stored(index_of(tensor), layout::whole(tensor.shape),
                    [&](const StoredSlab& slab) { all.push_back(slab); });
    return all;
}

int64_t Checkpoint::num_slabs(const TensorInfo& tensor) const {
    const size_t index = index_of(tensor);
    if (manifest_.is_full()) return std::ssize(manifest_.tensors[index].slabs);
    int64_t count = 0;
    for_each_slab(manifest_.plan.grid, manifest_.plan.tensors[index], layout::whole(tensor.shape),
                  [&](int, const layout::Slab&) { ++count; });
    return count;
}

std::string Checkpoint::asset(const std::string& name) const {
    const auto asset = std::ranges::find(manifest_.assets, name, &StoredAsset::name);
    if (asset == manifest_.assets.end()) {
        std::vector<std::string> names;
        for (const StoredAsset& each : manifest_.assets) names.push_back(each.name);
        throw UserError("{} has no asset '{}'; it holds: {}", place_, name, fmt::join(names, ", "));
    }
    const RawFile& file = files_->own().file();
    std::string bytes(asset->num_bytes, '\0');
    file.read_at(asset->at, std::as_writable_bytes(std::span(bytes)));
    const std::string fault = fault_of(file, *asset, hash_of(bytes));
    if (!fault.empty()) throw DamageError("{}", fault);
    return bytes;
}

}  // namespace argosy::checkpoint
