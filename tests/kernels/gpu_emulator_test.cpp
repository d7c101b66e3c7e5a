// The emulator that runs GPU kernels in tests. It computes the results of blocks and warps, and reports
// errors that a GPU would hide: barriers that are missing or that not all threads reach, and memory that
// nobody wrote.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/device.cuh"
#include "kernels/gpu_place.h"
#include "support/emulated_cuda.h"

namespace argosy::kernels::cuda {
namespace {

using testing::emulated_cuda;
using testing::EmulatedCuda;
using testing::Order;

class Emulator : public ::testing::TestWithParam<Order> {
  protected:
    void SetUp() override { emulated_cuda().threads = GetParam(); }
    void TearDown() override { emulated_cuda() = EmulatedCuda(); }

    /// The message that the launch throws, or an empty one.
    template <class... Params>
    std::string fault(int threads, void (*kernel)(Params...), std::type_identity_t<Params>... args) {
        try {
            launch({"planted", 2, threads, nullptr}, kernel, args...);
        } catch (const RunError& error) {
            return error.what();
        }
        return "";
    }
};

void numbers_kernel(int64_t* numbers) {
    const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    numbers[i] += i;
}

TEST_P(Emulator, RunsEveryThreadOfEveryBlockOnce) {
    emulated_cuda().block_seed = 7;
    std::vector<int64_t> numbers(1000 * 96);
    launch({"numbers", 1000, 96, nullptr}, numbers_kernel, numbers.data());
    for (int64_t i = 0; i < std::ssize(numbers); ++i) ASSERT_EQ(numbers[i], i);
}

void sums_kernel(const float* x, float* warps, float* blocks) {
    __shared__ BlockSum<128>::Memory memory;
    BlockSum<128> block_sum(memory);
    const int i = blockIdx.x * 128 + threadIdx.x;
    warps[i] = warp_sum<8>(x[i]);
    for (int round = 0; round < 3; ++round) blocks[i] = block_sum(x[i] + static_cast<float>(round));
}

TEST_P(Emulator, SumsOverWarpsAndBlocks) {
    std::vector<float> x(256), warps(256), blocks(256);
    for (int i = 0; i < 256; ++i) x[i] = static_cast<float>(i * i % 97);
    launch({"sums", 2, 128, nullptr}, sums_kernel, x.data(), warps.data(), blocks.data());
    for (int i = 0; i < 256; ++i) {
        float of_eight = 0, of_block = 256;
        for (int k = 0; k < 8; ++k) of_eight += x[i / 8 * 8 + k];
        for (int k = 0; k < 128; ++k) of_block += x[i / 128 * 128 + k];
        EXPECT_EQ(warps[i], of_eight);
        EXPECT_EQ(blocks[i], of_block);
    }
}

void missing_barrier_kernel(float* out) {
    __shared__ Shared<float, 64> shared;
    shared[threadIdx.x] = 1;
    out[blockIdx.x * 64 + threadIdx.x] = shared[(threadIdx.x + 1) % 64] + shared[(threadIdx.x + 63) % 64];
}

TEST_P(Emulator, AMissingBarrierShowsAsNaN) {
    std::vector<float> out(128);
    EXPECT_EQ(fault(64, missing_barrier_kernel, out.data()), "");
    EXPECT_TRUE(std::isnan(out[5]) && std::isnan(out[70]));
}

void divergent_barrier_kernel() {
    if (threadIdx.x < 60) __syncthreads();
}
void two_barriers_kernel() {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}
void divergent_shuffle_kernel() {
    if (threadIdx.x % 2 == 0) warp_sum(1);
}
void short_warp_kernel() { warp_sum(1); }
void unaligned_kernel(const float* x) { load<4>(x + 1); }
void past_the_end_kernel() {
    __shared__ Shared<float, 32> shared;
    shared[static_cast<int>(threadIdx.x)] = 1;
}

TEST_P(Emulator, FaultsNameTheirKernel) {
    alignas(16) const float x[8] = {};
    EXPECT_NE(
        fault(64, divergent_barrier_kernel).find("kernel planted: not all threads of block 0 come to one"),
        std::string::npos);
    EXPECT_NE(fault(64, two_barriers_kernel).find("are at two"), std::string::npos);
    EXPECT_NE(fault(64, divergent_shuffle_kernel).find("at a shuffle, which is elsewhere"),
              std::string::npos);
    EXPECT_NE(fault(48, short_warp_kernel).find("lanes that the block has not"), std::string::npos);
    EXPECT_NE(fault(64, unaligned_kernel, x).find("not aligned"), std::string::npos);
    EXPECT_NE(fault(64, past_the_end_kernel).find("past the end"), std::string::npos);
    EXPECT_EQ(fault(64, numbers_kernel, std::vector<int64_t>(128).data()), "");  // it goes on after all that
}

// As initcheck reports it on a GPU.
TEST(EmulatedMemory, ACopyOfWhatNobodyWroteIsFound) {
    void* memory = allocate_on_gpu(64);
    int64_t found[8] = {};
    EXPECT_NONFATAL_FAILURE(copy_from_gpu(found, memory, sizeof(found)), "byte 0 of 64");
    copy_to_gpu(memory, std::vector<char>(64).data(), 60);
    copy_from_gpu(found, memory, sizeof(found));
    free_on_gpu(memory);
}

std::string order_name(const ::testing::TestParamInfo<Order>& order) {
    return order.param == Order::Forwards ? "Forwards" : "Backwards";
}
INSTANTIATE_TEST_SUITE_P(Orders, Emulator, ::testing::Values(Order::Forwards, Order::Backwards), order_name);

}  // namespace
}  // namespace argosy::kernels::cuda
