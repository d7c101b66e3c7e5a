// What the pre-flight computes for 2048 nodes takes little time: no step is quadratic in nodes or ranks. Also
// a whole pre-flight of 512 simulated nodes.
#include "base/clock.h"
#include "bench/collective.h"
#include "preflight/cluster.h"
#include "preflight/diagnose.h"
#include "preflight/preflight.h"
#include "preflight/simulated_meter.h"

namespace argosy::preflight {
namespace {

constexpr layout::AxisSet kSpreadAxes = {layout::Axis::Shard, layout::Axis::Context};

constexpr int kNodes = 2048, kRanksPerNode = 8;
constexpr double kMostSeconds = 1.5;  // of a busy processor; they take 0.1 s on a quiet one

/// Every node has eight adapters and GPUs. Some problems are on all nodes.
Cluster large_cluster() {
    Cluster cluster = good_cluster(kNodes, kRanksPerNode);
    for (NodeFacts& node : cluster.nodes) {
        node.adapter_ports.clear();
        node.gpus.clear();
        for (int i = 0; i < kRanksPerNode; ++i) {
            node.adapter_ports.push_back(adapter_port("mlx5_" + std::to_string(i)));
            node.gpus.push_back(good_gpu(i));
        }
        node.adapter_ports[3].gigabits = 200;
    }
    cluster.nodes[7].adapter_ports[2].gigabits = 100;
    cluster.nodes[9].gpus.pop_back();
    set_everywhere(cluster, "NCCL_IB_HCA", "mlx5");
    return cluster;
}

TEST(Scale, DiagnosesManyNodesQuickly) {
    const Cluster cluster = large_cluster();
    const double start = seconds_now();
    EXPECT_EQ(checks_of(diagnose(cluster)), (Names{"adapters' rates", "number of GPUs"}));
    EXPECT_LT(seconds_now() - start, kMostSeconds);
}

/// Problems with a text of their own, and one that all nodes have.
TEST(Scale, MergesManyProblemsQuickly) {
    constexpr int kProblems = 100'000;
    const double start = seconds_now();
    NodeFindings found("locked memory");
    for (int i = 0; i < kProblems; ++i) {
        const std::string number = std::to_string(i);
        found.add("n" + number, {Severity::Warn, "limited to " + number, "raise it"});
        found.add("n" + number, {Severity::Warn, "limited", "raise it"});
    }
    EXPECT_EQ(found.findings(good_cluster()).size(), kProblems + 1);
    EXPECT_LT(seconds_now() - start, kMostSeconds);
}

TEST(Scale, ComparesManySpeedsQuickly) {
    const Cluster cluster = large_cluster();
    Speeds speeds;
    std::vector<std::vector<int>> groups;
    for (int rank = 0; rank < kNodes * kRanksPerNode; ++rank) {
        speeds.products.push_back(rank % 3 == 0 ? 4e14 : 7e14 + rank * 1e9);
        if (rank % kRanksPerNode == 0) groups.emplace_back();
        groups.back().push_back(rank);
    }
    for (int node = 0; node < kNodes; ++node)
        speeds.nodes.push_back(node % 5 == 0 ? 1e11 : 4e11 + node * 1e7);
    const bench::Case kind{.collective = &bench::collective_named("all_gather"), .bytes = 64 << 20};
    speeds.operations.push_back({{"dp_shard", groups, kind, 0}, speeds.nodes});
    speeds.devices.resize(kNodes * kRanksPerNode);
    speeds.rails.assign(kNodes, std::vector<double>(kRanksPerNode, 5e10));
    for (int node = 0; node < kNodes; node += 3) speeds.rails[node][1] = 1e10;
    const double start = seconds_now();
    EXPECT_GT(compare_speeds(speeds, cluster).size(), kNodes / 5);
    EXPECT_EQ(checks_of(compare_with_fabric(speeds, cluster)),
              (Names{"line rate of nodes", "all_gather over dp_shard"}));
    EXPECT_LT(seconds_now() - start, kMostSeconds);
}

TEST(Scale, GroupsManyRanksQuickly) {
    std::vector<std::string> names;
    for (int rank = 0; rank < kNodes * kRanksPerNode; ++rank)
        names.push_back("node" + std::to_string(rank / kRanksPerNode));
    const double start = seconds_now();
    EXPECT_EQ(group_by_node(names).size(), kNodes);
    EXPECT_LT(seconds_now() - start, kMostSeconds);
}

constexpr int kSimulatedNodes = 512;

/// Tensor parallelism within nodes, data parallelism across them, and a group over all nodes for each place.
std::vector<StepOperation> simulated_operations() {
    const layout::MeshShape mesh{{1, 1, kSimulatedNodes, 1, kRanksPerNode}};
    const std::vector<StepLaunches> step = {
        {layout::Axis::Tensor, 1, comm::OpKind::AllGather, ElementType::BFloat16, 32 << 20, 64},
        {kSpreadAxes, 1, comm::OpKind::ReduceScatter, ElementType::Float32, 64 << 20, 32}};
    return step_operations(step, mesh, 256 << 20);
}

/// Measures on simulated nodes and finds what is wrong. The facts cross the wire format, as those of real
/// nodes do.
Report simulated_preflight(SimulatedMeter& meter, double deadline_seconds = 120) {
    Report report{.title = "a simulation", .type = at::kBFloat16};
    std::vector<std::string> names;
    const Cluster cluster = good_cluster(kSimulatedNodes, kRanksPerNode);
    for (const RankFacts& rank : cluster.ranks) {
        report.cluster.ranks.push_back(unpack_rank(pack(rank)));
        names.push_back(rank.node);
    }
    for (const NodeFacts& node : cluster.nodes) report.cluster.nodes.push_back(unpack_node(pack(node)));
    report.nodes = group_by_node(names);
    report.speeds = measure_speeds(meter, report.nodes, simulated_operations(), deadline_seconds);
    set_findings({}, deadline_seconds, report);
    return report;
}

std::string brief(const Report& report) {
    std::string text;
    for (const Finding& one : report.findings)
        text += std::string(name(one.severity)) + " " + one.check + ": " + one.where + "\n";
    return text;
}

TEST(SimulatedPreflight, FindsNothingWrongWithGoodNodes) {
    SimulatedMeter meter(kSimulatedNodes, kRanksPerNode);
    const Report report = simulated_preflight(meter);
    EXPECT_EQ(brief(report), "");
    EXPECT_NE(text_report(report).find("PASS"), std::string::npos);
}

TEST(SimulatedPreflight, NamesABadRailABadNodeAndNothingElse) {
    SimulatedMeter meter(kSimulatedNodes, kRanksPerNode);
    meter.slow_rail(77 * kRanksPerNode + 5, 0.5);
    meter.slow_node(300, 0.4);
    const int far = rounds_of_pairs(kSimulatedNodes, 3)[2][10];
    meter.slow_path(10, far, 0.3);
    const double start = seconds_now();
    const Report report = simulated_preflight(meter);
    EXPECT_EQ(brief(report),
              "FAIL pairs of nodes: n300\n"
              "FAIL rails between nodes: rank 621 on n77\n")
        << "n10 and its partner over a slow path are fast with others";
    EXPECT_EQ(report.bad_nodes(), (Names{"n300", "n77"}));
    EXPECT_LT(seconds_now() - start, 10 * kMostSeconds);
}

/// The first partners of n9 corrupt data, so n9 looks as bad as they do until the hunt.
TEST(SimulatedPreflight, NamesTheNodesThatCorruptDataAndNotTheirPartners) {
    SimulatedMeter meter(kSimulatedNodes, kRanksPerNode);
    std::set<std::string> bad;
    for (const Round& round : rounds_of_pairs(kSimulatedNodes, 3)) {
        meter.wrong_data(round[9]);
        bad.insert("n" + std::to_string(round[9]));
    }
    const Names named = simulated_preflight(meter).bad_nodes();
    EXPECT_EQ(std::set<std::string>(named.begin(), named.end()), bad);
}

TEST(SimulatedPreflight, ReportsWhatTheDeadlineLeavesOut) {
    SimulatedMeter meter(kSimulatedNodes, kRanksPerNode);
    meter.slow_node(300, 0.4);
    meter.take_seconds(25);  // products, two operations and two rounds of pairs begin within 120 s
    const Report report = simulated_preflight(meter);
    EXPECT_EQ(report.speeds.not_done, Names{"pairs of nodes"});
    EXPECT_EQ(meter.num_rounds(), 2);
    EXPECT_EQ(worst_severity(report.findings), Severity::Warn) << "n300 may have met only bad nodes";
    EXPECT_TRUE(report.bad_nodes().empty());
    const auto left_out = std::ranges::find(report.findings, "deadline", &Finding::check);
    ASSERT_NE(left_out, report.findings.end());
    expect_says(*left_out, {"120 s had passed", "not done: pairs of nodes", "--deadline"});
}

TEST(SimulatedPreflight, ReportsThatNothingWasMeasured) {
    SimulatedMeter meter(kSimulatedNodes, kRanksPerNode);
    const Report report = simulated_preflight(meter, /*deadline_seconds=*/0);
    EXPECT_EQ(brief(report), "WARN deadline: all nodes\n");
    EXPECT_EQ(report.speeds.not_done, (Names{"matrix products", "all_gather over tp",
                                             "reduce_scatter over dp_shard", "pairs of nodes"}));
    EXPECT_NE(text_report(report).find("matrix products  bfloat16: unknown"), std::string::npos)
        << text_report(report);
    EXPECT_NE(json_report(report).find("\"tera_flops\": []"), std::string::npos);
}

}  // namespace
}  // namespace argosy::preflight
