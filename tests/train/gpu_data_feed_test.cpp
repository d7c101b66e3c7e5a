// Reading the next batch while the GPU computes costs no time, and overwrites no batch that the GPU still has
// to copy. The GPU is a fake.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "data/token_files.h"
#include "gpu/device.h"
#include "scratch_folder.h"
#include "support/fake_gpus.h"
#include "support/world.h"
#include "train/data_feed.h"

namespace argosy::train {
namespace {

constexpr int64_t kSeqLen = 3, kNumTokens = 100;
constexpr BatchSizes kSizes{
    .global_batch = 2, .microbatch_size = 1, .num_microbatches = 2, .seq_len = kSeqLen};

class GpuDataFeed : public ::testing::Test {
  protected:
    GpuDataFeed() { testing::make_waiting(gpu::current_stream(), false); }
    ~GpuDataFeed() override { testing::make_waiting(gpu::current_stream(), true); }

    static std::filesystem::path write_token_file(const std::filesystem::path& path) {
        data::write_tokens(path, data::counted_tokens(kNumTokens), kNumTokens);
        return path;
    }
    /// Launches a fake kernel that runs until end_computing().
    void start_computing() {
        computes_ = true;
        testing::enqueue(
            gpu::current_stream(), [] {}, [this] { return !computes_; });
    }
    /// Ends the kernel after this time by the device's clock.
    void end_computing(double seconds) {
        computes_ = false;
        testing::fake_gpus().seconds_ahead += seconds;
        gpu::synchronize();
    }
    /// Returns the index of each sample of the batch. Token i of the file has value i, so a sample's first
    /// token divided by kSeqLen is its index.
    static std::vector<int64_t> numbers(const StepBatch& batch) {
        std::vector<int64_t> found;
        for (const model::Batch& microbatch : batch.microbatches) {
            found.push_back(microbatch.tokens[0].item<int64_t>() / kSeqLen);
        }
        return found;
    }

    bool computes_ = false;
    ScratchFolder folder_;
    data::Loader loader_{write_token_file(folder_ / "tokens.h5"),
                         {.seq_len = kSeqLen, .seed = 2, .shuffle = false}};
    comm::Mesh mesh_{layout::resolve({}, 1), testing::world()};
    DataFeed feed_{loader_, mesh_, kSizes, 0, 3};
};

TEST_F(GpuDataFeed, ReadsWhileTheGpuComputes) {
    const StepBatch first = feed_.next();
    EXPECT_EQ(feed_.seconds_gpu_waited(), 0);
    start_computing();
    feed_.read_meanwhile();
    end_computing(100);
    EXPECT_LT(feed_.seconds_gpu_waited(), 50);
    EXPECT_EQ(numbers(first), (std::vector<int64_t>{0, 1}));

    const StepBatch second = feed_.next();
    EXPECT_EQ(numbers(second), (std::vector<int64_t>{2, 3}));
    feed_.read_meanwhile();  // while nothing is computed
    gpu::synchronize();
    EXPECT_GT(feed_.seconds_gpu_waited(), 0);
    EXPECT_EQ(numbers(second), (std::vector<int64_t>{2, 3}));

    EXPECT_EQ(numbers(feed_.next()), (std::vector<int64_t>{4, 5}));
    feed_.read_meanwhile();
    EXPECT_EQ(feed_.seconds_gpu_waited(), 0) << "there is no further step";
}

}  // namespace
}  // namespace argosy::train
