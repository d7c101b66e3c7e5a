#include "bench/products.h"

#include <vector>

#include "base/clock.h"
#include "cublas/matmul.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

namespace argosy::bench {
namespace {

/// 16 launches of 0.2 ms on one H100 between two waits of the host.
constexpr int64_t kSizeOnGpu = 4096;
constexpr int kLaunches = 16;
constexpr int kSize = 160;  // some milliseconds on one core

/// Launches products of bf16 zeros and waits for their end.
class GpuProducts {
  public:
    explicit GpuProducts(int max_multiprocessors) : max_multiprocessors_(max_multiprocessors) {
        for (const cuda::DeviceMemory* each : {&a_, &b_, &c_})
            cuda::set_to_zero(each->data(), each->bytes(), stream_);
    }
    int operator()() {
        const auto matrix = [](const cuda::DeviceMemory& memory) {
            return cublas::Matrix{
                memory.data(), ElementType::BFloat16, kSizeOnGpu, kSizeOnGpu, kSizeOnGpu, 1};
        };
        const auto constant = [&](const cuda::DeviceMemory& memory) {
            const auto [data, type, rows, columns, row_stride, column_stride] = matrix(memory);
            return cublas::ConstMatrix{data, type, rows, columns, row_stride, column_stride};
        };
        for (int i = 0; i < kLaunches; ++i) {
            multiplier_.run({.c = matrix(c_),
                             .a = constant(a_),
                             .b = constant(b_).transposed(),
                             .max_multiprocessors = max_multiprocessors_},
                            stream_.handle());
        }
        stream_.synchronize();
        return kLaunches;
    }

  private:
    static constexpr size_t kBytes = size_t{2} * kSizeOnGpu * kSizeOnGpu;
    int max_multiprocessors_;
    cuda::Stream stream_;
    cuda::DeviceMemory a_{kBytes}, b_{kBytes}, c_{kBytes};
    cublas::Multiplier multiplier_;
};

/// One product of fp32 matrices.
class HostProducts {
  public:
    int operator()() {
        for (int row = 0; row < kSize; ++row) {
            for (int term = 0; term < kSize; ++term) {
                const float factor = a_[row * kSize + term];
                for (int column = 0; column < kSize; ++column)
                    c_[row * kSize + column] += factor * b_[term * kSize + column];
            }
        }
        return 1;
    }

  private:
    std::vector<float> a_ = std::vector<float>(kSize * kSize, 1e-9F), b_ = a_, c_ = a_;
};

}  // namespace

Products::~Products() {
    stops_ = true;
    if (thread_.joinable()) thread_.join();
}

void Products::start() {
    runs_ = stops_ = false;
    error_ = nullptr;
    thread_ = std::thread([this] {
        try {
            run();
        } catch (...) {
            error_ = std::current_exception();
            runs_ = true;
        }
    });
    while (!runs_) std::this_thread::yield();
}

double Products::stop() {
    stops_ = true;
    thread_.join();
    if (error_) std::rethrow_exception(error_);
    return seconds_;
}

void Products::run() {
    if (!options_.device) return repeat(HostProducts());
    cuda::set_device(*options_.device);
    repeat(GpuProducts(options_.max_multiprocessors));
}

template <class Multiply>
void Products::repeat(Multiply multiply) {
    multiply();
    runs_ = true;
    int64_t number = 0;
    const double begin = seconds_now();
    do {
        number += multiply();
    } while (!stops_);
    seconds_ = (seconds_now() - begin) / static_cast<double>(number);
}

}  // namespace argosy::bench
