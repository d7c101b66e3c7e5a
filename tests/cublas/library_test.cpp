// The wrapper of cuBLASLt, linked with the real library. On every machine the library makes descriptors and
// accepts each attribute in the size that we pass. Without a GPU there is one clear error; with a GPU it
// multiplies.
#include <gtest/gtest.h>

#include <vector>

#include "base/element_type.h"
#include "base/error.h"
#include "cublas/matmul.h"
#include "cublas/with_cuda/product_plan.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "expect_error.h"

namespace argosy::cublas {
namespace {

TEST(Library, HasItsVersionWithoutADevice) {
    EXPECT_GE(version(), 120000);
    EXPECT_EQ(version_text().substr(0, 1), "1");
}

TEST(Library, TakesEveryDescriptorWithoutADevice) {
    for (const ElementType type : {ElementType::BFloat16, ElementType::Float32, ElementType::Float64,
                                   ElementType::Float8E4M3, ElementType::Float8E5M2}) {
        for (const bool bias : {false, true}) {
            const ScaleMode of_sort = bias ? ScaleMode::Line : ScaleMode::Block;
            const ScaleMode of_blocks = bias ? ScaleMode::SquareA : ScaleMode::SquareB;
            const float vector[4] = {};
            const Problem problem{.type_a = type,
                                  .type_b = type,
                                  .result_type = is_float8(type) ? ElementType::BFloat16 : type,
                                  .scales = !is_float8(type)                  ? ScaleMode::None
                                            : type == ElementType::Float8E5M2 ? of_sort
                                                                              : of_blocks,
                                  .fast_sums = bias && type == ElementType::Float8E5M2,
                                  .max_multiprocessors = 0,
                                  .transpose_a = bias,
                                  .transpose_b = !bias,
                                  .m = 16,
                                  .n = 32,
                                  .k = 64,
                                  .stride_a = 64,
                                  .stride_b = 64,
                                  .stride_d = 16,
                                  .addend = Addend::None,
                                  .bias = bias,
                                  .alignment_a = 256,
                                  .alignment_b = 16,
                                  .alignment_c = 256,
                                  .alignment_d = 2,
                                  .alignment_bias = 4};
            ProductPlan plan(
                Operands{.problem = problem, .bias = vector, .scale_a = vector, .scale_b = vector});
            // The library checks preferences before the handle.
            EXPECT_EQ(plan.find_algorithm(/*handle=*/nullptr, 1 << 20, /*choice=*/0),
                      CUBLAS_STATUS_NOT_INITIALIZED);
        }
    }
}

TEST(Library, WithoutAGpuGivesOneError) {
    if (cuda::driver_version() != 0) GTEST_SKIP() << "there is a driver here";
    EXPECT_ERROR(Multiplier(), RunError, "need a GPU, and this process sees none", "nvidia-smi");
}

TEST(Library, AGpuMultiplies) {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU here";
    cuda::set_device(0);
    const cuda::Stream stream;
    const std::vector<uint16_t> ones(64 * 64, BFloat16::rounded(1));
    const cuda::DeviceMemory factor(sizeof(uint16_t) * ones.size()), result(sizeof(float) * ones.size());
    cuda::copy_to_device(factor.data(), std::as_bytes(std::span(ones)), stream);
    cuda::set_to_zero(result.data(), result.bytes(), stream);
    Multiplier multiplier;
    const ConstMatrix a{factor.data(), ElementType::BFloat16, 64, 64, 64, 1};
    const Matrix c{result.data(), ElementType::Float32, 64, 64, 64, 1};
    for (int i = 0; i < 2; ++i) {
        multiplier.run({.c = c, .a = a, .b = a.transposed(), .addend = result.data()}, stream.handle());
    }
    std::vector<float> found(ones.size());
    cuda::copy_to_host(std::as_writable_bytes(std::span(found)), result.data(), stream);
    stream.synchronize();
    EXPECT_EQ(found, std::vector<float>(found.size(), 2 * 64));
}

}  // namespace
}  // namespace argosy::cublas
