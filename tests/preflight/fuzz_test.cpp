// Texts of others, mutated: the kernel's files, the answers of nvidia-smi and DCGM, lists in variables.
// Whatever they hold, reading ends, and so does the diagnosis of what was read. The seeds are fixed, so a
// failure repeats.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "preflight/cluster.h"
#include "preflight/finding.h"
#include "preflight/read_facts.h"
#include "preflight/sources.h"
#include "preflight/tree.h"
#include "support/fuzzing.h"

namespace argosy::preflight {
namespace {

using ::argosy::testing::FuzzSeeds;
using Random = std::mt19937_64;

std::string mutated(const std::string& text, Random& random) {
    static const std::vector<std::string> kParts = {"-1",
                                                    "0",
                                                    "99999999999999999999",
                                                    "1e999",
                                                    "nan",
                                                    ",",
                                                    ":",
                                                    ": ",
                                                    ";",
                                                    "\n",
                                                    std::string(1, '\0'),
                                                    "\xff",
                                                    "^",
                                                    "=",
                                                    "-",
                                                    "[N/A]",
                                                    "0x",
                                                    "4294967296",
                                                    "{",
                                                    "[",
                                                    "null",
                                                    "\""};
    return testing::mutated(text, kParts, random);
}

TEST(Fuzz, ListsInVariables) {
    for (const uint64_t seed : FuzzSeeds(5000)) {
        Random random(seed);
        Cluster cluster = good_cluster(2, 1);
        set_everywhere(cluster, "NCCL_IB_HCA", mutated("^=mlx5_0:1,mlx5_1", random));
        set_everywhere(cluster, "NCCL_SOCKET_IFNAME", mutated("=eth0,ib", random));
        set_everywhere(cluster, "OMPI_MCA_btl_tcp_if_include", mutated("eth0,10.0.0.0/8", random));
        set_everywhere(cluster, "NCCL_IB_GID_INDEX", mutated("3", random));
        set_everywhere(cluster, "NCCL_DEBUG", mutated("INFO", random));
        diagnose(cluster);
        parse_cpu_list(mutated("0-3,8,12-15", random));
    }
}

TEST(Fuzz, TheKernelsFiles) {
    const std::vector<std::pair<std::string, std::string>> files = {
        {"sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"},
        {"sys/class/infiniband/mlx5_0/ports/1/phys_state", "5: LinkUp\n"},
        {"sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n"},
        {"sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n"},
        {"sys/class/net/eth0/operstate", "up\n"},
        {"sys/class/net/eth0/speed", "25000\n"},
        {"sys/devices/system/cpu/online", "0-95\n"},
        {"sys/devices/system/node/node0/cpulist", "0-47\n"},
        {"proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-47\n"},
        {"etc/nccl.conf", "NCCL_ALGO=Ring\n# a note\nNCCL_DEBUG=INFO\n"}};
    const Tree tree;
    for (const uint64_t seed : FuzzSeeds(200)) {
        Random random(seed);
        for (const auto& [path, text] : files) tree.put(path, mutated(text, random));
        Cluster cluster{.ranks = {read_rank_facts(tree.sources(), 0, {})},
                        .nodes = {read_node_facts(tree.sources(), "")}};
        for (const Finding& finding : diagnose(cluster))
            EXPECT_EQ(finding.what.find('\n'), std::string::npos);
        EXPECT_EQ(pack(unpack_rank(pack(cluster.ranks[0]))), pack(cluster.ranks[0]));
        EXPECT_EQ(pack(unpack_node(pack(cluster.nodes[0]))), pack(cluster.nodes[0]));
    }
}

TEST(Fuzz, AnswersAboutGpus) {
    const std::string rows =
        "0:1B:00.0, NVIDIA H200, 580.65.06, 0x1, 0, 16, 16, 1, 5, 4, 143771, Disabled, GPU-1b0ac5f4\n"
        "0:43:00.0, NVIDIA H200, 580.65.06, 0x48, [N/A], 8, 16, 5, 5, 7, 143771, [N/A], GPU-43\n";
    const std::string health =
        R"({"body": {"Overall Health": {"value": "Warning"}, "GPU": {"children": {"0": {"value": "Warning",
        "children": {"Errors": {"children": {"PCIe system": {"value": "Warning", "overflow": ["x"]}}}}}}}}})";
    const std::string diagnosis =
        R"({"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "software",
        "results": [{"entity_group": "GPU", "entity_id": 1, "status": "Fail", "warnings":
        [{"error_id": 1, "error_severity": 2, "warning": "x"}]}], "test_summary": {"status": "Fail"}}]}]}})";
    const Tree tree;
    const std::string cat = "exec cat " + (tree.root() / "").string();
    tree.put_nvidia_smi(cat + "rows\n");
    tree.put_dcgmi(cat + "$1\n");
    for (const uint64_t seed : FuzzSeeds(150)) {
        Random random(seed);
        tree.put("rows", seed % 2 ? rows : mutated(rows, random));
        tree.put("health", mutated(health, random));
        tree.put("diag", mutated(diagnosis, random));
        const GpuAnswer read = look_at_gpus(tree.sources(), Dcgm::HealthAndDiagnosis);
        EXPECT_LE(read.gpus.size(), 8u);
        EXPECT_EQ(read.problem.find('\n'), std::string::npos);
        Cluster cluster = good_cluster();
        cluster.nodes[0].gpus = read.gpus;
        cluster.nodes[0].gpus_problem = read.problem;
        cluster.nodes[0].dcgm = read.dcgm;
        for (const Finding& finding : diagnose(cluster))
            EXPECT_EQ(finding.what.find('\n'), std::string::npos);
        EXPECT_EQ(pack(unpack_node(pack(cluster.nodes[0]))), pack(cluster.nodes[0]));
    }
}

TEST(Fuzz, FactsFromOtherRanks) {
    const Cluster cluster = good_cluster();
    int refused = 0;
    for (const uint64_t seed : FuzzSeeds(2000)) {
        Random random(seed);
        try {
            unpack_rank(mutated(pack(cluster.ranks[1]), random));
            unpack_node(mutated(pack(cluster.nodes[1]), random));
        } catch (const RunError&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace argosy::preflight
