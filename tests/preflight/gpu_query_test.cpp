// nvidia-smi's answers, from scripts in its place.
#include "preflight/read_facts.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <random>

#include "base/clock.h"
#include "preflight/sources.h"
#include "preflight/tree.h"

namespace argosy::preflight {
namespace {

GpuAnswer query_gpus(const Sources& sources) { return look_at_gpus(sources, Dcgm::NotAsked); }

constexpr const char* kTwoGpus = R"(case $1 in
--query-gpu=*)
    echo '00000000:1B:00.0, NVIDIA H200, 580.65.06, 0x0000000000000001, 0, 16, 16, 1, 5, 4, 143771, Disabled, GPU-1b0ac5f4'
    echo '00000000:43:00.0, NVIDIA H200, 580.65.06, 0x0000000000000048, [N/A], 8, 16, 5, 5, 70000, 143771, [N/A], GPU-43' ;;
esac
)";

TEST(GpuQuery, ReadsEveryField) {
    const Tree tree;
    tree.put_nvidia_smi(kTwoGpus);
    const GpuAnswer answer = query_gpus(tree.sources());
    EXPECT_TRUE(answer.has_nvidia_smi);
    EXPECT_EQ(answer.problem, "");
    EXPECT_FALSE(answer.hung);
    ASSERT_EQ(answer.gpus.size(), 2u);
    const Gpu& gpu = answer.gpus[1];
    EXPECT_EQ(gpu.bus_id, "00000000:43:00.0");
    EXPECT_EQ(gpu.name, "NVIDIA H200");
    EXPECT_EQ(gpu.driver, "580.65.06");
    EXPECT_EQ(gpu.throttle_reasons, 0x48);
    EXPECT_EQ(gpu.uncorrected_errors, std::nullopt);
    EXPECT_EQ(gpu.pcie_lanes, 8);
    EXPECT_EQ(gpu.most_pcie_lanes, 16);
    EXPECT_EQ(gpu.pcie_generation, 5);
    EXPECT_EQ(gpu.most_pcie_generation, 5);
    EXPECT_EQ(gpu.used_mebibytes, 70000);
    EXPECT_EQ(gpu.total_mebibytes, 143771);
    EXPECT_EQ(gpu.mig_mode, "");
    EXPECT_EQ(gpu.uuid, "GPU-43");
    EXPECT_EQ(answer.gpus[0].uncorrected_errors, 0);
    EXPECT_EQ(answer.gpus[0].mig_mode, "Disabled");
}

TEST(GpuQuery, FindsNothingWithoutTheProgram) {
    const Tree tree;
    const GpuAnswer answer = query_gpus(tree.sources());
    EXPECT_TRUE(answer.gpus.empty());
    EXPECT_FALSE(answer.has_nvidia_smi);
    EXPECT_EQ(answer.problem, "");
    EXPECT_FALSE(answer.hung);
}

TEST(GpuQuery, AcceptsNewNamesAndOmitsUnknownOnes) {
    const Tree tree;
    tree.put_nvidia_smi(
        R"(for field in clocks_throttle_reasons.active mig.mode.current; do
    case $1 in *$field*) echo "Field \"$field\" is not a valid field to query."; exit 2 ;; esac
done
case $1 in
--query-gpu=*clocks_event_reasons.active*memory.total,uuid)
    echo '0:1B:00.0, NVIDIA H200, 610.1, 0x8, 0, 16, 16, 1, 5, 4, 143771, GPU-1b' ;;
*) exit 3 ;;
esac
)");
    const GpuAnswer answer = query_gpus(tree.sources());
    EXPECT_EQ(answer.problem, "");
    ASSERT_EQ(answer.gpus.size(), 1u);
    EXPECT_EQ(answer.gpus[0].throttle_reasons, 0x8);
    EXPECT_EQ(answer.gpus[0].uuid, "GPU-1b");
}

TEST(GpuQuery, ReportsTheErrorOfNvidiaSmi) {
    const Tree tree;
    tree.put_nvidia_smi(
        "echo 'NVIDIA-SMI has failed because it could not communicate with the driver.'\necho more\n"
        "exit 9\n");
    EXPECT_EQ(query_gpus(tree.sources()).problem,
              "it exits with 9: NVIDIA-SMI has failed because it could not communicate with the driver.");
    tree.put_nvidia_smi("echo 'Field \"x\" is not a valid field to query.' >&2; exit 2\n");
    EXPECT_EQ(query_gpus(tree.sources()).problem,
              "it exits with 2: Field \"x\" is not a valid field to query.");
    tree.put_nvidia_smi("kill -SEGV $$\n");
    EXPECT_EQ(query_gpus(tree.sources()).problem, "it exits with -1: ");
    tree.put_nvidia_smi("echo 'No devices were found'\n");
    EXPECT_EQ(query_gpus(tree.sources()).problem, "it says: No devices were found");
}

TEST(GpuQuery, ReadsTheRowsBesideACorruptInfoRom) {
    const Tree tree;
    tree.put_nvidia_smi(std::string(kTwoGpus) +
                        "echo 'WARNING: infoROM is corrupted at gpu 00000000:43:00.0'\nexit 14\n");
    const GpuAnswer answer = query_gpus(tree.sources());
    EXPECT_EQ(answer.gpus.size(), 2u);
    EXPECT_EQ(answer.problem, "it exits with 14: WARNING: infoROM is corrupted at gpu 00000000:43:00.0");
}

/// A program that a signal ends may have printed half of a row.
TEST(GpuQuery, ReadsNoRowsOfAProgramThatCrashed) {
    const Tree tree;
    tree.put_nvidia_smi(std::string(kTwoGpus) + "kill -SEGV $$\n");
    const GpuAnswer answer = query_gpus(tree.sources());
    EXPECT_TRUE(answer.gpus.empty());
    EXPECT_EQ(answer.problem.find("it exits with -1: "), 0u) << answer.problem;
}

TEST(GpuQuery, KeepsTheGpusBesideALostOne) {
    const Tree tree;
    tree.put_nvidia_smi(std::string(kTwoGpus) +
                        "echo 'Unable to determine the device handle for GPU 0000:5D:00.0: GPU is lost.'\n");
    const GpuAnswer answer = query_gpus(tree.sources());
    EXPECT_EQ(answer.gpus.size(), 2u);
    EXPECT_NE(answer.problem.find("GPU is lost"), std::string::npos);
}

TEST(GpuQuery, SurvivesGarbage) {
    const Tree tree;
    std::mt19937_64 random;
    std::string garbage(3'000'000, '\0');
    for (char& byte : garbage) byte = static_cast<char>(random());
    tree.put("garbage", garbage);
    tree.put_nvidia_smi("cat " + (tree.root() / "garbage").string() + "\n");
    EXPECT_TRUE(query_gpus(tree.sources()).gpus.empty());
    EXPECT_NE(query_gpus(tree.sources()).problem, "");
    tree.put_nvidia_smi("echo ', , , , , , , , , , , , '\n");
    EXPECT_TRUE(query_gpus(tree.sources()).gpus.empty());
    tree.put_nvidia_smi("echo ':, , , 0xg, 1e9, -, , , 99999999999999999999, , , , '\n");
    ASSERT_EQ(query_gpus(tree.sources()).gpus.size(), 1u);
    EXPECT_EQ(query_gpus(tree.sources()).gpus[0].pcie_lanes, std::nullopt);
    EXPECT_EQ(query_gpus(tree.sources()).gpus[0].most_pcie_generation, std::nullopt);
    tree.put_nvidia_smi("exit 0\n");
    EXPECT_TRUE(query_gpus(tree.sources()).gpus.empty());
}

TEST(GpuQuery, StopsAQueryThatHangs) {
    const Tree tree;
    tree.put_nvidia_smi("sleep 600 & echo $! >" + (tree.root() / "child").string() + "\nwait\n");
    const double start = seconds_now();
    const GpuAnswer answer = query_gpus(tree.sources(30, 0.5));
    EXPECT_LT(seconds_now() - start, 5);
    EXPECT_TRUE(answer.hung);
    const int child = std::stoi(read_file(tree.root() / "child"));
    for (int look = 0; look < 1000 && ::kill(child, 0) == 0; ++look) ::usleep(1000);
    // What is killed may stay as a zombie where nobody waits for orphans.
    const std::string state = read_file("/proc/" + std::to_string(child) + "/stat");
    EXPECT_TRUE(state.empty() || state.find(") Z") != state.npos) << state;
}

}  // namespace
}  // namespace argosy::preflight
