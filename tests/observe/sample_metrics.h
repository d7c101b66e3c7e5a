// A step's metrics and a job's figures, for tests.
#pragma once

#include "observe/metrics.h"

namespace argosy::observe {

/// 64 devices at 1000 TFLOP/s process 4096 tokens in two seconds at 1e12 (2e12) FLOPs per token: 32 tokens/s
/// and 3.2 % (6.4 %) per device.
inline JobFigures sample_job(PeakSource source = PeakSource::Datasheet) {
    JobFigures job{.num_devices = 64, .flops_per_token = {.causal = 1e12, .noncausal = 2e12}};
    if (source == PeakSource::Datasheet) job.datasheet = job.compute_datasheet = {1e15, source};
    if (source == PeakSource::MeasuredGemm) job.measured = {1e15, source};
    return job;
}

/// The same datasheet peak, of which measured products reach 80 %.
inline JobFigures measured_job() {
    JobFigures job = sample_job();
    job.measured = {8e14, PeakSource::MeasuredGemm};
    return job;
}

inline StepMetrics sample_step(int64_t step) {
    StepMetrics metrics{
        .step = step, .step_of_start = step, .loss = 3.25, .grad_norm = 0.5, .lr = 3e-4, .tokens = 4096};
    metrics.memory.peak_bytes = int64_t{3} << 29;  // 1.5 GiB
    metrics.memory.rss_bytes = int64_t{1} << 31;
    metrics.times = {
        .total_ms = 2000, .data_ms = 100, .compute_ms = 1400, .optimizer_ms = 200, .other_ms = 50};
    metrics.times.exposed_ms = {{"dp_shard x cp", 200.0}, {"tp", 50.0}};
    return metrics;
}

/// Two layers with three experts; one expert of the first gets nothing.
inline model::ExpertFigures sample_experts() {
    return {.layers = {1, 3}, .counts = {{4, 0, 2}, {2, 2, 2}}, .entropy = {0.5, 1}};
}

}  // namespace argosy::observe
