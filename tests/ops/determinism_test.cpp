// The switch affects the whole process, so this suite has its own executable.

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/put.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "ops/numerics.h"

namespace argosy::ops {
namespace {

TEST(Determinism, MemoryIsFilledThreadsStayAndUnrepeatableOpsThrow) {
    const at::Tensor values = at::zeros({4}), index = at::zeros({2}, at::kLong), two = at::zeros({2});
    EXPECT_NO_THROW(values.put(index, two));
    at::set_num_threads(2);
    EXPECT_EQ(make_deterministic(), 2);
    EXPECT_EQ(at::get_num_threads(), 2);
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
        EXPECT_TRUE(at::empty({5, 7}, type).isnan().all().item<bool>()) << type;
    }
    EXPECT_THROW(values.put(index, two), c10::Error);  // which of two writes to one element wins is random
}

}  // namespace
}  // namespace argosy::ops
