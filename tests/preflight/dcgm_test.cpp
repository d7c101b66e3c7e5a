// What DCGM says, in the forms of its versions, from a script in the place of its program.
#include "preflight/cluster.h"
#include "preflight/read_facts.h"
#include "preflight/tree.h"

namespace argosy::preflight {
namespace {

constexpr const char* kHealthy =
    R"({"body": {"Overall Health": {"value": "Healthy"}}, "header": ["Health Monitor Report"]})";
/// Of DCGM 4.
constexpr const char* kPassed =
    R"({"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{
    "name": "software", "results": [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Pass"},
                                    {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 1, "status": "Skip"}],
    "test_summary": {"status": "Pass"}}]}]}, "metadata": {"version": "4.6.0"}})";

std::vector<DcgmAnswer> answers(const std::string& health, const std::string& diagnosis, int status = 0) {
    const Tree tree;
    tree.put("health", health);
    tree.put("diag", diagnosis);
    tree.put_dcgmi("cat " + (tree.root() / "$1").string() + "; exit " + std::to_string(status) + "\n");
    Calls calls(10);
    return ask_dcgm(Dcgm::HealthAndDiagnosis, tree.sources(), calls);
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
    const auto healthy = answers(kHealthy, kPassed);
    ASSERT_EQ(healthy.size(), 2u);
    EXPECT_EQ(healthy[0].command, "dcgmi health");
    EXPECT_EQ(healthy[1].command, "dcgmi diag");
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
        "Overall Health": {"value": "Failure"}}, "header": ["Health Monitor Report"]})",
                                kPassed);
    EXPECT_EQ(said(unwell),
              (Names{"FAIL DCGM: dcgmi health: GPU 0 NVLINK system: GPU 0's NvLink link 3 is currently down",
                     "WARN DCGM: dcgmi health: GPU 0 PCIe system: Detected 12 replays Monitor the GPU"}));
    EXPECT_EQ(said(answers(R"({"body": {"Overall Health": {"value": "Warning"}}})", kPassed)),
              Names{"WARN DCGM: dcgmi health: Overall Health: Warning"});
}

/// Errors that stop work on the GPU fail; DCGM calls a test failed for less than that, too.
TEST(Dcgm, JudgesTheDiagnosisOfVersion4ByItsSeverities) {
    const std::string tests =
        R"({"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [
        {"name": "software", "results": [
            {"entity_group": "GPU", "entity_id": 0, "status": "Fail", "warnings": [
                {"error_category": 8, "error_id": 29, "error_severity": 5, "warning": "Persistence mode is disabled"}]},
            {"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [
                {"error_category": 10, "error_id": 80, "error_severity": SEVERITY, "warning": "row remapping failed"}]}],
         "test_summary": {"status": "Fail", "warnings": [{"error_severity": 2, "warning": "the same again"}]}},
        {"name": "pcie", "results": [], "test_summary": {"status": "Fail", "warnings": [
            {"error_id": 1, "error_severity": 1, "warning": "of no entity"}]}}]}]}})";
    for (const auto& [severity, level] :
         {std::pair{"2", "FAIL"}, {"6", "FAIL"}, {"3", "WARN"}, {"99", "WARN"}}) {
        std::string made = tests;
        made.replace(made.find("SEVERITY"), 8, severity);
        const std::string remapping =
            std::string(level) + " DCGM: dcgmi diag: software of GPU 3: row remapping failed";
        EXPECT_EQ(said(answers(kHealthy, made, 226)),
                  (Names{"WARN DCGM: dcgmi diag: software of GPU 0: Persistence mode is disabled", remapping,
                         "WARN DCGM: dcgmi diag: pcie: of no entity"}));
    }
}

TEST(Dcgm, ReadsTheFormsOfVersion3) {
    const std::string
        begin = R"({"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [)",
        end = R"(]}]}, "Driver Version Detected": "535.54", "version": "3.3.9"})";
    EXPECT_EQ(said(answers(kHealthy, begin + R"({"name": "Denylist", "results": [{"status": "Pass"}]},
        {"name": "Page Retirement/Row Remap", "results": [{"gpu_id": 2, "status": "Fail", "warnings": [
            {"error_category": 10, "error_id": 80, "error_severity": 6, "warnings": "remapping failed"}]}]},
        {"name": "PCIe", "results": [{"gpu_id": "1", "status": "Fail", "warnings": [null,
            {"error_category": 13, "error_id": 5, "error_severity": 1, "warning": "slow"}]}]})" +
                                         end)),
              (Names{"FAIL DCGM: dcgmi diag: Page Retirement/Row Remap of GPU 2: remapping failed",
                     "WARN DCGM: dcgmi diag: PCIe of GPU 1: slow"}));
    EXPECT_EQ(said(answers(kHealthy, begin + R"({"name": "Inforom", "results": [{"status": "Fail", "warnings":
        "GPU 0 is corrupt"}]}, {"name": "Graphics Processes", "results": [{"status": "Fail"}]})" +
                                         end)),
              (Names{"WARN DCGM: dcgmi diag: Inforom: GPU 0 is corrupt",
                     "WARN DCGM: dcgmi diag: Graphics Processes: Fail"}))
        << "before 3.3 errors have no severity";
}

TEST(Dcgm, ShowsWhatItDoesNotKnow) {
    const std::vector<std::pair<std::vector<DcgmAnswer>, const char*>> cases = {
        {answers("Error: Health watches not enabled. Please enable watches. \n", kPassed, 255),
         "it exits with 255: Error: Health watches not enabled. Please enable watches."},
        {answers(kHealthy,
                 R"({"DCGM Diagnostic": {"runtime_error": "Error: DCGM is paused.", "version": "4.6.0"}})"),
         "Error: DCGM is paused."},
        {answers(kHealthy, R"({"another form": 1})"), "its answer has no test_categories"},
        {answers(R"({"body": {}})", kPassed), "its answer has no 'Overall Health'"},
        {answers(R"({"body": {"Overall Health": {"value": "Splendid"}}})", kPassed),
         "Overall Health: Splendid (the word 'Splendid' is not known)"},
        {answers(kHealthy, R"({"DCGM Diagnostic": {"test_categories": [{"tests": [
            {"name": "new", "results": [{"entity_group": "NIC", "entity_id": 4, "status": "Odd"}]}]}]}})"),
         "new of NIC 4: the status 'Odd' is not known"},
        {answers("{\"body\": }", kPassed), "its answer cannot be read: "}};
    for (const auto& [unknown, expected] : cases) {
        EXPECT_EQ(said(unknown), Names{}) << expected;
        EXPECT_EQ(not_judged(unknown).find(expected), 0u) << not_judged(unknown);
    }
    const Names lines = not_checked(cluster_with(cases[1].first));
    EXPECT_NE(std::ranges::find(lines, "dcgmi diag, n2: Error: DCGM is paused."), lines.end());
}

TEST(Dcgm, IsNotNeeded) {
    const Tree tree;
    Calls calls(10);
    const auto absent = ask_dcgm(Dcgm::HealthAndDiagnosis, tree.sources(), calls);
    ASSERT_EQ(absent.size(), 1u);
    EXPECT_EQ(absent[0].command, "dcgmi");
    EXPECT_EQ(absent[0].not_judged, "it is not in PATH");
    EXPECT_EQ(said(absent), Names{});
    EXPECT_TRUE(ask_dcgm(Dcgm::NotAsked, tree.sources(), calls).empty());
}

TEST(Dcgm, IsAskedOnlyAboutGpusThatNvidiaSmiLists) {
    const Tree tree;
    tree.put_dcgmi("echo $1 >>" + (tree.root() / "calls").string() + "\n");
    tree.put_nvidia_smi("exit 9\n");
    EXPECT_TRUE(look_at_gpus(tree.sources(), Dcgm::HealthAndDiagnosis).dcgm.empty());
    tree.put_nvidia_smi("echo '0:3B:00.0,,,,,,,,,,,,'\n");
    EXPECT_EQ(look_at_gpus(tree.sources(), Dcgm::Health).dcgm.size(), 1u);
    EXPECT_EQ(look_at_gpus(tree.sources(), Dcgm::HealthAndDiagnosis).dcgm.size(), 2u);
    EXPECT_EQ(read_file(tree.root() / "calls"), "health\nhealth\ndiag\n");
}

/// It is told to end, so that a diagnosis does not run on in DCGM's service.
TEST(Dcgm, ThatTakesTooLongIsEndedAndNoFault) {
    const Tree tree;
    tree.put_nvidia_smi("echo '0:3B:00.0,,,,,,,,,,,,'\n");
    tree.put_dcgmi("[ $1 = health ] || { trap 'echo told >" + (tree.root() / "end").string() +
                   "; exit 1' TERM; sleep 600 & wait; }\necho '" + kHealthy + "'\n");
    const GpuAnswer answer = look_at_gpus(tree.sources(/*gpu_seconds=*/3), Dcgm::HealthAndDiagnosis);
    EXPECT_FALSE(answer.hung || answer.out_of_time) << "nvidia-smi has answered";
    ASSERT_EQ(answer.dcgm.size(), 2u);
    EXPECT_EQ(answer.dcgm[1].not_judged, "it did not end in the 3 s that all calls have together");
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
