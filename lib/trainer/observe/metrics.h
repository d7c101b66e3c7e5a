// The metrics of a training step, the speeds that follow from them, and their text: JSON for programs,
// aligned columns for people. This file makes values and texts only; metrics_writer.h writes them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/balancing.h"
#include "model/flops.h"
#include "observe/peak_flops.h"
#include "observe/step_timer.h"

namespace argosy::observe {

/// Figures that stay the same for all steps of a job.
struct JobFigures {
    int num_devices = 1;
    model::FlopsPerToken flops_per_token;
    // Peaks of one device: of the usual type of training (bf16), and of the run's matrix products.
    PeakFlops datasheet = {}, compute_datasheet = {}, measured = {};
    /// Names of the types of matrix products, of the weights that are updated, and of sums over ranks.
    std::array<std::string, 3> number_types = {"bfloat16", "float32", "float32"};
    /// "float8 tensorwise": how products cast their operands; empty: they do not.
    std::string product_casts = {};
    /// The denominator of utilisation: the datasheet's peak if known, else the measured peak. The datasheet's
    /// is the same for a run in fp32 and one in bf16, so that the faster run has the higher utilisation; the
    /// measured peak is that of the run's own type.
    const PeakFlops& peak() const { return datasheet.known() ? datasheet : measured; }
};

/// Figures of a GPU's caching allocator, in addition to the bytes of tensors.
struct AllocatorFigures {
    int64_t peak_reserved_bytes = 0;  // maximum reserved from the GPU within the step
    int64_t num_retries = 0;          // since the process began; see gpu::MemoryFigures
};

/// The memory of one step.
struct StepMemory {
    int64_t peak_bytes = 0;                          // peak of tensors within the step
    int64_t rss_bytes = 0;                           // resident set of the process at the step's end
    std::optional<AllocatorFigures> allocator = {};  // none on a CPU
};

/// The loss of held-out samples after a step's update.
struct ValidationMetrics {
    double loss = 0;  // mean over the tokens
    int64_t num_tokens = 0;
};

/// The metrics of a task under the weights after a step's update, as `eval` names them.
struct TaskMetrics {
    struct Value {
        std::string metric;
        double value = 0;
        std::optional<double> standard_error = {};
    };
    std::string task;
    std::vector<Value> values;
};

inline constexpr int64_t kStartUpSteps = 5;  // of a start; they say nothing about a run's speed

/// One step as the trainer measured it: loss, norm and tokens of the whole job, memory and times of this
/// rank.
struct StepMetrics {
    int64_t step = 0;           // 1 is the first
    int64_t step_of_start = 1;  // 1 is the first since the process began
    double loss = 0;            // mean over the step's valid tokens
    double grad_norm = 0;       // before clipping
    double lr = 0;
    int64_t tokens = 0;
    StepMemory memory = {};
    int64_t skipped_updates = 0;  // since the run began
    /// Seconds that the run may still take (training.max_time).
    double seconds_allowed = std::numeric_limits<double>::infinity();
    /// Gradient norms by unit ("embedding", "layers.0", ..., "head": the final norm, and the output unless
    /// tied), before clipping; empty unless requested. The sum of their squares is grad_norm squared.
    std::vector<std::pair<std::string, double>> layer_grad_norms = {};
    /// The largest attention score if it is above optimizer.qk_clip, else a bound of it that is at most
    /// optimizer.qk_clip; and the number of heads with larger scores than that. Only with that key.
    struct Scores {
        double largest = 0;
        int64_t num_too_large = 0;
    };
    std::optional<Scores> scores = {};
    std::optional<model::ExpertFigures> experts = {};       // of a model with experts
    std::optional<ValidationMetrics> validation = {};       // of the steps with a validation
    std::vector<TaskMetrics> evaluation = {};               // of the steps with an evaluation
    std::optional<double> baseline_tokens_per_second = {};  // of metrics.baseline; none if there is none
    StepTimes times;

    bool finite() const;            // whether loss and norm are finite
    bool counts_for_speed() const;  // FORMAT.md, "The speed of a run"
};

struct Speed {
    double tokens_per_second = 0;  // the whole job's tokens over the step's wall time
    double tokens_per_second_per_device = 0;
    double model_tflops_per_device = 0;  // by the causal formula (model/flops.h), in 1e12 FLOP per second
    /// Model FLOP utilisation (MFU): a device's model FLOP/s over its peak; 1 is the peak. None if no peak is
    /// known.
    std::optional<double> mfu_causal, mfu_noncausal;
    /// The causal model FLOP/s over the datasheet's peak of the type in which the run multiplies; none if
    /// unknown.
    std::optional<double> of_compute_type;
    /// The causal model FLOP/s over the measured peak of matrix products; none if that peak was not measured.
    std::optional<double> of_gemm;
};
Speed speed(int64_t tokens, double seconds, const JobFigures& job);

/// One line of metrics.jsonl, without its newline: a JSON object with the keys
///   step, loss, grad_norm, lr, finite (whether loss and norm are finite), counts_for_speed (FORMAT.md),
///   tokens, tokens_per_second, tokens_per_second_per_device, model_tflops_per_device, mfu_causal,
///   mfu_noncausal, peak_flops_source (the peak of the two MFUs: none, datasheet, measured GEMM),
///   datasheet_tflops (of bf16 products, whatever the run's types are), number_types {compute, master,
///   reduce, products (how their operands are cast: only if they are)}, compute_type_tflops (the datasheet's
///   peak of products of the type compute), mfu_compute_type (causal, over that peak), measured_gemm_tflops,
///   memory_peak_gib, rss_gib, time_ms {total, data, compute, optimizer, exposed {axes: ms}, checkpoint,
///   validation, evaluation, other} (a step begins where the one before ended; the communication of
///   validation and evaluation is in their times, not in exposed), checkpoint_stall_ms (the same as
///   time_ms.checkpoint), skipped_updates, memory_reserved_gib, memory_retries, compute_kinds_ms
///   {forward, recompute, head, backward, weights, other} (the parts of time_ms.compute; StepTimes),
///   layer_grad_norms {unit: norm} (only if requested), attention_scores {largest, heads_too_large} (only
///   with optimizer.qk_clip: the largest score if it is above that, else a bound of it up to that; the heads
///   with scores above that), experts (only of a model with them; FORMAT.md), validation_loss,
///   validation_perplexity (its exponential), validation_tokens (only of steps after which the run was
///   validated), evaluation {task: {metric: value, metric_stderr: value}} (only of steps after which tasks
///   were evaluated; metric_stderr only if the metric has a standard error), efficiency (tokens_per_second
///   over the median of metrics.baseline; only with a baseline)
/// in this order. These values are null: numbers that are not finite, unknown peaks, utilisation without a
/// peak, and on a CPU memory_reserved_gib and memory_retries.
/// `has_log_line`: the step's line has the counts of experts.
std::string json_line(const StepMetrics& metrics, const JobFigures& job, bool has_log_line = false);

// Lines for people. Every column keeps its width over orders of magnitude, so that the lines of a run align.

/// The data of a line: the newest step, and sums and maxima over the window, the steps since the previous
/// line.
struct StepWindow {
    StepMetrics newest;
    int64_t final_step = 0;                      // the run's last step
    int64_t num_steps = 0;                       // of the window, including the newest
    int64_t tokens = 0;                          // sum
    StepTimes times;                             // sums
    int64_t peak_bytes = 0;                      // maximum
    std::optional<int64_t> reserved_bytes = {};  // maximum; none on a CPU
    double seconds_left = 0;                     // until final_step
};

/// A line with the measured peak of matrix products and, if known, the datasheet's. REQUIRES: the peak was
/// measured.
std::string peak_line(const JobFigures& job);

/// The line of a validation: step n/N, loss, perplexity, tokens, seconds. REQUIRES: metrics.validation.
std::string validation_line(const StepMetrics& metrics, int64_t final_step);

/// The line of an evaluated task: step n/N, task, and each metric with its standard error.
std::string evaluation_line(const StepMetrics& metrics, const TaskMetrics& task, int64_t final_step);

/// The log line, which fits a terminal of 120 columns with the log's prefix. The figures that fit are, the
/// most important first: that experts take turns; the newest step's n/N, loss and gradient norm, tokens/s of
/// the job and the ETA; the allocator's retries and the skipped updates, if any, and the largest load of
/// an expert over the mean, of the layer where that is largest ("load"); the share of the datasheet's peak
/// ("MFU"), else of the measured peak ("of GEMM"), else model TFLOP/s of a device (causal); the share of the
/// wall time that is exposed communication, on several ranks; peak tensor memory; the learning rate; the
/// share of waits for data; further shares of peaks. Speeds, memory and shares are those of the window.
/// metrics.jsonl has all figures.
std::string log_line(const StepWindow& window, const JobFigures& job);

}  // namespace argosy::observe
