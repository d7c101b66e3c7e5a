// What ranks, nodes and GPUs should have in common.
#include "preflight/cluster.h"
#include "preflight/preflight.h"

namespace argosy::preflight {
namespace {

TEST(Alike, AProtocolThatDiffersFailsAndNamesTheNode) {
    Cluster cluster = good_cluster(4, 2);
    for (const int rank : {4, 5}) set_variable(cluster.ranks[rank], "NCCL_BUFFSIZE", "1048576");
    const Finding finding = only_finding(cluster, "NCCL_BUFFSIZE");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.where, "ranks 4-5 on n2");
    EXPECT_EQ(finding.bad_nodes, Names{"n2"});
    expect_says(finding, {"unset on 6 ranks; '1048576' on ranks 4-5 on n2"});
}

TEST(Alike, ARankThatDiffersFromOthersOfItsNodeDoesNotMakeTheNodeBad) {
    Cluster cluster = good_cluster(4, 2);
    set_variable(cluster.ranks[4], "UCX_TLS", "tcp");
    const Finding finding = only_finding(cluster, "UCX_TLS");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.bad_nodes, Names{});
}

TEST(Alike, TwoEqualHalvesMakeNoNodeBad) {
    Cluster cluster = good_cluster(2, 1);
    set_variable(cluster.ranks[0], "OMPI_MCA_pml", "ucx");
    set_variable(cluster.ranks[1], "OMPI_MCA_pml", "ob1");
    EXPECT_EQ(only_finding(cluster, "OMPI_MCA_pml").bad_nodes, Names{});
}

TEST(Alike, OtherVariablesThatDifferGetAWarning) {
    for (const char* name : {"CUDA_DEVICE_ORDER", "NCCL_DEBUG_SUBSYS", "LD_PRELOAD", "FI_PROVIDER"}) {
        Cluster cluster = good_cluster();
        set_variable(cluster.ranks[1], name, "x");
        EXPECT_EQ(only_finding(cluster, name).severity, Severity::Warn);
    }
}

TEST(Alike, VariablesOfASingleRankMayDiffer) {
    Cluster cluster = good_cluster();
    for (RankFacts& rank : cluster.ranks) {
        for (const char* name : {"CUDA_VISIBLE_DEVICES", "SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"}) {
            set_variable(rank, name, std::to_string(rank.rank));
        }
        set_variable(rank, "UCX_NET_DEVICES", rank.rank % 2 ? "mlx5_0:1" : "mlx5_1:1");
    }
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(Alike, ManyValuesAreNotAllListed) {
    Cluster cluster = good_cluster(8, 2);
    for (RankFacts& rank : cluster.ranks) set_variable(rank, "NCCL_BUFFSIZE", std::to_string(rank.rank));
    expect_says(only_finding(cluster, "NCCL_BUFFSIZE"), {"; and 12 more"});
}

TEST(Alike, ProgramsThatDifferFail) {
    const std::vector<std::pair<const char*, std::string RankFacts::*>> parts = {
        {"executable", &RankFacts::executable_hash},
        {"Argosy's version", &RankFacts::argosy_version},
        {"MPI library", &RankFacts::mpi_library},
        {"CUDA version", &RankFacts::cuda_version},
        {"NCCL version", &RankFacts::nccl_version}};
    for (const auto& [check, part] : parts) {
        Cluster cluster = good_cluster(3, 2);
        for (const int rank : {2, 3}) cluster.ranks[rank].*part = "another";
        const Finding finding = only_finding(cluster, check);
        EXPECT_EQ(finding.severity, Severity::Fail);
        EXPECT_EQ(finding.bad_nodes, Names{"n1"});
        expect_says(finding, {"another on ranks 2-3 on n1"});
    }
}

/// The ranks of two nodes, each with a GPU of its own.
Cluster cluster_with_gpus() {
    Cluster cluster = good_cluster(2, 2);
    for (RankFacts& rank : cluster.ranks)
        rank.visible_gpus = VisibleGpus{2, pci_address(good_gpu(rank.rank % 2).bus_id), rank.node};
    return cluster;
}

TEST(VisibleGpus, OneForEachRankIsWell) {
    Cluster cluster = cluster_with_gpus();
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    EXPECT_FALSE(reason_not_to_measure(cluster));
    for (RankFacts& rank : cluster.ranks) {  // a launcher that shows each rank its own
        rank.visible_gpus->count = 1;
        set_variable(rank, "CUDA_VISIBLE_DEVICES", std::to_string(rank.rank % 2));
    }
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(VisibleGpus, AnErrorOfCudaMarksTheNode) {
    Cluster cluster = cluster_with_gpus();
    cluster.ranks[3].visible_gpus->problem = "cudaSetDevice failed";
    const Finding finding = only_finding(cluster, kCheckNames.visible_gpus);
    expect_says(finding, {"GPU 0001:3b:00.0: cudaSetDevice failed", "leave the node out"});
    EXPECT_EQ(finding.bad_nodes, Names{"n1"});
    EXPECT_TRUE(reason_not_to_measure(cluster));
    // On all nodes it is no node's fault, such as a driver that is too old.
    for (RankFacts& rank : cluster.ranks) rank.visible_gpus = VisibleGpus{.problem = "the driver is too old"};
    EXPECT_EQ(only_finding(cluster, kCheckNames.visible_gpus).bad_nodes, Names{});
    EXPECT_TRUE(reason_not_to_measure(cluster));
}

TEST(VisibleGpus, AnErrorOfTheOnlyNodeMarksIt) {
    Cluster cluster = good_cluster(1, 1);
    cluster.ranks[0].visible_gpus = VisibleGpus{.problem = "cudaGetDeviceCount failed"};
    EXPECT_EQ(only_finding(cluster, kCheckNames.visible_gpus).bad_nodes, Names{"n0"});
}

TEST(VisibleGpus, CudaMustShowWhatNvidiaSmiListed) {
    Cluster cluster = cluster_with_gpus();
    cluster.ranks[2].visible_gpus->count = 1;  // the rank that asked nvidia-smi
    Finding finding = only_finding(cluster, kCheckNames.visible_gpus);
    expect_says(finding, {"CUDA sees 1 GPUs, but nvidia-smi lists 2"});
    EXPECT_EQ(finding.bad_nodes, Names{"n1"});
    set_variable(cluster.ranks[2], "CUDA_VISIBLE_DEVICES", "1");
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    cluster.ranks[2].visible_gpus = VisibleGpus{};
    finding = only_finding(cluster, kCheckNames.visible_gpus);
    expect_says(finding, {"CUDA sees no GPU, but nvidia-smi lists some"});
    EXPECT_EQ(finding.bad_nodes, Names{"n1"});
}

TEST(VisibleGpus, AVariableThatHidesThemMarksNoNode) {
    for (const char* value : {"", "-1", "NoDevFiles"}) {
        Cluster cluster = cluster_with_gpus();
        for (RankFacts& rank : cluster.ranks) {
            rank.visible_gpus = VisibleGpus{};
            set_variable(rank, "CUDA_VISIBLE_DEVICES", value);
        }
        const Finding finding = only_finding(cluster, kCheckNames.visible_gpus);
        expect_says(finding, {"CUDA_VISIBLE_DEVICES hides all GPUs", "ARGOSY_DEVICE=cpu"});
        EXPECT_EQ(finding.severity, Severity::Fail);
        EXPECT_EQ(finding.bad_nodes, Names{});
    }
}

TEST(VisibleGpus, MachinesWithoutGpusAreWellUnlessTheJobRequestedSome) {
    Cluster cluster = good_cluster(2, 2);
    for (NodeFacts& node : cluster.nodes) node.gpus.clear();
    for (RankFacts& rank : cluster.ranks) rank.visible_gpus = VisibleGpus{};
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    EXPECT_FALSE(reason_not_to_measure(cluster));
    for (RankFacts& rank : cluster.ranks) rank.visible_gpus->requested = "SLURM_JOB_GPUS=0,1";
    expect_says(only_finding(cluster, kCheckNames.visible_gpus),
                {"the job requested some: SLURM_JOB_GPUS=0,1"});
}

TEST(VisibleGpus, RanksThatShareOneAreTheNodesFaultOnlyIfOtherNodesHaveEnough) {
    Cluster cluster = cluster_with_gpus();
    cluster.ranks[3].visible_gpus->own = cluster.ranks[2].visible_gpus->own;
    Finding finding = only_finding(cluster, kCheckNames.ranks_per_gpu);
    EXPECT_EQ(finding.severity, Severity::Fail);
    expect_says(finding, {"2 ranks for 1 on n1"});
    EXPECT_EQ(finding.bad_nodes, Names{"n1"});
    EXPECT_TRUE(reason_not_to_measure(cluster));

    cluster.ranks[1].visible_gpus->own = cluster.ranks[0].visible_gpus->own;
    finding = only_finding(cluster, kCheckNames.ranks_per_gpu);
    expect_says(finding, {"start as many ranks on a node as it has GPUs"});
    EXPECT_EQ(finding.bad_nodes, Names{});
    EXPECT_FALSE(reason_not_to_measure(cluster)) << "choose_backend() refuses it";
    cluster.nodes[0].gpus[0].used_mebibytes = 70000;
    EXPECT_TRUE(reason_not_to_measure(cluster));
}

TEST(VisibleGpus, BuildsWithAndWithoutCudaCannotMeasureTogether) {
    Cluster cluster = good_cluster(2, 2);
    cluster.ranks[1].cuda_version.clear();
    EXPECT_TRUE(reason_not_to_measure(cluster));
}

}  // namespace
}  // namespace argosy::preflight
