// The device of an evaluation, on stand-ins for GPUs; gpu_test.py tests the program.
#include "eval/device.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"
#include "support/fake_gpus.h"

namespace argosy::eval {
namespace {

class Device : public ::testing::Test {
  protected:
    Device() { testing::fake_gpus().num_devices = 2; }
    ~Device() override { testing::fake_gpus() = usual_; }

    const testing::FakeGpus usual_ = testing::fake_gpus();
};

TEST_F(Device, IsTheFirstGpuIfThereIsOne) {
    cuda::set_device(1);
    for (const char* wanted : {"auto", "gpu"}) {
        const Place place = choose_place(wanted);
        ASSERT_TRUE(place.gpu);
        EXPECT_EQ(cuda::current_device(), 0);
        EXPECT_EQ(place.name(), "cuda:0");
        EXPECT_EQ(place.text(), "Fake GPU (" + place.gpu->pci_bus_id + ")");
    }
}

TEST_F(Device, IsTheCpuOtherwise) {
    cuda::set_device(1);
    EXPECT_EQ(choose_place("cpu").name(), "cpu");
    EXPECT_EQ(cuda::current_device(), 1) << "no GPU is touched";
    testing::fake_gpus().num_devices = 0;
    EXPECT_EQ(choose_place("auto").name(), "cpu");
    EXPECT_ERROR(choose_place("gpu"), UserError, "sees no GPU", "nvidia-smi", "--device cpu");
}

TEST_F(Device, IsTheCpuOnRequestIfAGpuCannotBeUsed) {
    const auto expect_way_out = [](const char* reason) {
        EXPECT_ERROR(choose_place("auto"), RunError, reason, "or use --device cpu");
        EXPECT_ERROR(choose_place("gpu"), RunError, reason);
        EXPECT_EQ(choose_place("cpu").name(), "cpu");
    };
    testing::fake_gpus().are_taken = true;
    expect_way_out("another process uses the GPU exclusively");
    testing::fake_gpus().driver_version = 12000;
    expect_way_out("update the node's driver");
}

TEST_F(Device, StreamsTakeAQuarterOfAGpusFreeMemory) {
    testing::fake_gpus().free_bytes = 4000;
    EXPECT_EQ(round_bytes(choose_place("gpu"), 7), 1000);
    EXPECT_EQ(round_bytes(choose_place("cpu"), 7), 7);
}

}  // namespace
}  // namespace argosy::eval
