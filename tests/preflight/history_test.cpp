// Histories of made-up nodes: what is compared, what is reported, and the files.
#include "preflight/history.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "expect_error.h"
#include "preflight/cluster.h"
#include "preflight/simulated_meter.h"
#include "scratch_folder.h"

namespace argosy::preflight {
namespace {

constexpr double kDay = 86400, kFirst = 1700000000;  // 2023-11-14T22:13:20Z

/// A run on three nodes of two ranks, `days` after the first.
Report run_after(double days, SimulatedMeter& meter) {
    Report report{.cluster = good_cluster(3, 2), .type = at::kBFloat16, .time = kFirst + days * kDay};
    std::vector<std::string> names;
    for (const RankFacts& rank : report.cluster.ranks) names.push_back(rank.node);
    report.nodes = group_by_node(names);
    const StepOperation within{"tp",
                               {{0, 1}, {2, 3}, {4, 5}},
                               {.collective = &bench::collective_named("all_gather"),
                                .type = ElementType::BFloat16,
                                .bytes = 1 << 20},
                               1 << 20};
    report.speeds = measure_speeds(meter, report.nodes, {within}, kNoDeadline);
    return report;
}

class History : public testing::Test {
  protected:
    std::vector<Finding> run(double days) {
        const Report report = run_after(days, meter_);
        auto findings = compare_with_history(folder_ / "kept", report);
        append_history(folder_ / "kept", report);
        return findings;
    }

    SimulatedMeter meter_{3, 2};
    ScratchFolder folder_;
};

TEST_F(History, NeedsThreeRuns) {
    EXPECT_TRUE(run(0).empty());
    EXPECT_TRUE(run(1).empty());
    meter_.slow_products(3, 0.5);
    EXPECT_TRUE(run(2).empty()) << "only two runs before";
    EXPECT_EQ(read_history(folder_ / "kept" / "n1.jsonl").size(), 3);
}

TEST_F(History, SaysHowMuch) {
    for (int day = 0; day < 5; ++day) EXPECT_TRUE(run(day).empty()) << day;
    meter_.slow_products(3, 0.5);
    const auto findings = run(5);
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].severity, Severity::Warn);
    EXPECT_EQ(findings[0].check, "history of products");
    EXPECT_EQ(findings[0].where, "rank 3 on n1");
    EXPECT_TRUE(findings[0].bad_nodes.empty());
    EXPECT_TRUE(findings[0].what.find(" TFLOP/s, 50 % of the median of the 5 last runs") !=
                    std::string::npos ||
                findings[0].what.find(" TFLOP/s, 49 % of the median of the 5 last runs") != std::string::npos)
        << findings[0].what;
}

/// The peers are no slower than each other, so nothing but the past shows it.
TEST_F(History, ShowsWhatComparisonsWithPeersDoNot) {
    for (int day = 0; day < 3; ++day) run(day);
    for (int rank = 0; rank < 6; ++rank) meter_.slow_products(rank, 0.8), meter_.slow_rail(rank, 0.7);
    const Report report = run_after(3, meter_);
    EXPECT_TRUE(compare_speeds(report.speeds, report.cluster).empty());
    EXPECT_EQ(checks_of(compare_with_history(folder_ / "kept", report)),
              (Names{"history of pairs of nodes", "history of products", "history of rails",
                     "history of pairs of nodes", "history of products", "history of rails",
                     "history of pairs of nodes", "history of products", "history of rails"}));
}

TEST_F(History, ComparesEntriesOfOneKind) {
    HistoryEntry now{.kind = "8 x B", .rates = {{"products", {5e12, 5e12}}}};
    const HistoryEntry other{.kind = "8 x A", .rates = {{"products", {9e12, 9e12}}}};
    const Report report = run_after(0, meter_);
    EXPECT_TRUE(compare_with_past(0, now, {other, other, other, other}, report).empty());
    now.kind = other.kind;
    const auto findings = compare_with_past(0, now, {other, other, other}, report);
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].where, "ranks 0-1 on n0");
    EXPECT_TRUE(
        compare_with_past(0, {.kind = "8 x A", .rates = {{"rails", {1.0}}}}, {other, other, other}, report)
            .empty());
}

TEST_F(History, ComparesRatesBetweenNodesOnlyWithRunsOnAsManyNodes) {
    const Report report = run_after(0, meter_);
    const HistoryEntry now{
        .kind = "A", .num_nodes = 64, .rates = {{"pairs of nodes", {5e9}}, {"products", {5e12, 5e12}}}};
    HistoryEntry before{
        .kind = "A", .num_nodes = 2, .rates = {{"pairs of nodes", {9e9}}, {"products", {9e12, 9e12}}}};
    EXPECT_EQ(checks_of(compare_with_past(0, now, {before, before, before}, report)),
              Names{"history of products"});
    before.num_nodes = 64;
    EXPECT_EQ(checks_of(compare_with_past(0, now, {before, before, before}, report)),
              (Names{"history of pairs of nodes", "history of products"}));
}

TEST_F(History, HasTheRatesUnderStress) {
    Report report = run_after(0, meter_);
    for (RankFacts& rank : report.cluster.ranks) {
        rank.load = {.bus_id = "0000:3b:00.0", .seconds = 10, .flops_per_second = 680e12};
    }
    const auto folder = folder_ / "kept";
    int num_files = 0;
    for (int run = 0; run < 3; ++run) append_history(folder, report, [&] { ++num_files; });
    EXPECT_EQ(num_files, 3 * 3);
    report.cluster.ranks[3].load->flops_per_second = 340e12;
    const auto findings = compare_with_history(folder, report);
    ASSERT_EQ(checks_of(findings), Names{"history of sustained products of 10 s"});
    EXPECT_EQ(findings[0].where, "rank 3 on n1");
    expect_says(findings[0], {"340 TFLOP/s, 50 %"});

    report.cluster.ranks[2].load->flops_per_second = 0;  // not measured: the other rank keeps its place
    const auto of_the_other = compare_with_history(folder, report);
    ASSERT_EQ(checks_of(of_the_other), Names{"history of sustained products of 10 s"});
    EXPECT_EQ(of_the_other[0].where, "rank 3 on n1");

    for (RankFacts& rank : report.cluster.ranks) rank.load->seconds = 60;
    EXPECT_EQ(checks_of(compare_with_history(folder, report)), Names{}) << "a GPU is slower after a minute";

    const std::string figures = prometheus_report(report);
    for (const char* figure :
         {"{node=\"n1\",rank=\"3\"} 340000000000000\n", "{node=\"n0\",rank=\"0\"} 680000000000000\n"}) {
        const std::string line = std::string("sustained_flops_per_second") + figure;
        EXPECT_NE(figures.find(line), std::string::npos) << line << " is not in: " << figures;
    }
    EXPECT_EQ(figures.find("sustained_flops_per_second{node=\"n1\",rank=\"2\"}"), std::string::npos);

    report.cluster.ranks[0].load->bus_id.clear();  // processors
    report.cluster.ranks[1].load.reset();
    EXPECT_FALSE(history_entries(report)[0].rates.contains("sustained products of 60 s"));
    EXPECT_TRUE(history_entries(report)[1].rates.contains("sustained products of 60 s"));
}

TEST_F(History, ReadsLinesWithoutTheNumberOfNodes) {
    write_file(folder_ / "n0.jsonl",
               "{\"format\": \"argosy node history\", \"version\": 2, \"time\": 1, \"kind\": \"A\", "
               "\"rates\": {\"products\": [1]}}\n");
    ASSERT_EQ(read_history(folder_ / "n0.jsonl").size(), 1);
    EXPECT_EQ(read_history(folder_ / "n0.jsonl")[0].num_nodes, 0);
    run(0);
    EXPECT_EQ(read_history(folder_ / "kept" / "n0.jsonl").at(0).num_nodes, 3);
}

TEST_F(History, AllowsTheNoiseOfThePast) {
    const Report report = run_after(0, meter_);
    std::vector<HistoryEntry> past;
    for (const double rate : {9e12, 7e12, 8e12, 8.5e12, 7.5e12, 8e12})
        past.push_back({.kind = "A", .rates = {{"products", {rate}}}});
    EXPECT_TRUE(compare_with_past(0, {.kind = "A", .rates = {{"products", {6e12}}}}, past, report).empty());
    EXPECT_EQ(compare_with_past(0, {.kind = "A", .rates = {{"products", {4e12}}}}, past, report).size(), 1);
}

TEST_F(History, HasTheRatesOfANode) {
    const auto entries = history_entries(run_after(0, meter_));
    ASSERT_EQ(entries.size(), 3);
    EXPECT_EQ(entries[1].kind, "2 x NVIDIA H200, 2 ranks, bfloat16, device memory");
    EXPECT_EQ(entries[1].time, kFirst);
    EXPECT_EQ(entries[1].rates.at("products").size(), 2);
    EXPECT_EQ(entries[1].rates.at("rails").size(), 2);
    EXPECT_NEAR(entries[1].rates.at("pairs of nodes").at(0), 96e9, 3e9);
    EXPECT_NEAR(entries[1].rates.at("all_gather of 1048576 bytes (bfloat16) by 2 ranks").at(0), 400e9, 10e9);
}

TEST_F(History, SurvivesBrokenLinesAndALongFile) {
    for (int day = 0; day < 300; ++day) run(day);
    const auto file = folder_ / "kept" / "n2.jsonl";
    EXPECT_GT(std::filesystem::file_size(file), 64 << 10);
    const size_t num_read = read_history(file).size();
    EXPECT_GT(num_read, 50) << "the newest";
    EXPECT_EQ(read_history(file).back().time, kFirst + 299 * kDay);
    std::ofstream(file, std::ios::app)
        << "{\"format\": \"argosy node history\", \"ti\n\n[1]\n{\"format\": 1}\n";
    EXPECT_NEAR(static_cast<double>(read_history(file).size()), static_cast<double>(num_read), 1);
    EXPECT_TRUE(read_history(folder_ / "nothing.jsonl").empty());
    EXPECT_TRUE(run(300).empty());
    EXPECT_EQ(read_history(file).back().time, kFirst + 300 * kDay);
}

TEST_F(History, ThatCannotBeWrittenIsReadAllTheSame) {
    write_file(folder_ / "kept", "a file");
    const Report report = run_after(0, meter_);
    EXPECT_TRUE(compare_with_history(folder_ / "kept", report).empty());
    EXPECT_ERROR(append_history(folder_ / "kept", report), RunError, "3 of 3 files were not written", "kept",
                 "Set --history to another folder", "remove the file in the folder's place");
    EXPECT_ERROR(append_history(folder_ / "kept" / "more", report), RunError, "Not a directory",
                 "remove the file in the folder's place");
}

TEST_F(History, ThatCannotBeWrittenSaysWhatToDo) {
    const Report report = run_after(0, meter_);
    const auto file = folder_ / "kept" / "n0.jsonl";
    std::filesystem::create_directories(file);
    EXPECT_ERROR(append_history(folder_ / "kept", report), RunError, "n0.jsonl", "Is a directory",
                 "Set --history to another folder, or remove the folder of this name");
    std::filesystem::remove(file);
    std::filesystem::create_symlink("/dev/full", file);
    EXPECT_ERROR(append_history(folder_ / "kept", report), RunError, "n0.jsonl", "No space left",
                 "Free some space, or set --history to a folder on another disk");
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{0, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    EXPECT_ERROR(append_history(folder_ / "kept", report), RunError, "Too many open files; the limit on",
                 "(ulimit -n)");
    setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(History, IsKeptForTheOtherNodesIfOneFileCannotBeUsed) {
    const Report report = run_after(0, meter_);
    const auto kept = folder_ / "kept";
    std::filesystem::create_directories(kept);
    std::filesystem::create_symlink("n0.jsonl", kept / "n0.jsonl");  // leads to itself
    EXPECT_ERROR(append_history(kept, report), RunError,
                 "1 of 3 files were not written; the first: ", "n0.jsonl");
    EXPECT_EQ(read_history(kept / "n1.jsonl").size(), 1);
    EXPECT_EQ(read_history(kept / "n2.jsonl").size(), 1);
    const std::vector<Finding> findings = compare_with_history(kept, report);
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].severity, Severity::Warn);
    EXPECT_EQ(findings[0].where, "n0");
    EXPECT_NE(findings[0].what.find("symbolic links"), std::string::npos) << findings[0].what;
}

}  // namespace
}  // namespace argosy::preflight
