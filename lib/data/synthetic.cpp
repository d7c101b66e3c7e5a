#include "data/synthetic.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output_lock.h"
#include "data/synthetic_document.h"
#include "data/synthetic_file.h"
#include "data/synthetic_tasks.h"

namespace argosy::data {
namespace {

constexpr double kBytesPerMegabyte = 1e6;
constexpr double kMaxMegabytes = 1e6;

/// Writes documents until one more would move the file's size further away from `wanted_bytes`.
void write_split(const std::filesystem::path& path, uint64_t seed, double wanted_bytes) {
    SyntheticFile file(path);
    double num_bytes = 0;
    for (uint64_t index = 0;; ++index) {
        RandomStream random(seed, path.stem().string(), index);
        nlohmann::json record = {{"text", random_document(random)}};
        const auto size = static_cast<double>(record.dump().size() + 1);
        const double overshoot = num_bytes + size - wanted_bytes;
        if (index > 0 && overshoot > wanted_bytes - num_bytes) break;
        num_bytes += size;
        file.append(std::move(record));
    }
    file.commit();
}

void make_folders(const std::filesystem::path& path) {
    std::error_code failure;
    std::filesystem::create_directories(path, failure);
    if (failure) throw UserError("cannot make the folder {}: {}", path.string(), failure.message());
}

}  // namespace

void write_synthetic_corpus(const SyntheticOptions& options) {
    if (!(options.megabytes > 0 && options.megabytes <= kMaxMegabytes)) {
        throw UserError("the corpus has {} megabytes; it takes more than 0, and at most {}",
                        options.megabytes, kMaxMegabytes);
    }
    const double train_bytes = options.megabytes * kBytesPerMegabyte;
    make_folders(options.output / "tasks");
    const OutputLock lock(options.output / "corpus");
    require_replaceable_tasks(options.output / "tasks");
    for (const char* split : {"train.jsonl", "valid.jsonl"}) {
        require_replaceable(options.output / split, is_synthetic);
    }
    write_split(options.output / "train.jsonl", options.seed, train_bytes);
    write_split(options.output / "valid.jsonl", options.seed, std::clamp(train_bytes / 20, 5e4, 5e6));
    write_synthetic_tasks(options.output / "tasks", options.seed);
}

}  // namespace argosy::data
