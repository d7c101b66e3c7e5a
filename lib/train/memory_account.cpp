#include "train/memory_account.h"

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <vector>

#include "base/error.h"
#include "cuda/device.h"
#include "gpu/memory.h"
#include "parallel/unit_op.h"

namespace argosy::train {
namespace {

/// What is known of the moment, in bytes.
struct Shortage {
    std::optional<int64_t> wanted = {};
    std::optional<int64_t> tensors = {};  // that were held, activations and all
    /// Of a GPU.
    struct Device {
        int64_t reserved = 0, free = 0, total = 0;
    };
    std::optional<Device> device = {};
};

std::string gibibytes(int64_t bytes) {
    return fmt::format("{:.4g} GiB", static_cast<double>(bytes) / (1 << 30));
}

/// As LibTorch's allocator saw it.
Shortage of_tensors_on_the_gpu() {
    const auto failure = gpu::last_allocation_failure();
    if (!failure) return {};
    return {
        failure->wanted_bytes, failure->allocated_bytes,
        Shortage::Device{failure->reserved_bytes, failure->device_free_bytes, failure->device_total_bytes}};
}

/// Past the allocator, which was not asked: the most that it held in this step.
Shortage beside_tensors_on_the_gpu(std::optional<int64_t> wanted) {
    const auto figures = gpu::memory();
    if (!figures) return {wanted};
    const auto total = static_cast<int64_t>(cuda::describe_device(cuda::current_device()).memory_bytes);
    const auto outside = total - static_cast<int64_t>(cuda::free_memory_bytes()) - figures->reserved_bytes;
    const int64_t reserved = figures->peak_reserved_bytes;
    return {wanted, figures->peak_allocated_bytes,
            Shortage::Device{reserved, std::max<int64_t>(total - outside - reserved, 0), total}};
}

/// Of the exception that is handled; none where it is about something else.
std::optional<Shortage> shortage() {
    constexpr int kCudaErrorMemoryAllocation = 2;
    try {
        throw;
    } catch (const MemoryError& error) {
        const auto& [wanted, tensors] = error.figures();
        if (!tensors) return beside_tensors_on_the_gpu(wanted);
        return Shortage{wanted, tensors};
    } catch (const c10::OutOfMemoryError&) {
        return of_tensors_on_the_gpu();
    } catch (const c10::AcceleratorError& error) {
        if (error.get_error_code() != kCudaErrorMemoryAllocation) return std::nullopt;
        return beside_tensors_on_the_gpu(std::nullopt);
    } catch (const std::bad_alloc&) {
        return Shortage{};
    } catch (...) {
        return std::nullopt;
    }
}

std::vector<std::string> lasting_parts(const HeldBytes& held) {
    return {"weights " + gibibytes(held.weights), "their copies for computation " + gibibytes(held.copies),
            "gradients " + gibibytes(held.gradients), "optimizer states " + gibibytes(held.moments)};
}

/// They add up to what the device has, or else to what tensors held.
std::vector<std::string> parts_of_a_step(const HeldBytes& held, const Shortage& found) {
    std::vector<std::string> parts = lasting_parts(held);
    parts.push_back("gathered units " + gibibytes(held.gathered));
    parts.push_back("activations and the rest " +
                    gibibytes(std::max<int64_t>(*found.tensors - held.total(), 0)));
    return parts;
}

std::vector<std::string> parts_of_the_device(const Shortage& found) {
    const auto& [reserved, free, total] = *found.device;
    return {"reserved in pieces that do not fit " + gibibytes(reserved - *found.tensors),
            "CUDA, NCCL and other processes " + gibibytes(total - free - reserved),
            "free " + gibibytes(free)};
}

std::string place(const Shortage& found) {
    if (found.device) return fmt::format("of the GPU's {}", gibibytes(found.device->total));
    return found.tensors ? fmt::format("of {} of tensors in the host's memory", gibibytes(*found.tensors))
                         : "in the host's memory";
}

/// Without what a device has of its own.
std::string breakdown(const std::optional<HeldBytes>& planned, const std::optional<HeldBytes>& held,
                      const Shortage& found) {
    std::vector<std::string> parts;
    std::string text;
    if (held && found.tensors) {
        parts = parts_of_a_step(*held, found);
    } else if (!held && planned) {
        text = fmt::format("; the model that was being made needs {} before the first step: {}",
                           gibibytes(planned->total()), fmt::join(lasting_parts(*planned), ", "));
        if (found.tensors) parts = {"tensors so far " + gibibytes(*found.tensors)};
    }
    if (found.device) std::ranges::copy(parts_of_the_device(found), std::back_inserter(parts));
    if (parts.empty()) return text;
    return fmt::format("; {}: {}{}", place(found), fmt::join(parts, ", "), text);
}

/// What would help and is not so yet, with what it is now.
std::vector<std::string> remedies(const config::JobConfig& config, bool on_gpu) {
    std::vector<std::string> found;
    const auto add = [&](bool helps, std::string text) {
        if (helps) found.push_back(std::move(text));
    };
    const config::Training& training = config.training;
    const config::Parallelism& parallelism = config.parallelism;
    const bool pipelined = parallelism.pipeline_parallel_degree > 1;
    const int64_t microbatch = parallelism.pipeline_parallel_microbatch_size;
    const bool narrow = training.dtype == config::Precision::BFloat16;
    const auto& states = config.optimizer.state_dtype;
    add(!pipelined && training.local_batch_size > 1,
        fmt::format("training.local_batch_size below {}", training.local_batch_size));
    add(pipelined && microbatch > 1,
        fmt::format("parallelism.pipeline_parallel_microbatch_size below {}", microbatch));
    add(config.activation_checkpoint.mode != config::RecomputeMode::Full,
        fmt::format("activation_checkpoint.mode = full (it is {})",
                    name_of(config.activation_checkpoint.mode)));
    add(states != config::Precision::BFloat16 && training.dtype != config::Precision::Float64,
        fmt::format("optimizer.state_dtype = bfloat16 (it is {})",
                    name_of(states.value_or(config::Precision::Float32))));
    add(!narrow && training.mixed_precision_param == config::Precision::BFloat16,
        fmt::format("training.dtype = bfloat16 (it is {})", name_of(training.dtype)));
    add(parallelism.data_parallel_replicate_degree > 1,
        fmt::format("parallelism.data_parallel_replicate_degree below {}, and as many times more shards",
                    parallelism.data_parallel_replicate_degree));
    add(parallelism.data_parallel_replicate_degree == 1, "more ranks to shard over");
    add(parallelism.fsdp_reshard_after_forward != config::ReshardAfterForward::Always &&
            (pipelined || parallelism.fsdp_reshard_after_forward == config::ReshardAfterForward::Never),
        fmt::format("parallelism.fsdp_reshard_after_forward = always (it is {})",
                    name_of(parallelism.fsdp_reshard_after_forward)));
    add(on_gpu && config.compile.enable && config.compile.graphs,
        "compile.graphs = false (a graph's memory is its own)");
    return found;
}

}  // namespace

void MemoryAccount::note(Trainer& trainer) {
    held_ = held_bytes(trainer.model(), trainer.step().optimizer());
    if (const auto* op = trainer.step().executor().under_way()) under_way_ = parallel::describe(*op);
}

void MemoryAccount::explain() const {
    const auto found = shortage();
    if (!found) throw;
    throw RunError("out of memory{}{}{}. What would need less: {}",
                   found->wanted ? fmt::format(": {} asked for", gibibytes(*found->wanted)) : "",
                   under_way_.empty() ? "" : " in " + under_way_, breakdown(planned_, held_, *found),
                   fmt::join(remedies(config_, found->device.has_value()), "; "));
}

}  // namespace argosy::train
