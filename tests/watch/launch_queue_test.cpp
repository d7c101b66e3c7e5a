// How far a rank has come within graphs, on stand-ins: the test ends launches and sets their marks.
#include "watch/launch_queue.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/fake_gpus.h"

namespace argosy::watch {
namespace {

using LaunchId = LaunchQueue::LaunchId;

constexpr double kElapsed = 5;
constexpr uint64_t kGraph = 1, kOther = 2;

class LaunchQueueTest : public ::testing::Test {
  protected:
    /// One launch outside of graphs, which has ended, and a graph of two operations.
    void SetUp() override {
        queue_.begin({"broadcast", 1});
        queue_.returned();
        record(kGraph, "all-gather");
        record(kGraph, "reduce-scatter");
    }

    void record(uint64_t graph, const std::string& kind) {
        marks_.push_back(progress_.add_mark(stream_));
        queue_.record(graph, {kind, 8}, marks_.back());
        marks_.push_back(progress_.add_mark(stream_));
        queue_.recorded(graph, marks_.back());
        stream_.synchronize();
    }
    void launch() {
        queue_.graph_begins(++num_launches_);
        testing::enqueue(
            stream_.handle(), [] {}, [this] { return gpu_goes_on_; });
        queue_.graph_launched(pool_.mark(stream_));
    }
    void let_all_end() {
        gpu_goes_on_ = true;
        stream_.synchronize();
        gpu_goes_on_ = false;
    }
    /// Sets a mark as the GPU does in launch number `launch`.
    void set(size_t mark, int64_t launch) {
        *const_cast<GraphMark*>(marks_[mark]) = static_cast<GraphMark>(launch + 1);
    }

    bool gpu_goes_on_ = false;
    cuda::Stream stream_;
    const cuda::EventPool pool_{cuda::Timing::Off};
    GraphProgress progress_;
    LaunchQueue queue_{"dp_shard", {0, 3}, 0};
    std::vector<const GraphMark*> marks_;  // alternately begun and done
    int64_t num_launches_ = 0;
};

TEST_F(LaunchQueueTest, AQueryOfWorkUnderWayLeavesNoErrorForTheNextKernel) {
    testing::enqueue(
        stream_.handle(), [] {}, [this] { return gpu_goes_on_; });
    const cuda::PooledEvent later = pool_.mark(stream_);
    EXPECT_FALSE(later->done());
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_FALSE(stream_.done());
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    let_all_end();
}

TEST_F(LaunchQueueTest, MarksAreZeroUntilTheGpuSetsThem) {
    testing::enqueue(
        stream_.handle(), [] {}, [this] { return gpu_goes_on_; });
    const GraphMark* const mark = progress_.add_mark(stream_);
    EXPECT_EQ(*mark, 0);
    let_all_end();
}

TEST_F(LaunchQueueTest, MarksIdentifyTheirLaunch) {
    for (const int64_t number : {int64_t{1}, int64_t{65534}, int64_t{65535}, int64_t{70000}}) {
        progress_.begin_launch(number, stream_);
        const GraphMark* const mark = progress_.add_mark(stream_);
        stream_.synchronize();
        EXPECT_TRUE(GraphProgress::is_set_by(mark, number));
        EXPECT_FALSE(GraphProgress::is_set_by(mark, number + 1));
    }
}

TEST_F(LaunchQueueTest, ARankHasReachedWhatItsGpuHasReached) {
    launch();
    queue_.begin({"all-reduce", 2});  // the host is ahead
    auto seen = queue_.poll(kElapsed);
    EXPECT_EQ(seen.num_begun, 1);
    EXPECT_EQ(seen.graph, (LaunchId{1, 0}));
    EXPECT_EQ(seen.last.kind, "broadcast");
    EXPECT_EQ(seen.last_id, (LaunchId{0, 0}));

    set(0, 1);
    seen = queue_.poll(kElapsed);
    EXPECT_EQ(seen.graph, (LaunchId{1, 1}));
    EXPECT_EQ(seen.last.kind, "all-gather");
    EXPECT_EQ(seen.last_id, (LaunchId{1, 0}));

    set(1, 1);
    EXPECT_EQ(queue_.poll(kElapsed).graph, (LaunchId{1, 1}));
    set(2, 1);
    set(3, 1);
    seen = queue_.poll(kElapsed);
    EXPECT_EQ(seen.graph, (LaunchId{1, 2}));
    EXPECT_EQ(seen.num_begun, 1);

    let_all_end();
    seen = queue_.poll(kElapsed);
    EXPECT_EQ(seen.graph, (LaunchId{2, 0}));
    EXPECT_EQ(seen.num_begun, 2);
    ASSERT_TRUE(seen.under_way);  // the call
    EXPECT_EQ(seen.under_way->id, (LaunchId{0, 1}));
}

TEST_F(LaunchQueueTest, AnOperationWaitsWhileItIsBegunAndNotDone) {
    launch();
    EXPECT_FALSE(queue_.poll(kElapsed).under_way);
    set(0, 1);
    EXPECT_EQ(queue_.poll(kElapsed).under_way->waited_seconds, kElapsed);
    auto seen = queue_.poll(kElapsed);
    EXPECT_EQ(seen.under_way->waited_seconds, 2 * kElapsed);
    EXPECT_EQ(seen.under_way->id, (LaunchId{1, 0}));
    EXPECT_EQ(seen.under_way->work.kind, "all-gather");

    set(1, 1);
    EXPECT_FALSE(queue_.poll(kElapsed).under_way);
    set(2, 1);
    seen = queue_.poll(kElapsed);
    EXPECT_EQ(seen.under_way->waited_seconds, kElapsed);
    EXPECT_EQ(seen.under_way->id, (LaunchId{1, 1}));
    let_all_end();
}

TEST_F(LaunchQueueTest, LaunchesFollowEachOtherWithoutTheHost) {
    record(kOther, "all-reduce");
    for (int i = 0; i < 3; ++i) launch();
    for (size_t mark = 0; mark < 4; ++mark) set(mark, 1);
    EXPECT_EQ(queue_.poll(kElapsed).graph, (LaunchId{1, 2}));
    let_all_end();
    EXPECT_EQ(queue_.poll(kElapsed).graph, (LaunchId{4, 0}));

    launch();
    set(4, 4);
    const auto seen = queue_.poll(kElapsed);
    EXPECT_EQ(seen.graph, (LaunchId{4, 1}));
    EXPECT_EQ(seen.under_way->work.kind, "all-reduce");
    let_all_end();
}

}  // namespace
}  // namespace argosy::watch
