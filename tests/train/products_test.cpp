// The number of matrix products that a step launches on a GPU: one for q, k and v together, one for gate and
// up together, in each direction.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "gpu/device.h"
#include "ops/ops_context.h"
#include "support/fake_gpus.h"
#include "support/work_log.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::train {
namespace {

int64_t count(const std::vector<std::string>& log, const std::string& what) {
    return std::ranges::count_if(log, [&](const std::string& line) { return line.starts_with(what); });
}

/// What forward and backward of one microbatch put on the GPU's stream.
std::vector<std::string> work_of_a_microbatch(const std::string& family, bool bf16_gradients) {
    testing::TinyRun run({.family = family,
                          .precision = {at::kFloat, at::kFloat, at::kFloat, bf16_gradients},
                          .microbatch_size = testing::TinyRun::kGlobalBatch},
                         testing::world());
    return testing::record_work([&] {
        run.forward_backward(0);
        gpu::synchronize();
    });
}

TEST(Products, AreAsFewAsTheInputs) {
    testing::fake_gpus().num_devices = 1;
    gpu::use(0);
    for (const char* family : {"llama3", "qwen2", "qwen3"}) {
        for (const bool bf16_gradients : {false, true}) {
            SCOPED_TRACE(std::string(family) + (bf16_gradients ? " with gradients in bf16" : ""));
            const ops::OpsContext tensors;
            const auto log = work_of_a_microbatch(family, bf16_gradients);
            const model::ModelSpec spec = testing::tiny_spec(family);
            // Each layer computes y, dx and dW for q|k|v, output, gate|up and down; the head has one chunk.
            EXPECT_EQ(count(log, "cublasLtMatmul"), (spec.num_layers * 4 + 1) * 3);
            EXPECT_EQ(count(log, "rope"), spec.num_layers * (spec.qk_norm == model::QkNorm::None ? 3 : 4))
                << "q and k are turned together";
            EXPECT_EQ(count(log, "glu"), spec.num_layers * 2);
            int64_t num_gradients = 0;
            for (const auto& unit : model::unit_parameters(spec)) num_gradients += std::ssize(unit);
            EXPECT_EQ(count(log, "add_rounded"), bf16_gradients ? num_gradients : 0);
        }
    }
}

}  // namespace
}  // namespace argosy::train
