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

TEST(Products, AreAsFewAsTheInputs) {
    testing::fake_gpus().num_devices = 1;
    gpu::use(0);
    for (const char* family : {"llama3", "qwen2", "qwen3"}) {
        SCOPED_TRACE(family);
        const ops::OpsContext tensors;
        testing::TinyRun run({.family = family,
                              .precision = {at::kFloat, at::kFloat, at::kFloat},
                              .microbatch_size = testing::TinyRun::kGlobalBatch},
                             testing::world());
        const auto log = testing::record_work([&] {
            run.forward_backward(0);
            gpu::synchronize();
        });
        const int64_t num_layers = testing::tiny_spec(family).num_layers;
        // Each layer computes y, dx and dW for q|k|v, output, gate|up and down; the head has one chunk.
        EXPECT_EQ(count(log, "cublasLtMatmul"), (num_layers * 4 + 1) * 3);
        const bool normed = testing::tiny_spec(family).qk_norm;
        EXPECT_EQ(count(log, "rope"), num_layers * (normed ? 4 : 3)) << "q and k are turned together";
        EXPECT_EQ(count(log, "swiglu"), num_layers * 2);
    }
}

}  // namespace
}  // namespace argosy::train
