#include "checkpoint/step_folder.h"

#include <algorithm>
#include <charconv>
#include <future>
#include <limits>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/raw_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/input_file.h"
#include "checkpoint/output_file.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";

/// A parsed folder name: the step, and the suffix, such as ".partial". A final folder has no suffix.
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

/// The manifest's entry for a shard. UserError if the file is not a shard of this save.
StoredFile finished_shard(const fs::path& partial, const Hash& set, int writer, int num_writers) {
    const std::string name = shard_name(writer, num_writers);
    const InputFile shard(partial / name);
    const UserBlock& block = shard.block();
    if (block.kind != FileKind::Shard) throw UserError("{} is not a shard", shard.place());
    check_save(shard, *block.set, set);
    return {name, block.num_bytes, block.check};
}

/// The manifest's entries for all shards. If there are many, several threads read, so that waits for a
/// network file system overlap. The calling thread reads too: a thread takes its own memory from malloc and
/// does not give it back, and a save is made again and again.
std::vector<StoredFile> finished_shards(const fs::path& partial, const Hash& set, int num_writers) {
    constexpr int kThreads = 16, kFilesPerThread = 64;
    const int num_threads = std::clamp(num_writers / kFilesPerThread, 1, kThreads);
    std::vector<StoredFile> files(num_writers);
    const auto read_every_nth = [&](int first) {
        for (int writer = first; writer < num_writers; writer += num_threads)
            files[writer] = finished_shard(partial, set, writer, num_writers);
    };
    std::vector<std::future<void>> others;  // their destructors wait
    for (int thread = 1; thread < num_threads; ++thread)
        others.push_back(std::async(std::launch::async, read_every_nth, thread));
    read_every_nth(0);
    for (std::future<void>& other : others) other.get();
    return files;
}

/// The folders in which the shards lie, each once.
std::vector<fs::path> shard_folders(const fs::path& partial, int num_writers) {
    std::vector<fs::path> folders;
    for (int writer = 0; writer < num_writers; ++writer) {
        const fs::path folder = (partial / shard_name(writer, num_writers)).parent_path();
        if (folders.empty() || folders.back() != folder) folders.push_back(folder);
    }
    return folders;
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

void remove_remains(const fs::path& folder) {
    for (const Found& found : folders_in(folder)) {
        const fs::path place = folder / step_name(found.step);
        const fs::path path = place.string() + found.suffix;
        const bool partial = found.suffix.starts_with('.') && found.suffix.ends_with(".partial");
        if (partial || (path == replaced_path(place) && fs::exists(place))) remove_quietly(path);
    }
}

fs::path start_step(const fs::path& folder, int64_t step, int num_writers) {
    ARGOSY_CHECK(step >= 0, "step {}", step);
    make_folders(folder);
    remove_remains(folder);
    fs::path partial = partial_path(folder / step_name(step));
    make_folders(partial);
    for (const fs::path& shards : shard_folders(partial, num_writers)) make_folders(shards);
    failpoint("step_started");
    return partial;
}

void commit_step(const fs::path& folder, const Description& description, const Hash& nonce,
                 const SavePlan& plan, const std::vector<Asset>& assets) {
    const fs::path place = folder / step_name(description.step);
    const fs::path partial = partial_path(place);
    const int num_writers = plan.num_writers();
    Manifest manifest{.set = set_of(nonce, plan), .description = description, .plan = plan};
    manifest.files = finished_shards(partial, manifest.set, num_writers);
    check_table(manifest, partial.string(), {.num_bytes = std::numeric_limits<int64_t>::max()});
    write_manifest(partial / kManifestName, std::move(manifest), assets);
    failpoint("manifest_written");
    Checkpoint{partial};  // a step that a reader refuses must not replace an older one
    for (const fs::path& shards : shard_folders(partial, num_writers)) sync_folder(shards);
    sync_folder(partial);
    failpoint("before_rename");
    publish(partial, place, Replace::Yes);
    failpoint("after_rename");
}

bool is_milestone(int64_t step, const Retention& retention) {
    return retention.keep_every > 0 && step % retention.keep_every == 0;
}

std::vector<int64_t> steps_to_remove(const std::vector<int64_t>& steps, const Retention& retention) {
    std::vector<int64_t> old;
    if (retention.keep_latest <= 0) return old;
    const auto num_steps = static_cast<int64_t>(steps.size());
    for (int64_t i = 0; i + retention.keep_latest < num_steps; ++i) {
        if (!is_milestone(steps[i], retention)) old.push_back(steps[i]);
    }
    return old;
}

void remove_old_steps(const fs::path& folder, const Retention& retention) noexcept {
    try {
        const std::vector<int64_t> old = steps_to_remove(whole_steps(folder), retention);
        failpoint("before_retention");
        for (const int64_t step : old) remove_quietly(step_path(folder, step));
    } catch (const std::exception& error) {
        spdlog::warn("cannot remove old checkpoints in {}: {}", folder.string(), error.what());
    }
}

}  // namespace argosy::checkpoint
