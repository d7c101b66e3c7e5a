// The device of an evaluation, on stand-ins for GPUs; gpu_test.py tests the program.
#include "eval/device.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"
#include "support/fake_gpus.h"

namespace argosy::eval {
namespace {

class DeviceTest : public ::testing::Test {
  protected:
    DeviceTest() { testing::fake_gpus().num_devices = 2; }
    ~DeviceTest() override { testing::fake_gpus() = usual_; }

    const testing::FakeGpus usual_ = testing::fake_gpus();
};

TEST_F(DeviceTest, IsTheFirstGpuIfThereIsOne) {
    cuda::set_device(1);
    for (const char* wanted : {"auto", "gpu"}) {
        const Device device = choose_device(wanted);
        ASSERT_TRUE(device.gpu);
        EXPECT_EQ(cuda::current_device(), 0);
        EXPECT_EQ(device.name(), "cuda:0");
        EXPECT_EQ(device.text(), "Fake GPU (" + device.gpu->pci_bus_id + ")");
    }
}

TEST_F(DeviceTest, IsTheCpuOtherwise) {
    cuda::set_device(1);
    EXPECT_EQ(choose_device("cpu").name(), "cpu");
    EXPECT_EQ(cuda::current_device(), 1) << "no GPU is touched";
    testing::fake_gpus().num_devices = 0;
    EXPECT_EQ(choose_device("auto").name(), "cpu");
    EXPECT_ERROR(choose_device("gpu"), UserError, "sees no GPU", "nvidia-smi", "--device cpu");
}

TEST_F(DeviceTest, IsTheCpuOnRequestIfAGpuCannotBeUsed) {
    const auto expect_way_out = [](const char* reason) {
        EXPECT_ERROR(choose_device("auto"), RunError, reason, "or use --device cpu");
        EXPECT_ERROR(choose_device("gpu"), RunError, reason);
        EXPECT_EQ(choose_device("cpu").name(), "cpu");
    };
    testing::fake_gpus().are_taken = true;
    expect_way_out("another process uses the GPU exclusively");
    testing::fake_gpus().driver_version = 12000;
    expect_way_out("update the node's driver");
}

TEST_F(DeviceTest, StreamsTakeAQuarterOfAGpusFreeMemory) {
    testing::fake_gpus().free_bytes = 4000;
    EXPECT_EQ(stream_bytes(choose_device("gpu"), 7), 1000);
    EXPECT_EQ(stream_bytes(choose_device("cpu"), 7), 7);
}

}  // namespace
}  // namespace argosy::eval
