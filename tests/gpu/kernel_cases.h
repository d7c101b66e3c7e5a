// The kernels that kernel_bandwidth compares and measures. Each case builds its arguments over a given block
// of device or host memory, so both sides compute the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/types.h"

namespace argosy::kernels {

/// Takes tensors one after the other from a block of memory and counts the bytes that a kernel reads and
/// writes. The memory already holds random numbers, except for ids, which the caller writes.
class Slices {
  public:
    struct Output {
        size_t offset;
        double tolerance;
        /// Tolerance, relative to an element's size, or to 1 for smaller elements.
        std::function<double(const std::byte* found, const std::byte* expected)> largest_error;
    };
    struct Ids {
        size_t offset;
        std::vector<int64_t> values;
    };

    Slices(std::byte* begin, size_t size) : begin_(begin), size_(size) {}

    template <class T>
    const T* in(int64_t count) {
        return static_cast<const T*>(take(count * sizeof(T), 1));
    }
    template <class T>
    T* out(int64_t count, double tolerance = 0) {
        return output<T>(count, 1, tolerance);
    }
    template <class T>
    T* in_out(int64_t count, double tolerance = 0) {
        return output<T>(count, 2, tolerance);
    }
    /// Zeros for the largest magnitudes that kernels find, once for each launch: the kernels do less for
    /// numbers that are already as large.
    static constexpr int64_t kLaunches = 16;
    float* zeros_for_launches(int64_t count, double tolerance = 0);
    /// Numbers from 0 to limit - 1.
    const int64_t* ids(int64_t count, int64_t limit);
    const int64_t* ids(std::vector<int64_t> values);
    const int32_t* narrow_ids(const std::vector<int32_t>& values);
    /// Counts bytes that the kernel reads a second time.
    void read_again(int64_t bytes) { traffic_bytes_ += bytes; }
    void* scratch(int64_t bytes) { return take(bytes, 0); }

    size_t traffic_bytes() const { return traffic_bytes_; }
    const std::vector<Output>& outputs() const { return outputs_; }
    const std::vector<Ids>& ids() const { return ids_; }

  private:
    void* take(size_t bytes, int times);
    template <class T>
    T* output(int64_t count, int times, double tolerance);

    std::byte* begin_;
    size_t size_, used_ = 0, traffic_bytes_ = 0;
    std::vector<Output> outputs_;
    std::vector<Ids> ids_;
};

struct Run {
    std::function<void(GpuStream)> on_gpu;
    std::function<void()> on_processor;
};

struct Case {
    std::string kernel, size;
    /// The case with tensors of about this many elements.
    std::function<Run(Slices&, int64_t elements)> build;
};

std::vector<Case> all_cases();
/// Those of them that float8 needs (float8_cases.cpp), and experts (routing_cases.cpp).
std::vector<Case> float8_cases();
std::vector<Case> routing_cases();

}  // namespace argosy::kernels
