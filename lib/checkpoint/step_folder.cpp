#include "checkpoint/step_folder.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/raw_file.h"
#include "checkpoint/manifest_file.h"
#include "checkpoint/stored_bytes.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";

/// A parsed folder name: its step, and the suffix (such as ".partial") of a folder that is not final, or
/// none.
struct Found {
    int64_t step = 0;
    std::string suffix;
};

std::optional<Found> parse_name(const std::string& name) {
    if (!name.starts_with(kPrefix)) return std::nullopt;
    Found found;
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, found.step);
    if (error != std::errc() || found.step < 0) return std::nullopt;
    found.suffix = std::string(rest, end);
    return step_name(found.step) + found.suffix == name ? std::optional(found) : std::nullopt;
}

std::vector<Found> folders_in(const fs::path& folder) {
    std::vector<Found> all;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        const auto found = parse_name(entry->path().filename().string());
        std::error_code ignored;  // an entry that cannot be read is no folder
        if (found && entry->is_directory(ignored)) all.push_back(*found);
    }
    if (error && error != std::errc::no_such_file_or_directory) {
        throw UserError("cannot list the checkpoints in {}: {}", folder.string(), error.message());
    }
    return all;
}

/// Removes the remains of killed attempts: partial folders, including those of steps that were moved aside,
/// and replaced folders whose successor is in place.
void remove_remains(const fs::path& folder) {
    for (const Found& found : folders_in(folder)) {
        const fs::path place = folder / step_name(found.step);
        const fs::path path = place.string() + found.suffix;
        const bool partial = found.suffix.starts_with('.') && found.suffix.ends_with(".partial");
        if (partial || (path == replaced_path(place) && fs::exists(place))) remove_quietly(path);
    }
}

/// Combines the tensors of several shards, in the order of their first appearance.
class Merger {
  public:
    void add(int file, const ShardTable& table, const std::string& place) {
        for (const StoredTensor& tensor : table.tensors) {
            const auto [at, is_new] = index_.try_emplace(tensor.info.name, tensors_.size());
            if (is_new) tensors_.push_back({.info = tensor.info});
            StoredTensor& whole = tensors_[at->second];
            if (whole.info != tensor.info) {
                throw UserError("{}: tensor '{}' has another type or shape than in a shard before it", place,
                                tensor.info.name);
            }
            for (const StoredSlab& slab : tensor.slabs) whole.slabs.emplace_back(slab).file = file;
        }
    }
    std::vector<StoredTensor> take() { return std::move(tensors_); }

  private:
    std::unordered_map<std::string, size_t> index_;
    std::vector<StoredTensor> tensors_;
};

/// Builds the manifest of a save, without assets, from the tables of its shards.
Manifest collect(const fs::path& partial, const Description& description, const Hash& set, int num_writers) {
    Manifest manifest{.set = set, .description = description};
    Merger tensors;
    for (int writer = 0; writer < num_writers; ++writer) {
        const StoredBytes shard(partial / shard_name(writer, num_writers));
        if (shard.block().kind != FileKind::Shard) throw UserError("{} is no shard", shard.place());
        const std::string text = shard.table();
        const ShardTable table =
            parse_shard_table(text, shard.place() + ": its table", shard.block().num_bytes);
        if (table.set != set) {
            throw UserError("{} is a foreign shard: it belongs to the save {}, and {} was expected",
                            shard.place(), table.set.hex(), set.hex());
        }
        manifest.files.push_back(
            {shard_name(writer, num_writers), shard.block().num_bytes, shard.block().check});
        tensors.add(writer, table, shard.place());
    }
    manifest.tensors = tensors.take();
    check_table(manifest, partial.string(), std::numeric_limits<int64_t>::max());
    return manifest;
}

}  // namespace

std::string step_name(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<int64_t> parse_step_name(const std::string& name) {
    const std::optional<Found> found = parse_name(name);
    return found && found->suffix.empty() ? std::optional(found->step) : std::nullopt;
}

fs::path step_path(const fs::path& folder, int64_t step) {
    const fs::path place = folder / step_name(step);
    std::error_code ignored;  // opening the file reports a path that cannot be read
    const bool replaced = !fs::exists(place, ignored) && fs::exists(replaced_path(place), ignored);
    return replaced ? replaced_path(place) : place;
}

std::vector<int64_t> whole_steps(const fs::path& folder) {
    std::set<int64_t> steps;
    for (const Found& found : folders_in(folder)) {
        const fs::path path = folder / (step_name(found.step) + found.suffix);
        if (path == step_path(folder, found.step)) steps.insert(found.step);
    }
    return {steps.begin(), steps.end()};
}

fs::path start_step(const fs::path& folder, int64_t step) {
    ARGOSY_CHECK(step >= 0, "step {}", step);
    make_folders(folder);
    remove_remains(folder);
    fs::path partial = partial_path(folder / step_name(step));
    make_folders(partial);
    failpoint("step_started");
    return partial;
}

void commit_step(const fs::path& folder, const Description& description, const Hash& set, int num_writers,
                 const std::vector<Asset>& assets) {
    const fs::path place = folder / step_name(description.step);
    const fs::path partial = partial_path(place);
    write_manifest(partial / kManifestName, collect(partial, description, set, num_writers), assets);
    failpoint("manifest_written");
    sync_folder(partial);
    failpoint("before_rename");
    publish(partial, place, Replace::Yes);
    failpoint("after_rename");
}

bool is_milestone(int64_t step, const Retention& retention) {
    return retention.keep_every > 0 && step % retention.keep_every == 0;
}

std::vector<int64_t> superfluous(const std::vector<int64_t>& steps, const Retention& retention) {
    std::vector<int64_t> going;
    if (retention.keep_latest <= 0) return going;
    const auto num_steps = static_cast<int64_t>(steps.size());
    for (int64_t i = 0; i + retention.keep_latest < num_steps; ++i) {
        if (!is_milestone(steps[i], retention)) going.push_back(steps[i]);
    }
    return going;
}

void remove_superfluous(const fs::path& folder, const Retention& retention) noexcept {
    try {
        const std::vector<int64_t> going = superfluous(whole_steps(folder), retention);
        failpoint("before_retention");
        for (const int64_t step : going) remove_quietly(step_path(folder, step));
    } catch (const std::exception& error) {
        spdlog::warn("old checkpoints in {} stay: {}", folder.string(), error.what());
    }
}

}  // namespace argosy::checkpoint
