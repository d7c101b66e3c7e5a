// The matrix unit's configuration belongs to one thread and is released when a kernel returns.
#include <gtest/gtest.h>

#include <thread>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tile.h"
#include "kernels/table.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

TEST(MatrixUnitTest, AProductConfiguresItsThreadAndReleasesIt) {
    const auto run = [] {
        const BFloat16 two{0x4000};
        const Product<BFloat16> product{{&two, 1, 1}, {&two, 1, 1}, 1};
        float c = 0;
        matmul<BFloat16, float>({&product, 1, 0, 1, 0, 1, &c, 1});
        EXPECT_EQ(c, 4);
        EXPECT_FALSE(matrix_unit.configured);
    };
    run();
    std::thread(run).join();
    run();
}

TEST(MatrixUnitTest, PassesTheTestOfNewInstructions) {
    Table emulated{};
    emulated.bf16.matmul_to_float = matmul<BFloat16, float>;
    EXPECT_TRUE(multiply_alike(emulated, *available_tables()[0]));
}

TEST(MatrixUnitTest, OutsideASessionItFaults) {
    EXPECT_THROW(EmulatedAmx::zero<0>(), std::logic_error);
    {
        const TileOf<BFloat16>::Session session;
        EXPECT_NO_THROW(EmulatedAmx::zero<7>());
        std::thread([] { EXPECT_THROW(EmulatedAmx::zero<0>(), std::logic_error); }).join();
    }
    EXPECT_THROW(EmulatedAmx::zero<0>(), std::logic_error);
}

}  // namespace
}  // namespace argosy::kernels::ARGOSY_VARIANT
