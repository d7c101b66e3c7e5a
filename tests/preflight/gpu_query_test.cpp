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

constexpr const char* kTwoGpus = R"(case $1 in
--query-gpu=*)
    echo '00000000:1B:00.0, NVIDIA H200, 580.65.06, 345, 1980, 0x0000000000000001, 0, 16, 16, 1, 5, 4, 143771, Default, Disabled, Enabled, GPU-1b0ac5f4, N/A, N/A, N/A, N/A, 0'
    echo '00000000:43:00.0, NVIDIA H200, 580.65.06, 345, 1980, 0x0000000000000048, [N/A], 8, 16, 5, 5, 70000, 143771, Exclusive_Process, [N/A], Disabled, GPU-43, Completed, Success, 2a6c7f10-1111-2222-3333-444444444444, 32766, 17' ;;
--query-remapped-rows=*)
    echo '00000000:43:00.0, Yes, 0'
    echo '00000000:1B:00.0, No, 1' ;;
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
    EXPECT_EQ(gpu.sm_megahertz, 345);
    EXPECT_EQ(gpu.max_sm_megahertz, 1980);
    EXPECT_EQ(gpu.throttle_reasons, 0x48);
    EXPECT_EQ(gpu.uncorrected_errors, std::nullopt);
    EXPECT_EQ(gpu.pcie_lanes, 8);
    EXPECT_EQ(gpu.max_pcie_lanes, 16);
    EXPECT_EQ(gpu.pcie_generation, 5);
    EXPECT_EQ(gpu.max_pcie_generation, 5);
    EXPECT_EQ(gpu.used_mebibytes, 70000);
    EXPECT_EQ(gpu.total_mebibytes, 143771);
    EXPECT_EQ(gpu.compute_mode, "Exclusive_Process");
    EXPECT_EQ(gpu.mig_mode, "");
    EXPECT_EQ(gpu.persistence, "Disabled");
    EXPECT_EQ(gpu.uuid, "GPU-43");
    EXPECT_EQ(gpu.fabric_state, "Completed");
    EXPECT_EQ(gpu.fabric_status, "Success");
    EXPECT_EQ(gpu.fabric_domain, "2a6c7f10-1111-2222-3333-444444444444");
    EXPECT_EQ(gpu.fabric_clique, "32766");
    EXPECT_EQ(gpu.corrected_errors, 17);
    EXPECT_EQ(answer.gpus[0].fabric_state, "");
    EXPECT_EQ(gpu.remapping_pending, true);
    EXPECT_EQ(gpu.remapping_failed, false);
    EXPECT_EQ(answer.gpus[0].uncorrected_errors, 0);
    EXPECT_EQ(answer.gpus[0].mig_mode, "Disabled");
    EXPECT_EQ(answer.gpus[0].remapping_pending, false);
    EXPECT_EQ(answer.gpus[0].remapping_failed, true);
}

TEST(GpuQuery, ReadsReplaysFromTheFullReport) {
    const Tree tree;
    const std::string report = R"(case $* in -q) cat <<END ;; esac
==============NVSMI LOG==============
Attached GPUs                             : 2
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA H200
        Replays Since Reset               : 0
GPU 00000000:43:00.0
    GPU UUID                              : GPU-43
    PCI
        GPU Link Info
            Link Width
        Replays Since Reset               : 12
        Replay Number Rollovers           : 3
GPU 00000000:5D:00.0
        Replays Since Reset               : 4
END
)";
    tree.put_nvidia_smi(kTwoGpus + report);
    EXPECT_EQ(look_at_gpus(tree.sources()).gpus.at(1).pcie_replays, 12);
    EXPECT_EQ(look_at_gpus(tree.sources()).gpus.at(0).pcie_replays, 0);
    EXPECT_EQ(query_gpus(tree.sources()).gpus.at(1).pcie_replays, std::nullopt);
    tree.put_nvidia_smi(kTwoGpus +
                        std::string("[ $1 != -q ] || echo 'GPU 00000000:43:00.0'; echo Replays Since Reset"));
    EXPECT_EQ(look_at_gpus(tree.sources()).gpus.at(1).pcie_replays, std::nullopt);
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
        R"(for field in clocks_throttle_reasons.active mig.mode.current fabric.state fabric.status fabric.clusterUuid \
    fabric.cliqueId; do
    case $1 in *$field*) echo "Field \"$field\" is not a valid field to query."; exit 2 ;; esac
done
case $1 in
--query-gpu=*clocks_event_reasons.active*persistence_mode,uuid,ecc.errors.corrected.volatile.total)
    echo '0:1B:00.0, NVIDIA H200, 610.1, 345, 1980, 0x8, 0, 16, 16, 1, 5, 4, 143771, Default, Enabled, GPU-1b, 0' ;;
*) exit 3 ;;
esac
)");
    const GpuAnswer answer = query_gpus(tree.sources());
    EXPECT_EQ(answer.problem, "");
    ASSERT_EQ(answer.gpus.size(), 1u);
    EXPECT_EQ(answer.gpus[0].throttle_reasons, 0x8);
    EXPECT_EQ(answer.gpus[0].persistence, "Enabled");
    EXPECT_EQ(answer.gpus[0].remapping_failed, std::nullopt);  // GPUs before Ampere remap none
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
    EXPECT_EQ(answer.problem, "");
    EXPECT_TRUE(answer.corrupt_info_rom);
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
    tree.put_nvidia_smi("echo ', , , , , , , , , , , , , , , , , , , , , '\n");
    EXPECT_TRUE(query_gpus(tree.sources()).gpus.empty());
    tree.put_nvidia_smi("echo ':, , , x, 1e9, 0xg, -, , , 99999999999999999999, , , , , , , , , , , , '\n");
    ASSERT_EQ(query_gpus(tree.sources()).gpus.size(), 1u);
    EXPECT_EQ(query_gpus(tree.sources()).gpus[0].pcie_lanes, std::nullopt);
    EXPECT_EQ(query_gpus(tree.sources()).gpus[0].max_pcie_generation, std::nullopt);
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

/// The full report would end in time if it had all of it.
TEST(GpuQuery, HasOneTimeLimitForAllCalls) {
    const Tree tree;
    tree.put_nvidia_smi("echo $1 >>" + (tree.root() / "calls").string() +
                        "\ncase $1 in -q|--query-remapped*) sleep 2 ;; esac\n"
                        "[ $1 != -q ] || echo 'GPU 00000000:1B:00.0\n Replays Since Reset : 7'\n" +
                        kTwoGpus);
    EXPECT_EQ(look_at_gpus(tree.sources()).gpus.at(0).pcie_replays, 7);
    tree.put("calls", "");
    const GpuAnswer answer = look_at_gpus(tree.sources(3));
    EXPECT_EQ(answer.gpus.size(), 2u);
    EXPECT_EQ(answer.gpus.at(0).pcie_replays, std::nullopt);
    EXPECT_TRUE(answer.out_of_time);
    EXPECT_FALSE(answer.hung) << "it had only a second";
    EXPECT_EQ(read_file(tree.root() / "calls").find("nvlink"), std::string::npos);
}

TEST(GpuQuery, AsksNothingMoreAfterACallThatHung) {
    const Tree tree;
    for (const auto& [hangs, num_gpus] :
         {std::pair{"--query-gpu*", 0}, {"--query-remapped*", 2}, {"-q", 2}}) {
        tree.put_nvidia_smi("echo $1 >>" + (tree.root() / "calls").string() + "\ncase $1 in " + hangs +
                            ") sleep 600 ;; esac\n" + kTwoGpus);
        tree.put("calls", "");
        const GpuAnswer answer = look_at_gpus(tree.sources(30, 1));
        EXPECT_TRUE(answer.hung) << hangs;
        EXPECT_FALSE(answer.out_of_time) << hangs;
        EXPECT_EQ(answer.gpus.size(), num_gpus) << hangs;
        EXPECT_EQ(read_file(tree.root() / "calls").find("nvlink"), std::string::npos) << hangs;
    }
}

/// What a call has printed before it fails or is cut short may end anywhere, even within a number.
TEST(GpuQuery, UsesNoReportThatIsIncomplete) {
    const Tree tree;
    const auto look = [&](const std::string& end) {
        tree.put_nvidia_smi(kTwoGpus +
                            ("case $1 in -q) echo 'GPU 00000000:1B:00.0\n Replays Since Reset : 7'; " + end +
                             " ;; nvlink) echo 'GPU 0: (UUID: GPU-1b0ac5f4)\n Link 0: 26 GB/s'; " + end +
                             " ;; esac\n"));
        return look_at_gpus(tree.sources(2)).gpus.at(0);
    };
    for (const char* end : {"exit 9", "kill -SEGV $$", "sleep 600"}) {
        EXPECT_EQ(look(end).pcie_replays, std::nullopt) << end;
        EXPECT_EQ(look(end).active_nvlinks, std::nullopt) << end;
    }
    for (const char* end : {"exit 0", "exit 14"}) {
        EXPECT_EQ(look(end).pcie_replays, 7) << end;
        EXPECT_EQ(look(end).active_nvlinks, 1) << end;
    }
}

}  // namespace
}  // namespace argosy::preflight
