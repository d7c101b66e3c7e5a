// What DCGM says, in the forms of its versions, from a script in the place of its program.
#include "preflight/cluster.h"
#include "preflight/read_facts.h"
#include "preflight/tree.h"

namespace argosy::preflight {
namespace {

constexpr const char* kHealthy =
    R"({"body": {"Overall Health": {"value": "Healthy"}}, "header": ["Health Monitor Report"]})";

std::vector<DcgmAnswer> answers(const std::string& health, int status = 0) {
    const Tree tree;
    tree.put("answer", health);
    tree.put_nvidia_smi("echo '0:3B:00.0,,,,,,,,,,,,'\n");
    tree.put_dcgmi("cat " + (tree.root() / "answer").string() + "; exit " + std::to_string(status) + "\n");
    return look_at_gpus(tree.sources(), Dcgm::Health).dcgm;
}

Cluster cluster_with(std::vector<DcgmAnswer> of_n1, int num_nodes = 3) {
    Cluster cluster = good_cluster(num_nodes);
    cluster.nodes[num_nodes - 1].dcgm = std::move(of_n1);
    return cluster;
}

/// What the findings on the last node say, with their levels.
Names said(const std::vector<DcgmAnswer>& answers) {
    Names texts;
    for (const Finding& finding : diagnose(cluster_with(answers)))
        texts.push_back(std::string(name(finding.severity)) + " " + finding.check + ": " + finding.what);
    return texts;
}

std::string not_judged(const std::vector<DcgmAnswer>& answers) {
    std::string texts;
    for (const DcgmAnswer& answer : answers) texts += answer.not_judged;
    return texts;
}

TEST(Dcgm, ThatFindsNothingMakesNoFinding) {
    const auto healthy = answers(kHealthy);
    ASSERT_EQ(healthy.size(), 1u);
    EXPECT_EQ(healthy[0].command, "dcgmi health");
    EXPECT_EQ(said(healthy), Names{});
    EXPECT_EQ(not_judged(healthy), "");
}

TEST(Dcgm, NamesIncidentsOfHealth) {
    const auto unwell = answers(R"({"body": {
        "GPU": {"children": {
            "0": {"children": {"Errors": {"children": {
                "NVLINK system": {"overflow": ["GPU 0's NvLink link 3 is currently down"], "value": "Failure"},
                "PCIe system": {"overflow": ["Detected 12 replays", "Monitor the GPU"], "value": "Warning"}}}},
                "value": "Failure"}}},
        "Overall Health": {"value": "Failure"}}, "header": ["Health Monitor Report"]})");
    EXPECT_EQ(said(unwell),
              (Names{"FAIL DCGM: dcgmi health: GPU 0 NVLINK system: GPU 0's NvLink link 3 is currently down",
                     "WARN DCGM: dcgmi health: GPU 0 PCIe system: Detected 12 replays Monitor the GPU"}));
    EXPECT_EQ(said(answers(R"({"body": {"Overall Health": {"value": "Warning"}}})")),
              Names{"WARN DCGM: dcgmi health: Overall Health: Warning"});
}

TEST(Dcgm, ShowsWhatItDoesNotKnow) {
    const std::vector<std::pair<std::vector<DcgmAnswer>, const char*>> cases = {
        {answers("Error: Health watches not enabled. Please enable watches. \n", 255),
         "it exits with 255: Error: Health watches not enabled. Please enable watches."},
        {answers(R"({"body": {}})"), "its answer has no 'Overall Health'"},
        {answers(R"({"body": {"Overall Health": {"value": "Splendid"}}})"),
         "Overall Health: Splendid (the word 'Splendid' is not known)"},
        {answers("{\"body\": }"), "its answer cannot be read: "}};
    for (const auto& [unknown, expected] : cases) {
        EXPECT_EQ(said(unknown), Names{}) << expected;
        EXPECT_EQ(not_judged(unknown).find(expected), 0u) << not_judged(unknown);
    }
    const Names lines = not_checked(cluster_with(cases[1].first));
    EXPECT_NE(std::ranges::find(lines, "dcgmi health, n2: its answer has no 'Overall Health'"), lines.end());
}

TEST(Dcgm, IsNotNeeded) {
    const Tree tree;
    tree.put_nvidia_smi("echo '0:3B:00.0,,,,,,,,,,,,'\n");
    const auto absent = look_at_gpus(tree.sources(), Dcgm::Health).dcgm;
    ASSERT_EQ(absent.size(), 1u);
    EXPECT_EQ(absent[0].command, "dcgmi");
    EXPECT_EQ(absent[0].not_judged, "it is not in PATH");
    EXPECT_EQ(said(absent), Names{});
}

TEST(Dcgm, IsAskedOnlyAboutGpusThatNvidiaSmiLists) {
    const Tree tree;
    tree.put_dcgmi("echo $1 >>" + (tree.root() / "calls").string() + "\n");
    tree.put_nvidia_smi("exit 9\n");
    EXPECT_TRUE(look_at_gpus(tree.sources(), Dcgm::Health).dcgm.empty());
    tree.put_nvidia_smi("echo '0:3B:00.0,,,,,,,,,,,,'\n");
    EXPECT_TRUE(look_at_gpus(tree.sources(), Dcgm::NotAsked).dcgm.empty());
    EXPECT_EQ(look_at_gpus(tree.sources(), Dcgm::Health).dcgm.size(), 1u);
    EXPECT_EQ(read_file(tree.root() / "calls"), "health\n");
}

TEST(Dcgm, ThatTakesTooLongIsEndedAndNoFault) {
    const Tree tree;
    tree.put_nvidia_smi("echo '0:3B:00.0,,,,,,,,,,,,'\n");
    tree.put_dcgmi("trap 'echo told >" + (tree.root() / "end").string() +
                   "; exit 1' TERM; sleep 600 & wait\n");
    const GpuAnswer answer = look_at_gpus(tree.sources(/*gpu_seconds=*/3), Dcgm::Health);
    EXPECT_FALSE(answer.hung || answer.out_of_time) << "nvidia-smi has answered";
    ASSERT_EQ(answer.dcgm.size(), 1u);
    EXPECT_EQ(answer.dcgm[0].not_judged, "it did not end in the 3 s that all calls have together");
    EXPECT_EQ(said(answer.dcgm), Names{});
    EXPECT_EQ(read_file(tree.root() / "end"), "told\n");
}

TEST(Dcgm, FailsTheNodesWithAFaultUnlessMostHaveIt) {
    const std::vector<DcgmAnswer> failure = {{"dcgmi health", {{"GPU 1 Driver: gone", true}}}};
    EXPECT_EQ(only_finding(cluster_with(failure), "DCGM").bad_nodes, Names{"n2"});
    EXPECT_EQ(only_finding(cluster_with(failure, 1), "DCGM").bad_nodes, Names{"n0"})
        << "another node may be well";
    Cluster cluster = cluster_with(failure);
    for (NodeFacts& node : cluster.nodes) node.dcgm = failure;
    EXPECT_EQ(only_finding(cluster, "DCGM").severity, Severity::Warn);
    std::vector<Finding> findings = diagnose(cluster_with(failure));
    only_warn({"DCGM"}, findings);
    EXPECT_EQ(findings.at(0).severity, Severity::Warn);
}

}  // namespace
}  // namespace argosy::preflight
