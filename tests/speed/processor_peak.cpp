#include "processor_peak.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <thread>

#include "base/clock.h"
#include "kernels/table.h"

namespace argosy::speed {
namespace {

/// Runs `count` rounds of a loop. One round has `flops` FLOPs.
struct Loop {
    const char* table;  // that has the instructions, by its name
    const char* instructions;
    bool for_fp32;
    double flops;
    void (*run)(int64_t count);
};

#ifdef __x86_64__

// A round has one instruction for each sum. The sums do not depend on each other, and there are more of them
// than instructions under way: latency x instructions per cycle is 10 at most, and 20 for pairs of bf16 where
// a processor starts two of them per cycle. The operands are ones, so no sum leaves the normal numbers.

constexpr int kVectorSums = 12, kWideVectorSums = 24, kTileSums = 6;

__attribute__((target("avx2,fma"))) void run_avx2(int64_t count) {
    const float one = 1;
    asm volatile(
        "vbroadcastss %1, %%ymm15\n"
        ".irp sum, 0,1,2,3,4,5,6,7,8,9,10,11\n vxorps %%ymm\\sum, %%ymm\\sum, %%ymm\\sum\n .endr\n"
        "1:\n"
        ".irp sum, 0,1,2,3,4,5,6,7,8,9,10,11\n vfmadd231ps %%ymm15, %%ymm15, %%ymm\\sum\n .endr\n"
        "dec %0\n jnz 1b\n vzeroupper\n"
        : "+r"(count)
        : "m"(one)
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm15");
}

#define ARGOSY_WIDE_SUMS ".irp sum, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
#define ARGOSY_WIDE_LOOP(instruction)                     \
    "vpbroadcastd %1, %%zmm31\n" ARGOSY_WIDE_SUMS         \
    "vpxord %%zmm\\sum, %%zmm\\sum, %%zmm\\sum\n .endr\n" \
    "1:\n" ARGOSY_WIDE_SUMS instruction                   \
    " %%zmm31, %%zmm31, %%zmm\\sum\n .endr\n"             \
    "dec %0\n jnz 1b\n vzeroupper\n"
#define ARGOSY_WIDE_CLOBBERS                                                                                \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
        "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22",  \
        "xmm23", "xmm31"

__attribute__((target("avx512f"))) void run_avx512(int64_t count) {
    const float one = 1;
    asm volatile(ARGOSY_WIDE_LOOP("vfmadd231ps") : "+r"(count) : "m"(one) : ARGOSY_WIDE_CLOBBERS);
}

__attribute__((target("avx512f"))) void run_avx512_bf16(int64_t count) {
    const uint32_t ones = 0x3F803F80;
    asm volatile(ARGOSY_WIDE_LOOP("vdpbf16ps") : "+r"(count) : "m"(ones) : ARGOSY_WIDE_CLOBBERS);
}

/// Tiles of 16 rows of 64 bytes. The permission to use them was requested when their table was found.
void run_amx(int64_t count) {
    struct Shapes {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const shapes;
    asm volatile(
        "ldtilecfg %1\n"
        ".irp sum, 0,1,2,3,4,5,6,7\n tilezero %%tmm\\sum\n .endr\n"
        "1:\n"
        ".irp sum, 0,1,2,3,4,5\n tdpbf16ps %%tmm7, %%tmm6, %%tmm\\sum\n .endr\n"
        "dec %0\n jnz 1b\n tilerelease\n"
        : "+r"(count)
        : "m"(shapes)
        : "cc", "memory");
}

constexpr Loop kLoops[] = {
    {"avx2", "vfmadd231ps, 256 bits", true, kVectorSums * 8 * 2, run_avx2},
    {"avx512", "vfmadd231ps, 512 bits", true, kWideVectorSums * 16 * 2, run_avx512},
    {"avx512_bf16", "vdpbf16ps, 512 bits", false, kWideVectorSums * 32 * 2, run_avx512_bf16},
    {"amx", "tdpbf16ps", false, kTileSums * 16 * 16 * 32 * 2, run_amx}};

#else
constexpr std::array<Loop, 0> kLoops = {};  // no loop for other processors yet
#endif

/// The rate of this thread in its fastest interval.
double fastest_gflops(const Loop& loop, double seconds) {
    constexpr int64_t kRounds = 200'000;  // some milliseconds: shorter than a scheduler's time slice
    double fastest = 0;
    for (const double end = seconds_now() + seconds; seconds_now() < end;) {
        const double start = seconds_now();
        loop.run(kRounds);
        fastest = std::max(fastest, kRounds * loop.flops / (seconds_now() - start) / 1e9);
    }
    return fastest;
}

}  // namespace

std::vector<Peak> measure_peaks(int num_threads, double seconds) {
    std::vector<Peak> peaks;
    for (const Loop& loop : kLoops) {
        const auto has_instructions = [&](const kernels::Table* table) {
            return table->name == std::string(loop.table);
        };
        if (std::ranges::none_of(kernels::available_tables(), has_instructions)) continue;
        std::vector<double> gflops(num_threads);
        std::vector<std::thread> threads;
        for (double& own : gflops) threads.emplace_back([&] { own = fastest_gflops(loop, seconds); });
        for (std::thread& thread : threads) thread.join();
        double sum = 0;
        for (const double own : gflops) sum += own;
        peaks.push_back({loop.instructions, loop.for_fp32, sum});
    }
    return peaks;
}

}  // namespace argosy::speed
