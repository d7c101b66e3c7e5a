#include "observe/rank_times.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "scratch_folder.h"

namespace argosy::observe {
namespace {

using Texts = std::vector<std::string>;

/// Eight ranks on two hosts with four GPUs each.
RankHosts two_hosts() { return {{"n1", "n2"}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 2, 3, 0, 1, 2, 3}}; }

constexpr layout::MeshShape kShards{{1, 1, 8, 1, 1}}, kStages{{2, 1, 4, 1, 1}};

/// Steps of one second, in which each rank computes for the given milliseconds.
std::vector<RankStep> computing(std::initializer_list<float> ms) {
    std::vector<RankStep> ranks;
    for (const float each : ms)
        ranks.push_back({.total_ms = 1000, .compute_ms = each, .exposed_ms = 1000 - each});
    return ranks;
}

const auto kEven = computing({500, 500, 500, 500, 500, 500, 500, 500});
const auto kRank5Slow = computing({500, 500, 500, 500, 500, 590, 500, 500});
const std::string kRank5 =
    "rank 5 (host n2, GPU 1) computes 18 % slower than the median of 8 ranks: check that node's clocks, "
    "temperature and other programs";

TEST(SlowRanks, ARankIsNamedInItsSecondSlowWindowAndOnce) {
    SlowRanks slow(two_hosts(), kShards, layout::Axis::Pipeline);
    EXPECT_EQ(slow.add(kRank5Slow), Texts());
    EXPECT_EQ(slow.now(), Texts());
    EXPECT_EQ(slow.add(kRank5Slow), Texts{kRank5});
    EXPECT_EQ(slow.now(), Texts{kRank5});
    EXPECT_EQ(slow.add(kRank5Slow), Texts());
    EXPECT_EQ(slow.now(), Texts{kRank5});
}

TEST(SlowRanks, ASingleSlowWindowIsChance) {
    SlowRanks slow(two_hosts(), kShards, layout::Axis::Pipeline);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(slow.add(kRank5Slow), Texts());
        EXPECT_EQ(slow.add(kEven), Texts());
    }
    EXPECT_EQ(slow.in_run(), Texts());
}

TEST(SlowRanks, ARankThatRecoveredIsReportedAgain) {
    SlowRanks slow(two_hosts(), kShards, layout::Axis::Pipeline);
    int num_reports = 0;
    const auto windows = [&](std::initializer_list<bool> is_slow) {
        for (const bool each : is_slow) num_reports += !slow.add(each ? kRank5Slow : kEven).empty();
    };
    windows({true, true, false, true, true});
    EXPECT_EQ(num_reports, 1) << "one fast window is chance, too";
    windows({false, false, true, true});
    EXPECT_EQ(num_reports, 2);
    EXPECT_EQ(slow.in_run().size(), 1U) << "slow in 3 of 9 windows";
    windows({false, false, false, false});
    EXPECT_EQ(slow.in_run(), Texts()) << "slow in 3 of 13 windows";
}

TEST(SlowRanks, TheLimitIsTenPercentAndOneMillisecond) {
    const auto reports = [](const std::vector<RankStep>& window) {
        SlowRanks slow(two_hosts(), kShards, layout::Axis::Pipeline);
        slow.add(window);
        return slow.add(window).size();
    };
    EXPECT_EQ(reports(computing({500, 500, 500, 500, 500, 549, 500, 500})), 0U);
    EXPECT_EQ(reports(computing({500, 500, 500, 500, 500, 551, 500, 500})), 1U);
    EXPECT_EQ(reports(computing({5, 5, 5, 5, 5, 5.9F, 5, 5})), 0U);
    EXPECT_EQ(reports(computing({5, 5, 5, 5, 5, 6.1F, 5, 5})), 1U);
}

TEST(SlowRanks, AHostIsNamedOnce) {
    const auto report = [](const std::vector<RankStep>& window) {
        SlowRanks slow(two_hosts(), kShards, layout::Axis::Pipeline);
        slow.add(window);
        return slow.add(window);
    };
    const std::string rest =
        " slower than the median of 8 ranks: check that node's clocks, temperature and other programs";
    EXPECT_EQ(report(computing({500, 500, 500, 500, 580, 590, 600, 590})),
              Texts{"all ranks of host n2 (4..7) compute 16 to 20 %" + rest});
    EXPECT_EQ(report(computing({500, 500, 500, 500, 590, 500, 590, 500})),
              Texts{"ranks 4, 6 (host n2) compute 18 %" + rest});
    EXPECT_EQ(report(computing({590, 500, 500, 500, 590, 500, 500, 500})),
              (Texts{"rank 0 (host n1, GPU 0) computes 18 %" + rest,
                     "rank 4 (host n2, GPU 0) computes 18 %" + rest}));
}

TEST(SlowRanks, TwoRanksOfOneHostAreComparedWithEachOther) {
    const auto window = computing({500, 600});
    SlowRanks slow({{"n1"}, {0, 0}, {-1, -1}}, layout::MeshShape{{1, 1, 2, 1, 1}}, layout::Axis::Pipeline);
    slow.add(window);
    EXPECT_EQ(slow.add(window),
              Texts{"rank 1 (host n1) computes 20 % slower than rank 0: check what else runs "
                    "on its cores"});
}

TEST(SlowRanks, RanksOfPairsAreComparedEachWithItsOwn) {
    const auto window = computing({500, 900, 600, 1080});
    SlowRanks slow({{"n1", "n2"}, {0, 0, 1, 1}, {-1, -1, -1, -1}}, layout::MeshShape{{1, 1, 2, 2, 1}},
                   layout::Axis::Context);
    slow.add(window);
    EXPECT_EQ(slow.add(window),
              Texts{"all ranks of host n2 (2, 3) compute 20 % slower than the other rank with the same work: "
                    "check that node's clocks, temperature and other programs"});
}

TEST(SlowRanks, AGpuOfOneHostMayBeHot) {
    const auto window = computing({500, 600});
    SlowRanks slow({{"n1"}, {0, 0}, {0, 1}}, layout::MeshShape{{1, 1, 2, 1, 1}}, layout::Axis::Pipeline);
    slow.add(window);
    EXPECT_EQ(slow.add(window),
              Texts{"rank 1 (host n1, GPU 1) computes 20 % slower than rank 0: check clocks "
                    "and temperature of the GPU, and what else runs here"});
}

TEST(SlowRanks, ManyHostsAreCounted) {
    RankHosts hosts;
    std::vector<RankStep> window;
    for (int rank = 0; rank < 40; ++rank) {
        hosts.names.push_back("n" + std::to_string(rank));
        hosts.host_of_rank.push_back(rank);
        hosts.gpu_of_rank.push_back(-1);
        window.push_back({.total_ms = 1000, .compute_ms = rank < 7 ? 600.0F : 500.0F});
    }
    SlowRanks slow(hosts, layout::MeshShape{{1, 40, 1, 1, 1}}, layout::Axis::Pipeline);
    slow.add(window);
    const Texts report = slow.add(window);
    ASSERT_EQ(report.size(), 5U);
    EXPECT_TRUE(report[3].starts_with("rank 3 (host n3) computes 20 % slower")) << report[3];
    EXPECT_EQ(report[4], "ranks of 3 more hosts compute as slowly: ranks.jsonl has the times of all ranks");
}

TEST(SlowRanks, StagesAreComparedWithThemselves) {
    const auto uneven = computing({500, 500, 500, 500, 800, 800, 800, 800});
    SlowRanks stages(two_hosts(), kStages, layout::Axis::Pipeline);
    stages.add(uneven);
    EXPECT_EQ(stages.add(uneven), Texts());
    const auto in_stage = computing({500, 500, 500, 600, 800, 800, 800, 800});
    stages.add(in_stage);
    EXPECT_EQ(
        stages.add(in_stage),
        Texts{"rank 3 (host n1, GPU 3) computes 20 % slower than the median of the 4 ranks with the same "
              "work: check that node's clocks, temperature and other programs"});
    SlowRanks equals(two_hosts(), kShards, layout::Axis::Pipeline);
    equals.add(uneven);
    EXPECT_EQ(equals.add(uneven).size(), 1U) << "the same times without stages are a slow host";
}

TEST(SlowRanks, AHostThatWaitsForDataIsNamed) {
    std::vector<RankStep> window(8, {.total_ms = 1000, .compute_ms = 500, .data_ms = 20});
    for (int rank = 4; rank < 8; ++rank) window[rank].data_ms = 300;
    SlowRanks slow(two_hosts(), kShards, layout::Axis::Pipeline);
    slow.add(window);
    EXPECT_EQ(
        slow.add(window),
        Texts{"all ranks of host n2 (4..7) wait for data in 30 % of the step, more than the median of 8 "
              "ranks: check that node's path to the token files and its other programs"});
    for (RankStep& rank : window) rank.data_ms = 300;
    SlowRanks all(two_hosts(), kShards, layout::Axis::Pipeline);
    all.add(window);
    EXPECT_EQ(all.add(window), Texts()) << "no rank differs";
}

TEST(RankTimes, LinesAreJson) {
    const std::vector<RankStep> ranks = {{1234.567F, 12.3456F, 0, 1.0e-5F}, {0.12345F, 999.96F, 1, 2}};
    const auto line = nlohmann::json::parse(ranks_line(20, 10, ranks));
    EXPECT_EQ(line.dump(),
              R"({"compute_ms":[12.35,1000],"data_ms":[0,1],"exposed_ms":[1e-05,2],"num_steps":10,)"
              R"("step":20,"total_ms":[1235,0.1235]})");
    const auto header = nlohmann::json::parse(ranks_header(two_hosts(), layout::MeshShape{{1, 1, 2, 1, 4}}));
    EXPECT_EQ(header["hosts"], (Texts{"n1", "n2"}));
    EXPECT_EQ(header["host_of_rank"], (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
    EXPECT_EQ(header["gpu_of_rank"], (std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3}));
    EXPECT_EQ(header["mesh"].dump(), R"({"cp":1,"dp_replicate":1,"dp_shard":2,"pp":1,"tp":4})");
    EXPECT_FALSE(ranks_header({{"a \"b\""}, {0}, {-1}}, {}).find("gpu_of_rank") != std::string::npos);
}

/// A group of many ranks, seen from rank 0, all with the same data.
class ManyEqualRanks : public comm::Communicator {
  public:
    explicit ManyEqualRanks(int size) : Communicator("control"), size_(size) {}
    int rank() const override { return 0; }
    int size() const override { return size_; }
    std::unique_ptr<Communicator> subgroup(std::span<const int>, std::string) const override {
        return nullptr;
    }
    comm::Pending submit(std::span<const comm::Op> ops) override {
        ++num_collectives;
        for (const comm::Op& op : ops) {
            EXPECT_EQ(op.kind, comm::OpKind::AllGather);
            num_bytes = static_cast<int64_t>(op.out.nbytes());
            op.out.view({size_, -1}).copy_(op.in);
        }
        return {};
    }
    int num_collectives = 0;
    int64_t num_bytes = 0;  // of the last one

  private:
    int size_;
};

std::vector<nlohmann::json> lines_of(const std::filesystem::path& path) {
    std::vector<nlohmann::json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
}

TEST(RankTimes, WindowsEndWithLogLines) {
    const ScratchFolder folder;
    ManyEqualRanks control(4);
    RankTimes ranks({.host = "n1", .mesh = {{1, 1, 4, 1, 1}}},
                    {.dump_folder = folder / "run", .log_freq = 3, .final_step = 8}, control);
    std::vector<int64_t> ends;
    for (int64_t step = 1; step <= 8; ++step) {
        const auto ms = static_cast<double>(step);
        if (ranks.add(step, {.total_ms = 10 * ms,
                             .data_ms = ms,
                             .compute_ms = 5 * ms,
                             .exposed_ms = {{"tp", ms}, {"world", ms}}}))
            ends.push_back(step);
    }
    EXPECT_EQ(ends, (std::vector<int64_t>{1, 3, 6, 8}));
    EXPECT_EQ(control.num_collectives, 1 + 4);
    const auto lines = lines_of(folder / "run" / "ranks.jsonl");
    ASSERT_EQ(lines.size(), 5U);
    EXPECT_EQ(lines[0]["hosts"], Texts{"n1"});
    EXPECT_EQ(lines[3].dump(),
              R"({"compute_ms":[25,25,25,25],"data_ms":[5,5,5,5],"exposed_ms":[10,10,10,10],)"
              R"("num_steps":3,"step":6,"total_ms":[50,50,50,50]})");
}

TEST(RankTimes, OfManyRanksSomeWindowsAreWritten) {
    const ScratchFolder folder;
    constexpr int kRanks = 4096;
    ManyEqualRanks control(kRanks);
    RankTimes ranks({.host = "n1", .mesh = {{1, 1, kRanks, 1, 1}}},
                    {.dump_folder = folder / "run", .log_freq = 1, .final_step = 33}, control);
    for (int64_t step = 1; step <= 33; ++step) ranks.add(step, {.total_ms = 1234.5, .compute_ms = 1000});
    EXPECT_EQ(control.num_bytes, 16 * kRanks);
    const auto lines = lines_of(folder / "run" / "ranks.jsonl");
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_EQ(lines[1]["step"], 1);
    EXPECT_EQ(lines[2]["step"], 17);
    EXPECT_EQ(lines[3]["step"], 33);
    EXPECT_LT(ranks_line(1, 1, std::vector<RankStep>(kRanks, {999.9F, 888.8F, 77.77F, 66.66F})).size(),
              28 << 12);
}

TEST(RankTimes, AResumedRunRepeatsItsLines) {
    const ScratchFolder folder;
    ManyEqualRanks control(2);
    const RankTimesOptions options{.host = "n1", .mesh = {{1, 1, 2, 1, 1}}};
    MetricsOptions metrics{.dump_folder = folder / "run", .log_freq = 2, .final_step = 6};
    {
        RankTimes ranks(options, metrics, control);
        for (int64_t step = 1; step <= 6; ++step) ranks.add(step, {.total_ms = 1});
    }
    metrics.last_own_step = 4;
    RankTimes ranks(options, metrics, control);
    for (int64_t step = 5; step <= 6; ++step) ranks.add(step, {.total_ms = 2});
    std::vector<int64_t> steps;
    for (const auto& line : lines_of(folder / "run" / "ranks.jsonl"))
        steps.push_back(line.value("step", int64_t{0}));
    EXPECT_EQ(steps, (std::vector<int64_t>{0, 1, 2, 4, 0, 5, 6}));
    EXPECT_EQ(lines_of(folder / "run" / "ranks.jsonl.aside").size(), 1U);
}

TEST(RankTimes, OneRankNeedsNeitherAFileNorACollective) {
    const ScratchFolder folder;
    ManyEqualRanks control(1);
    RankTimes ranks({.host = "n1"}, {.dump_folder = folder / "run", .log_freq = 2, .final_step = 3}, control);
    EXPECT_TRUE(ranks.add(1, {}));
    EXPECT_TRUE(ranks.add(2, {}));
    EXPECT_EQ(control.num_collectives, 0);
    EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

}  // namespace
}  // namespace argosy::observe
