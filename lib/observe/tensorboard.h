// TensorBoard's curves of a run. Names and units are TorchTitan's where the notion is the same, so that runs
// of both can share a plot.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "observe/append_file.h"
#include "observe/metrics.h"

namespace argosy::observe {

// The records of a TensorBoard event file as bytes; FORMAT.md has their layout. Pure functions;
// EventFile below owns the file.

/// A point of the curve `tag`; kept as float32.
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

/// `Event` messages, to be framed: the first of a file, the first of a run (readers drop the points that
/// earlier files have from its step on), and the scalars of one step.
std::string version_event(EventTime time);
std::string start_event(EventTime time);
std::string scalars_event(EventTime time, const std::vector<Scalar>& scalars);

/// Values of the newest step: loss_metrics/global_avg_loss, grad_norm, lr. Means over the steps since the
/// previous point:
///   throughput(tps)                  tokens per second and device
///   tflops, mfu(%)                   model TFLOP/s of a device, and their share of its peak, by the
///                                    non-causal formula (peak_flops.h), like TorchTitan's; mfu only if the
///                                    datasheet's peak is known
///   of_gemm(%)                       the share of the measured peak, by the causal formula as in the log
///   time_metrics/end_to_end(s)       a step; its parts time_metrics/<part>(s) add up to it: compute,
///                                    data_loading, optimizer, checkpoint, other, exposed(<axes>)
///   time_metrics/data_loading(%)
/// Memory: memory/max_active(GiB) is the peak of tensors in these steps, memory/rss(GiB) the process's
/// resident set at their end; on a GPU memory/max_reserved(GiB) is the peak reserved for tensors, and
/// memory/num_alloc_retries counts since the process began.
std::vector<Scalar> tensorboard_scalars(const Progress& progress, const JobFigures& job);

// A TensorBoard event file of scalars. The file only grows. One thread.

class EventFile {
  public:
    /// Creates a new file in `folder`, and the folder if it is missing. Throws RunError.
    explicit EventFile(const std::string& folder);

    /// Writes the scalars of one step. They have left the process when this returns, so the file stays
    /// readable however the process ends. For readers the run begins at the first call's step. Throws
    /// RunError when the scalars cannot be written; the file then ends with the previous record.
    void write(int64_t step, const std::vector<Scalar>& scalars);

  private:
    AppendFile file_;
    bool started_ = false;
};

// The checksum of iSCSI (RFC 3720), SCTP and TFRecord.

/// CRC-32C: polynomial 0x1edc6f41, bits reflected, start and end inverted. Test value: "123456789" gives
/// 0xe3069283.
uint32_t crc32c(std::string_view bytes);

}  // namespace argosy::observe
