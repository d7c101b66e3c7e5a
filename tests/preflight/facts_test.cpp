// The facts that are read from a simulated node and from this machine, and their wire format.
#include "preflight/facts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "expect_error.h"
#include "preflight/cluster.h"
#include "preflight/read_facts.h"
#include "preflight/tree.h"

namespace argosy::preflight {
namespace {

void put_adapter(const Tree& tree, const std::string& name, const std::string& rate,
                 const std::string& layer) {
    const std::string port = "sys/class/infiniband/" + name + "/ports/1/";
    tree.put(port + "state", "4: ACTIVE\n");
    tree.put(port + "phys_state", "5: LinkUp\n");
    tree.put(port + "rate", rate + "\n");
    tree.put(port + "link_layer", layer + "\n");
}

TEST(Adapters, AreReadFromTheKernelsFiles) {
    const Tree tree;
    put_adapter(tree, "mlx5_10", "400 Gb/sec (4X NDR)", "InfiniBand");
    put_adapter(tree, "mlx5_2", "25 Gb/sec (1X EDR)", "Ethernet");
    tree.put("sys/class/infiniband/mlx5_2/ports/2/state", "1: DOWN\n");
    tree.put("sys/class/infiniband/mlx5_2/ports/2/phys_state", "3: Disabled\n");
    const std::vector<AdapterPort> ports = read_adapter_ports(tree.sources());
    ASSERT_EQ(ports.size(), 3u);
    EXPECT_EQ(ports[0].adapter, "mlx5_2");
    EXPECT_TRUE(ports[0].active());
    EXPECT_FALSE(ports[0].infiniband());
    EXPECT_EQ(ports[0].gigabits, 25);
    EXPECT_EQ(ports[1].port, 2);
    EXPECT_EQ(ports[1].state, "DOWN");
    EXPECT_EQ(ports[1].physical_state, "Disabled");
    EXPECT_FALSE(ports[1].active());
    EXPECT_EQ(ports[2].adapter, "mlx5_10");
    EXPECT_TRUE(ports[2].infiniband());
    EXPECT_EQ(ports[2].gigabits, 400);
}

TEST(Interfaces, AreDistinguishedByTheirNetworks) {
    const Tree tree;
    const auto put = [&](const std::string& name, const std::string& state, const std::string& speed) {
        tree.put("sys/class/net/" + name + "/operstate", state + "\n");
        tree.put("sys/class/net/" + name + "/speed", speed + "\n");
    };
    put("eth0", "up", "25000");
    tree.put_folder("sys/class/net/eth0/device");
    put("lo", "unknown", "");
    put("docker0", "down", "-1");
    put("br0", "up", "25000");  // with a real member
    tree.put_folder("sys/class/net/br0/bridge");
    tree.put_folder("sys/class/net/br0/brif/eth0");
    put("br1", "up", "10000");  // with a container's
    tree.put_folder("sys/class/net/br1/bridge");
    tree.put_folder("sys/class/net/br1/brif/veth12");
    put("bond0", "up", "50000");
    tree.put("sys/class/net/bonding_masters", "bond0\n");
    const std::vector<Interface> interfaces = read_interfaces(tree.sources());
    ASSERT_EQ(interfaces.size(), 6u);
    const auto named = [&](const std::string& name) {
        return *std::ranges::find(interfaces, name, &Interface::name);
    };
    EXPECT_TRUE(named("eth0").leaves_the_machine);
    EXPECT_EQ(named("eth0").megabits, 25000);
    EXPECT_EQ(named("eth0").state, "up");
    EXPECT_TRUE(named("br0").leaves_the_machine);
    EXPECT_TRUE(named("bond0").leaves_the_machine);
    EXPECT_FALSE(named("br1").leaves_the_machine);
    EXPECT_FALSE(named("docker0").leaves_the_machine);
    EXPECT_EQ(named("docker0").megabits, std::nullopt);
    EXPECT_FALSE(named("lo").leaves_the_machine);
}

TEST(Facts, OfASimulatedNode) {
    const Tree tree;
    tree.put("proc/sys/kernel/random/boot_id", "0db1aa33-ff4f\n");
    tree.put("sys/devices/system/cpu/online", "0-3\n");
    tree.put_folder("dev/shm");
    tree.put_nvidia_smi(
        "case $1 in *=pci.bus_id,*) echo '00000000:3B:00.0,,,,,,,,,,,,GPU-8932f937' ;; esac\n");
    const NodeFacts facts = read_node_facts(tree.sources(), "");
    EXPECT_EQ(facts.boot_id, "0db1aa33-ff4f");
    EXPECT_EQ(facts.num_cpus, 4);
    EXPECT_GT(facts.shared_memory.value().total_bytes, 0);
    EXPECT_FALSE(facts.dump_folder);
    ASSERT_EQ(facts.gpus.size(), 1u);
    EXPECT_EQ(facts.gpus[0].uuid, "GPU-8932f937");
}

TEST(Facts, CountANodeWithoutABootIdAsOneMachine) {
    const NodeFacts facts = read_node_facts(Tree().sources(), "");
    EXPECT_FALSE(facts.boot_id.empty());
    EXPECT_EQ(facts.boot_id, facts.name);
}

TEST(Facts, OfASimulatedRank) {
    const Tree tree;
    tree.put("proc/self/exe", "a program");
    tree.put("proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t2-3,8\n");
    tree.put("etc/nccl.conf", "# a note\nNCCL_ALGO = Ring\nNCCL_DEBUG=WARN\nnot a setting\n");
    ::setenv("NCCL_DEBUG", "INFO", 1);
    ::setenv("SLURMD_NODENAME", "n7", 1);
    const RankFacts facts = read_rank_facts(tree.sources(), 5, {.mpi_library = "Some MPI\nv1"});
    ::unsetenv("NCCL_DEBUG");
    ::unsetenv("SLURMD_NODENAME");
    EXPECT_EQ(facts.rank, 5);
    EXPECT_EQ(facts.node, "n7");
    EXPECT_EQ(facts.mpi_library, "Some MPI?v1");
    EXPECT_EQ(facts.cpus, "2-3,8");
    EXPECT_EQ(facts.num_cpus, 3);
    EXPECT_EQ(facts.executable_hash.size(), 16u);
    ASSERT_TRUE(facts.variable("NCCL_DEBUG"));
    EXPECT_EQ(facts.variable("NCCL_DEBUG")->value, "INFO");  // the environment is stronger
    EXPECT_EQ(std::ranges::count(facts.variables, "NCCL_DEBUG", &Variable::name), 1);
    ASSERT_TRUE(facts.variable("NCCL_ALGO"));
    EXPECT_EQ(facts.variable("NCCL_ALGO")->value, "Ring");
    EXPECT_TRUE(facts.variable("NCCL_ALGO")->file.ends_with("etc/nccl.conf"));

    const std::string hash = facts.executable_hash;
    tree.put("proc/self/exe", "b program");
    EXPECT_NE(read_rank_facts(tree.sources(), 0, {}).executable_hash, hash);
}

TEST(Facts, OfThisMachineAreSensible) {
    const RankFacts rank = read_rank_facts({}, 0, {.mpi_library = "none"});
    EXPECT_FALSE(rank.node.empty());
    EXPECT_EQ(rank.executable_hash.size(), 16u);
    EXPECT_FALSE(rank.argosy_version.empty());
    EXPECT_GT(rank.num_cpus, 0);
    EXPECT_GE(rank.memlock_bytes, 0);

    const ScratchFolder folder;
    const NodeFacts node = read_node_facts({}, folder / "not/there/yet");
    EXPECT_EQ(node.name, rank.node);
    EXPECT_EQ(node.boot_id.size(), 36u);
    EXPECT_GE(node.num_cpus, rank.num_cpus);
    EXPECT_NE(std::ranges::find(node.interfaces, "lo", &Interface::name), node.interfaces.end());
    EXPECT_EQ(node.dump_folder->problem, "");
    EXPECT_GT(node.dump_folder->bytes_per_second, 1e5);
    EXPECT_GT(node.dump_folder->space.free_bytes, 0);
    EXPECT_EQ(folder.num_entries(), 0);  // nothing is left

    Cluster alone{.ranks = {rank}, .nodes = {node}};
    for (const Finding& finding : diagnose(alone)) {
        EXPECT_EQ(finding.severity, Severity::Warn) << finding.check << ": " << finding.what;
    }
}

TEST(DumpFolder, ThatCannotBeWrittenIsAFindingAndNoError) {
    const FolderFacts facts = try_folder("/proc/argosy", 15);
    EXPECT_EQ(facts.path, "/proc");
    EXPECT_NE(facts.problem.find("cannot create a file there: "), std::string::npos) << facts.problem;
}

TEST(Facts, AreEqualAfterTheirWireFormat) {
    const Cluster cluster = good_cluster();
    RankFacts rank = cluster.ranks[1];
    rank.variables = {{"NCCL_ALGO", "Ring", "/etc/nccl.conf"}, {"LD_PRELOAD", "\"a\\b\""}};
    rank.memlock_bytes = kUnlimited;
    rank.visible_gpus = VisibleGpus{.count = 2, .own = "0000:3b:00.0", .host = "n", .problem = "\"x\""};
    EXPECT_EQ(pack(unpack_rank(pack(rank))), pack(rank));
    EXPECT_EQ(unpack_rank(pack(rank)).memlock_bytes, kUnlimited);
    EXPECT_EQ(unpack_rank(pack(rank)).visible_gpus.value_or(VisibleGpus{}).problem, "\"x\"");
    EXPECT_EQ(unpack_rank(pack(rank)).variables[1].value, "\"a\\b\"");

    NodeFacts node = cluster.nodes[0];
    node.dcgm = {{"dcgmi health", {{"GPU 3 PCIe system: replays", true}}, "x"}, {"dcgmi", {}, "absent"}};
    node.gpus_hang = true;
    const NodeFacts same = unpack_node(pack(node));
    EXPECT_EQ(pack(same), pack(node));
    EXPECT_EQ(same.gpus[1].uncorrected_errors, 0);
    EXPECT_EQ(same.dump_folder->bytes_per_second, 2e9);
    EXPECT_EQ(same.dcgm[0].faults.at(0).what, "GPU 3 PCIe system: replays");
    EXPECT_TRUE(same.dcgm[0].faults[0].severe);
    EXPECT_EQ(pack(unpack_node(pack(NodeFacts{}))), pack(NodeFacts{}));
}

TEST(Facts, KeepTheKeysThatReportsHave) {
    const std::string rank = pack(RankFacts{}), node = pack(good_cluster().nodes[0]);
    EXPECT_NE(rank.find("\"load\":null"), rank.npos) << rank;
    for (const char* key :
         {"gpus_under_load", "gpus_hang_under_load", "most_pcie_lanes", "most_pcie_generation"})
        EXPECT_NE(node.find(fmt::format("\"{}\":", key)), node.npos) << key << ": " << node;
}

TEST(Facts, AreOneLineWhateverTheirContent) {
    RankFacts rank;
    rank.variables = {{"NCCL_X", "line\nand \xff\xfe bytes"}};
    const std::string text = pack(rank);
    EXPECT_EQ(text.find('\n'), text.npos);
    EXPECT_EQ(pack(unpack_rank(text)), text);
}

TEST(Facts, ThatCannotBeParsedAreAnError) {
    for (const char* text : {"", "{", "[]", "{}", "null", R"({"rank": "x"})"}) {
        EXPECT_ERROR(unpack_rank(text), RunError, "the facts that a rank sent cannot be read");
        EXPECT_ERROR(unpack_node(text), RunError, "the facts that a rank sent cannot be read");
    }
}

}  // namespace
}  // namespace argosy::preflight
