#include "kernels/gpu_place.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>

#include "support/emulated_cuda.h"

namespace argosy::kernels {
namespace {

constexpr int kUnwritten = 0xa5;  // each byte of new memory
constexpr size_t kLength = 8;     // that many such bytes in a row are no value of a test
constexpr unsigned char kRun[kLength] = {kUnwritten, kUnwritten, kUnwritten, kUnwritten,
                                         kUnwritten, kUnwritten, kUnwritten, kUnwritten};

}  // namespace

bool has_gpu() { return true; }

void* allocate_on_gpu(size_t bytes) { return std::memset(::operator new(bytes), kUnwritten, bytes); }
void free_on_gpu(void* memory) { ::operator delete(memory); }

void copy_to_gpu(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

/// Like initcheck, refuses to copy what nobody wrote.
void copy_from_gpu(void* to, const void* from, size_t bytes) {
    const auto* start = static_cast<const unsigned char*>(from);
    for (size_t i = 0; i + kLength <= bytes; i += kLength) {
        if (std::memcmp(start + i, kRun, kLength) != 0) continue;
        ADD_FAILURE() << "byte " << i << " of " << bytes << " is copied from the GPU, but nobody wrote it";
        break;
    }
    std::memcpy(to, from, bytes);
}

void set_order(Threads threads, uint64_t block_seed) {
    using testing::Order;
    testing::emulated_cuda().threads = threads == Threads::Forwards ? Order::Forwards : Order::Backwards;
    testing::emulated_cuda().block_seed = block_seed;
}
void set_multiprocessors(int number) { testing::emulated_cuda().num_multiprocessors = number; }
void reset_place() { testing::emulated_cuda() = testing::EmulatedCuda(); }

}  // namespace argosy::kernels
