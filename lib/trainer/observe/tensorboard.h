// A run's curves for TensorBoard: the scalars of a point, the event file that holds them, its records, and
// the checksum of a record. A curve that TorchTitan also writes has TorchTitan's name and unit, so that runs
// of both programs can share a plot.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "observe/append_file.h"
#include "observe/metrics.h"

namespace argosy::observe {

// The records of a TensorBoard event file, as bytes in the layout of FORMAT.md. These functions are pure;
// EventFile below writes the file.

/// A point of the curve `tag`. The file stores the value as float32.
struct Scalar {
    std::string tag;
    double value = 0;
};

/// When something happened, in seconds since 1970, and at which step.
struct EventTime {
    double wall_seconds = 0;
    int64_t step = 0;
};

/// Wraps `data` as a record: length, data, checksums.
std::string framed(std::string_view data);

/// `Event` messages, which framed() turns into records. version_event() is the first of a file, start_event()
/// the first of a run, and scalars_event() has the scalars of one step. Readers drop the points of earlier
/// files from the start event's step on.
std::string version_event(EventTime time);
std::string start_event(EventTime time);
std::string scalars_event(EventTime time, const std::vector<Scalar>& scalars);

/// Returns the scalars of one point. Values of the newest step: loss_metrics/global_avg_loss, grad_norm, lr,
/// with optimizer.qk_clip attention_scores/largest, and with experts those of FORMAT.md by layer:
/// experts/<figure>/layers.<N>, bias_range in place of bias_min and bias_max, the largest of all layers as
/// experts/load_max_over_mean/worst_layer, and the losses that are on as loss_metrics/<loss>.
/// Means over the steps since the previous point:
///   throughput(tps)                  tokens per second and device
///   tflops, mfu(%)                   model TFLOP/s of a device, and their share of its peak, by the
///                                    non-causal formula (model/flops.h), like TorchTitan's; mfu only if the
///                                    datasheet's peak is known
///   of_gemm(%)                       model FLOP/s as a share of the measured peak, by the causal formula,
///                                    like the log; only if the peak was measured
///   time_metrics/end_to_end(s)       the time of a step
///   time_metrics/<part>(s)           its parts, which add up to it: compute, data_loading, optimizer,
///                                    checkpoint, validation, evaluation, other, exposed(<axes>)
///   time_metrics/data_loading(%)     the share of data_loading in the time of a step
/// Memory: memory/max_active(GiB) is the peak of tensors since the previous point, memory/rss(GiB) the
/// process's resident set at the end of the newest step. On a GPU, memory/max_reserved(GiB) is the peak
/// reserved for tensors, and memory/num_alloc_retries counts since the process began.
///
/// A step with a validation has a point of its own:
///   validation_metrics/global_avg_loss, validation_metrics/perplexity
/// and a step with an evaluation:
///   evaluation/<task>/<metric>
std::vector<Scalar> tensorboard_scalars(const StepWindow& window, const JobFigures& job);

std::vector<Scalar> validation_scalars(const ValidationMetrics& validation);
std::vector<Scalar> evaluation_scalars(std::span<const TaskMetrics> tasks);

// A TensorBoard event file of scalars. The file only grows. Only one thread may use an EventFile.

class EventFile {
  public:
    /// Creates a new file in `folder`, and the folder if it is missing. Throws RunError.
    explicit EventFile(const std::string& folder);

    /// Writes the scalars of one step. When write() returns, the operating system has the scalars, so the
    /// file stays readable however the process ends. The first call also writes the start event of its step.
    /// Throws RunError when the scalars cannot be written; the file then ends with the previous record.
    void write(int64_t step, const std::vector<Scalar>& scalars);

  private:
    void start();  // of a new file

    AppendFile file_;
    bool started_ = false;  // whether the file has a start event
};

// The checksum of iSCSI (RFC 3720), SCTP and TFRecord.

/// CRC-32C: polynomial 0x1edc6f41, bits reflected, start and end inverted. Test value: "123456789" gives
/// 0xe3069283.
uint32_t crc32c(std::string_view bytes);

}  // namespace argosy::observe
