#include "data/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "data/synthetic_document.h"
#include "data/synthetic_file.h"
#include "data/synthetic_tasks.h"

namespace argosy::data {
namespace {

constexpr double kBytesPerMegabyte = 1e6;
constexpr double kMaxMegabytes = 1e6;

/// Appends documents until one more would move the file's size further away from `wanted_bytes`.
void write_split(SyntheticFile& file, const std::string& split, uint64_t seed, double wanted_bytes) {
    double num_bytes = 0;
    for (uint64_t index = 0;; ++index) {
        RandomStream random(seed, split, index);
        nlohmann::json record = {{"text", random_document(random)}};
        const auto size = static_cast<double>(record.dump().size() + 1);
        const double overshoot = num_bytes + size - wanted_bytes;
        if (index > 0 && overshoot > wanted_bytes - num_bytes) break;
        num_bytes += size;
        file.append(std::move(record));
    }
}

void write_task(SyntheticFile& file, const SyntheticTask& task, uint64_t seed) {
    for (int i = 0; i < task.num_records; ++i) {
        RandomStream random(seed, task.name, i);
        file.append(task.record(random));
    }
}

void make_folders(const std::filesystem::path& path) {
    std::error_code failure;
    std::filesystem::create_directories(path, failure);
    if (failure) throw UserError("cannot make the folder {}: {}", path.string(), failure.message());
}

}  // namespace

void write_synthetic_corpus(const SyntheticOptions& options) {
    if (!(options.megabytes > 0 && options.megabytes <= kMaxMegabytes)) {
        throw UserError("--megabytes is {}; it must be more than 0, and at most {}", options.megabytes,
                        kMaxMegabytes);
    }
    const double train_bytes = options.megabytes * kBytesPerMegabyte;
    make_folders(options.output / "tasks");
    std::deque<SyntheticFile> files;  // all are open before one is written, and whole before one appears
    const auto open = [&](const std::string& name) {
        files.emplace_back(options.output / fmt::format("{}.jsonl", name));
    };
    for (const char* split : {"train", "valid"}) open(split);
    for (const SyntheticTask& task : kSyntheticTasks) open(fmt::format("tasks/{}", task.name));

    write_split(files[0], "train", options.seed, train_bytes);
    write_split(files[1], "valid", options.seed, std::clamp(train_bytes / 20, 5e4, 5e6));
    for (size_t i = 0; i < kSyntheticTasks.size(); ++i) {
        write_task(files[2 + i], kSyntheticTasks[i], options.seed);
    }
    for (SyntheticFile& file : files) file.finish();
    for (SyntheticFile& file : files) file.commit();
}

}  // namespace argosy::data
