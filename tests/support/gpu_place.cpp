// main of a suite whose tensors are on a GPU; it skips without one. With --deterministic LibTorch's
// operations repeat their bits, as under debug.deterministic, and operations that cannot repeat them throw.
// With --cudnn, cuDNN computes masked attention, as with compile.masked_attention.
//
// cuDNN's attention backward and LibTorch's additions repeat their bits only with --deterministic. So tests that compare
// bits run only with it, and all other tests only without it. A part of a product has other bits than the same part of
// the whole in both modes, since the library chooses algorithms by size.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "cuda/device.h"
#include "gpu/cudnn.h"
#include "gpu/device.h"
#include "ops/numerics.h"
#include "support/tensors.h"

namespace argosy::testing {

c10::Device place() {
    thread_local const c10::Device device = gpu::use(0);
    return device;
}

}  // namespace argosy::testing

namespace {

constexpr char kTestsOfBits[] =
    "*.TheSameCall*:*Threads*:*.LaterTokens*:*.RowsMayBeStrided*:*.NonfiniteInputsShow*";

// GoogleTest's filter of the tests for this mode, among those that the command line selects.
std::string filter_for(const std::string& filter, bool deterministic) {
    if (deterministic) return filter == "*" ? kTestsOfBits : filter;
    const char* next = filter.find('-') == std::string::npos ? "-" : ":";
    return filter + next + "*.APartIsTheSame*:" + kTestsOfBits;
}

}  // namespace

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    if (argosy::cuda::device_count() == 0) {
        std::puts("skipped: there is no GPU here");
        return 77;
    }
    const bool deterministic = argc > 1 && std::string_view(argv[1]) == "--deterministic";
    if (deterministic) argosy::ops::make_deterministic();
    argosy::gpu::prefer_cudnn(argc > 1 && std::string_view(argv[1]) == "--cudnn");
    GTEST_FLAG_SET(filter, filter_for(GTEST_FLAG_GET(filter), deterministic));
    return RUN_ALL_TESTS();
}
