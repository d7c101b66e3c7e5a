// main of a suite whose tensors are on a GPU; it skips without one. With --deterministic LibTorch's
// operations repeat their bits, as under debug.deterministic, and operations that cannot repeat them throw.
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "cuda/device.h"
#include "gpu/device.h"
#include "ops/numerics.h"
#include "support/tensors.h"

namespace argosy::testing {

c10::Device place() {
    thread_local const c10::Device device = gpu::use(0);
    return device;
}

}  // namespace argosy::testing

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    if (argosy::cuda::device_count() == 0) {
        std::puts("skipped: there is no GPU here");
        return 77;
    }
    if (argc > 1 && std::string_view(argv[1]) == "--deterministic") argosy::ops::make_deterministic();
    return RUN_ALL_TESTS();
}
