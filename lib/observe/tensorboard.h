// TensorBoard's curves of a run. Names and units are TorchTitan's where the notion is the same, so that runs
// of both can share a plot.
#pragma once

#include <vector>

#include "observe/event_record.h"
#include "observe/metrics.h"
#include "observe/progress_line.h"

namespace argosy::observe {

/// Values of the newest step: loss_metrics/global_avg_loss, grad_norm, lr. Means over the steps since the
/// previous point:
///   throughput(tps)                  tokens per second and device
///   tflops, mfu(%)                   model TFLOP/s of a device, and their share of its peak, by the
///                                    non-causal formula (flops.h), like TorchTitan's; mfu only if the
///                                    datasheet's peak is known
///   of_gemm(%)                       the share of the measured peak, by the causal formula as in the log
///   time_metrics/end_to_end(s)       a step; its parts time_metrics/<part>(s) add up to it: compute,
///                                    data_loading, optimizer, checkpoint, other, exposed(<axes>)
///   time_metrics/data_loading(%)
/// Memory: memory/max_active(GiB) is the peak of tensors in these steps, memory/rss(GiB) the process's
/// resident set at their end; on a GPU memory/max_reserved(GiB) is the peak reserved for tensors, and
/// memory/num_alloc_retries counts since the process began.
std::vector<Scalar> tensorboard_scalars(const Progress& progress, const JobFigures& job);

}  // namespace argosy::observe
