#include "observe/shortage.h"

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "cuda/device.h"
#include "gpu/device.h"

namespace argosy::observe {
namespace {

/// The figures that LibTorch's GPU allocator reported when it failed.
Shortage of_tensors_on_the_gpu() {
    const auto failure = gpu::last_allocation_failure();
    if (!failure) return {Shortage::Where::Gpu};
    return {Shortage::Where::Gpu, failure->requested_bytes, failure->allocated_bytes,
            Shortage::Gpu{failure->reserved_bytes, failure->device_free_bytes, failure->device_total_bytes}};
}

/// Describes the failure of a GPU allocation outside LibTorch's allocator. The figures are the allocator's
/// maxima in this step. The figures stay empty if the queries fail too, for lack of memory.
Shortage beside_tensors_on_the_gpu(std::optional<int64_t> requested_bytes) {
    Shortage found{Shortage::Where::Gpu, requested_bytes};
    try {
        const auto figures = gpu::memory();
        if (!figures) return found;
        const auto total = static_cast<int64_t>(cuda::describe_device(cuda::current_device()).memory_bytes);
        const auto outside =
            total - static_cast<int64_t>(cuda::free_memory_bytes()) - figures->reserved_bytes;
        const int64_t reserved = figures->peak_reserved_bytes;
        found.tensor_bytes = figures->peak_allocated_bytes;
        found.gpu = Shortage::Gpu{reserved, std::max<int64_t>(total - outside - reserved, 0), total};
    } catch (const std::exception&) {
    }
    return found;
}

std::string breakdown(const Shortage& found) {
    if (found.where == Shortage::Where::Host) return host_memory(found);
    if (!found.gpu) return ", on the GPU";
    std::vector<std::string> parts = {"tensors " + gibibytes_text(*found.tensor_bytes)};
    std::ranges::move(parts_beside_tensors(found), std::back_inserter(parts));
    return fmt::format("; {}: {}", which_memory(found), fmt::join(parts, ", "));
}

}  // namespace

std::optional<Shortage> find_shortage() {
    constexpr int kCudaErrorMemoryAllocation = 2;
    try {
        throw;
    } catch (const MemoryError& error) {
        const auto& [requested_bytes, tensor_bytes] = error.figures();
        if (!tensor_bytes) return beside_tensors_on_the_gpu(requested_bytes);
        return Shortage{Shortage::Where::Host, requested_bytes, tensor_bytes};
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

std::string gibibytes_text(int64_t bytes) { return fmt::format("{:.4g} GiB", gibibytes(bytes)); }

std::string request_text(const Shortage& found) {
    return found.requested_bytes ? fmt::format(": {} requested", gibibytes_text(*found.requested_bytes)) : "";
}

std::string which_memory(const Shortage& found) {
    if (found.gpu) return fmt::format("of the GPU's {}", gibibytes_text(found.gpu->total_bytes));
    return found.tensor_bytes
               ? fmt::format("of {} of tensors in the host's memory", gibibytes_text(*found.tensor_bytes))
               : "in the host's memory";
}

std::string host_memory(const Shortage& found) {
    if (!found.tensor_bytes) return ", in the host's memory";
    return fmt::format(", in the host's memory, beside {} of tensors there",
                       gibibytes_text(*found.tensor_bytes));
}

std::vector<std::string> parts_beside_tensors(const Shortage& found) {
    const auto& [reserved, free, total] = *found.gpu;
    return {"reserved but fragmented " + gibibytes_text(reserved - *found.tensor_bytes),
            "CUDA, its libraries and other processes " + gibibytes_text(total - free - reserved),
            "free " + gibibytes_text(free)};
}

void explain_shortage(const char* options) {
    const auto found = find_shortage();
    if (!found) throw;
    throw RunError("out of memory{}{}. What would need less: {}; {}", request_text(*found), breakdown(*found),
                   options,
                   found->where == Shortage::Where::Gpu ? "--device cpu" : "a machine with more memory");
}

}  // namespace argosy::observe
