// What a configuration changes in a process, and what may make it slow. pretrain.gpu tests the warnings.
#include "setup/process.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "scratch_folder.h"
#include "setup/number_types.h"

namespace argosy::setup {
namespace {

TEST(ActiveAdapter, HasAPortThatIsUp) {
    const ScratchFolder folder;
    const std::filesystem::path adapters = folder / "infiniband";
    EXPECT_FALSE(has_active_adapter(adapters));
    const auto add_port = [&](const char* port, const char* state) {
        std::filesystem::create_directories(adapters / port);
        std::ofstream(adapters / port / "state") << state << '\n';
    };
    add_port("mlx5_0/ports/1", "1: DOWN");
    add_port("mlx5_1/ports/1", "2: INIT");
    std::filesystem::create_directories(adapters / "mlx5_2");
    EXPECT_FALSE(has_active_adapter(adapters));
    add_port("mlx5_1/ports/2", "4: ACTIVE");
    EXPECT_TRUE(has_active_adapter(adapters));
    std::ofstream(adapters / "mlx5_1/ports/2/phys_state") << "2: Polling\n";
    EXPECT_FALSE(has_active_adapter(adapters));
    std::ofstream(adapters / "mlx5_1/ports/2/phys_state") << "5: LinkUp\n";
    EXPECT_TRUE(has_active_adapter(adapters));
}

std::string slow_type(config::Precision compute, const char* gpu, int capability) {
    config::Training training;
    training.mixed_precision_param = compute;
    const auto peak = [&](at::ScalarType type) { return observe::datasheet_peak(gpu, type); };
    return slow_type_on_gpu(
        training,
        {.datasheet = peak(at::kBFloat16),
         .compute_datasheet = peak(compute == config::Precision::Float32 ? at::kFloat : at::kBFloat16)},
        capability);
}

TEST(SlowType, NamesTheFactorThatIsLost) {
    using enum config::Precision;
    EXPECT_EQ(
        slow_type(Float32, "NVIDIA H100 80GB HBM3", 90),
        "float32 computes without this GPU's tensor cores: a factor of 14.8 is lost (67 in place of 989 "
        "TFLOP/s); set training.mixed_precision_param to bfloat16");
    EXPECT_EQ(
        slow_type(Float32, "an unknown GPU", 90),
        "float32 computes without this GPU's tensor cores; set training.mixed_precision_param to bfloat16");
    EXPECT_EQ(slow_type(Float32, "Tesla T4", 75), "");
    EXPECT_EQ(slow_type(BFloat16, "NVIDIA H100 80GB HBM3", 90), "");
    EXPECT_EQ(
        slow_type(BFloat16, "Tesla T4", 75),
        "this GPU (compute capability 7.5) has no bfloat16; set training.mixed_precision_param to float32");
    EXPECT_EQ(slow_type(Float64, "NVIDIA H100 80GB HBM3", 90), "");  // to compare layouts
}

TEST(SeparateStreams, UnlessTheEnvironmentSaysOtherwise) {
    constexpr const char* kVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
    ::setenv(kVariable, "16", 1);
    separate_streams();
    EXPECT_STREQ(std::getenv(kVariable), "16");
    ::unsetenv(kVariable);
    separate_streams();
    EXPECT_STREQ(std::getenv(kVariable), "32");
    ::unsetenv(kVariable);
}

}  // namespace
}  // namespace argosy::setup
