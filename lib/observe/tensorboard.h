// What TensorBoard shows of a run: the curves' names and units are TorchTitan's where the notion is the same,
// so that runs of both lie in one plot.
#pragma once

#include <vector>

#include "observe/event_record.h"
#include "observe/metrics.h"
#include "observe/progress_line.h"

namespace argosy::observe {

/// The newest step's: loss_metrics/global_avg_loss, grad_norm, lr. Means over the steps since the point
/// before:
///   throughput(tps)                  tokens a second and device
///   tflops, mfu(%)                   model TFLOP/s of a device, and their share of its peak, by the formula
///                                    without causality (flops.h), as TorchTitan's; mfu only against a
///                                    datasheet
///   of_gemm(%)                       the share of a measured peak, by the causal formula as in the log
///   time_metrics/end_to_end(s)       a step, and time_metrics/<part>(s) of it, which add up to it: compute,
///                                    data_loading, optimizer, checkpoint, other, exposed(<axes>)
///   time_metrics/data_loading(%)
/// Of memory, memory/max_active(GiB) is the most that tensors held in these steps and memory/rss(GiB) the
/// process's at their end; on a GPU memory/max_reserved(GiB) is the most that was reserved for tensors, and
/// memory/num_alloc_retries counts since the process began.
std::vector<Scalar> tensorboard_scalars(const Progress& progress, const JobFigures& job);

}  // namespace argosy::observe
