#include "observe/skipped_updates.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/text.h"
#include "observe/step_lines.h"

namespace argosy::observe {
namespace {

constexpr const char* kFileName = "skipped_updates.jsonl";
constexpr size_t kSamplesInLog = 16;  // the file lists all of them

}  // namespace

std::string json_line(const SkippedUpdate& update) {
    const bool finite = std::isfinite(update.loss) && std::isfinite(update.grad_norm);
    const nlohmann::ordered_json line = {
        // infinity and NaN, which JSON lacks, become null
        {"step", update.step},
        {"cause", finite ? "spike" : "nonfinite"},
        {"loss", update.loss},
        {"grad_norm", update.grad_norm},
        {"loss_zscore", update.loss_zscore},
        {"grad_norm_zscore", update.grad_norm_zscore},
        {"samples_per_data_rank", update.samples_per_data_rank},
        {"samples", update.samples},
    };
    return line.dump();
}

SkippedUpdates::SkippedUpdates(const MetricsOptions& metrics, int rank)
    : path_(std::filesystem::path(metrics.dump_folder) / kFileName), rank_(rank) {
    if (rank_ == 0 && metrics.last_own_step) set_aside_steps_after(*metrics.last_own_step, path_);
}

void SkippedUpdates::write(const SkippedUpdate& update) {
    if (rank_ != 0) return;
    if (!file_) file_.emplace(path_.string());
    file_->append_line(json_line(update));
    spdlog::warn("step {}: the update is skipped: {}; its {} samples, in {}: {}", update.step, update.reason,
                 update.samples.size(), kFileName, listed(update.samples, kSamplesInLog));
}

}  // namespace argosy::observe
