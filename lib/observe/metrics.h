// What one training step has to say about itself, and the speeds that follow from it. Values only;
// metrics_writer.h brings them to the file and to people.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "observe/device.h"
#include "observe/flops.h"
#include "observe/step_timer.h"

namespace argosy::observe {

/// What stays the same for all steps of a job.
struct JobFigures {
    int num_devices = 1;
    FlopsPerToken flops_per_token;
    PeakFlops datasheet = {}, measured = {};  // of one device, for the type of its products
    /// What utilisation is against: the datasheet's where it is known.
    const PeakFlops& peak() const { return datasheet.known() ? datasheet : measured; }
};

/// What a GPU's allocator says beside the bytes of tensors.
struct AllocatorFigures {
    int64_t peak_reserved_bytes = 0;  // the most that it had taken from the GPU, within the step
    int64_t num_retries = 0;          // since the process began: see gpu::MemoryFigures
};

/// One step as the trainer measured it: loss, norm and tokens of the whole job, memory and times of rank 0.
struct StepMetrics {
    int64_t step = 0;      // 1 is the first
    double loss = 0;       // mean over the step's valid tokens
    double grad_norm = 0;  // before clipping
    double lr = 0;
    int64_t tokens = 0;
    int64_t memory_peak_bytes = 0;                   // of tensors, within the step
    int64_t rss_bytes = 0;                           // resident set of the process at the step's end
    std::optional<AllocatorFigures> allocator = {};  // none on a processor
    int64_t skipped_updates = 0;                     // since the run began
    std::optional<double> loss_scale = {};           // that the step ran with; none where nothing is scaled
    /// Seconds that the run may still take (training.max_time).
    double seconds_allowed = std::numeric_limits<double>::infinity();
    /// By unit ("embedding", "layers.0", ..., "head": the final norm, and the output unless tied), before
    /// clipping; empty unless asked for. Their squares add up to that of grad_norm.
    std::vector<std::pair<std::string, double>> layer_grad_norms = {};
    StepTimes times;

    bool finite() const;  // loss and norm
};

struct Speed {
    double tokens_per_second = 0;  // the whole job's tokens over the step's wall time
    double tokens_per_second_per_device = 0;
    double model_tflops_per_device = 0;  // causal model FLOPs (flops.h), in 1e12 a second
    /// Model FLOP utilisation: model FLOPs a second of a device over its peak; 1 is the peak. None when no
    /// peak is known.
    std::optional<double> mfu_causal, mfu_noncausal;
    /// The same against what products were measured to reach, causal; none where they were not.
    std::optional<double> of_gemm;
};
Speed speed(int64_t tokens, double seconds, const JobFigures& job);

/// One line of metrics.jsonl, without its newline: a JSON object with the keys
///   step, loss, grad_norm, lr, finite (are loss and norm), tokens, tokens_per_second,
///   tokens_per_second_per_device, model_tflops_per_device, mfu_causal, mfu_noncausal, peak_flops_source
///   (none, datasheet, measured GEMM: what the two before are against), datasheet_tflops,
///   measured_gemm_tflops, memory_peak_gib, rss_gib, time_ms {total, data, compute, optimizer,
///   exposed {axes: ms}, checkpoint, other}, checkpoint_stall_ms (the same once more), skipped_updates,
///   loss_scale, memory_reserved_gib, memory_retries, layer_grad_norms {unit: norm} (only if asked for)
/// in this order. A number that is not finite, utilisation without a peak, a peak that is not known, the
/// scale of a loss that is not scaled, and on a processor what a GPU's allocator would say, is null.
std::string json_line(const StepMetrics& metrics, const JobFigures& job);

}  // namespace argosy::observe
