// Finds the instruction sets that this processor supports, and chooses the table of the best of them.
#include "kernels/table.h"

#ifdef ARGOSY_KERNELS_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"

namespace argosy::kernels {

namespace portable {
extern const Table kTable;
}
#ifdef ARGOSY_KERNELS_X86
namespace avx2 {
extern const Table kTable;
}
namespace avx512 {
extern const Table kTable;
}
namespace avx512_bf16 {
extern const Table kTable;
}
namespace amx {
extern const Table kTable;
}

namespace {

/// A bit of CPUID leaf 7: subleaf 0 describes AMX, subleaf 1 describes AVX512_BF16.
bool leaf7_bit(unsigned subleaf, char register_name, int bit) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, subleaf, &a, &b, &c, &d) == 0) return false;
    return ((register_name == 'a' ? a : d) >> bit & 1) != 0;
}

/// Requests permission to use AMX tiles. Linux 5.16 and newer permits them only to a process that asks; older
/// versions refuse.
bool request_tiles() {
    constexpr int kArchReqXcompPerm = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

/// AVX2 with FMA.
bool processor_has_avx2() { return __builtin_cpu_supports("x86-64-v3") != 0; }

/// AVX-512 with F, BW, CD, DQ and VL.
bool processor_has_avx512() { return __builtin_cpu_supports("x86-64-v4") != 0; }

bool processor_has_avx512_bf16() { return processor_has_avx512() && leaf7_bit(1, 'a', 5); }

/// Whether tiles can be configured. Some virtual machines announce AMX without a palette, and its
/// instructions then end the process.
bool has_palette() {
    constexpr unsigned kTileInformation = 0x1D;
    unsigned largest_palette = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(kTileInformation, 0, &largest_palette, &b, &c, &d) != 0 && largest_palette >= 1;
}

/// AVX512_BF16, and AMX tiles of bf16.
bool processor_has_amx() {
    constexpr int kAmxBf16 = 22, kAmxTile = 24;
    return processor_has_avx512_bf16() && leaf7_bit(0, 'd', kAmxBf16) && leaf7_bit(0, 'd', kAmxTile) &&
           has_palette() && request_tiles();
}

/// Whether products of pairs of bf16 are slower than those of floats. AMD's processors start as many of
/// either at a time, so that pairs are twice as fast. Intel's start one pair instruction for four of floats:
/// products of a Xeon (model 207) reached 81 GFLOP/s in pairs and 146 in floats.
bool processor_has_slow_pairs() { return __builtin_cpu_is("intel") != 0; }

void add_tables_of_instruction_sets(std::vector<const Table*>& found) {
    if (processor_has_avx2()) found.push_back(&avx2::kTable);
    if (processor_has_avx512()) found.push_back(&avx512::kTable);
    if (processor_has_avx512_bf16())
        found.insert(processor_has_slow_pairs() ? found.end() - 1 : found.end(), &avx512_bf16::kTable);
    if (!processor_has_amx()) return;
    if (multiply_alike(amx::kTable, avx512_bf16::kTable)) {
        found.push_back(&amx::kTable);
    } else {
        spdlog::warn(
            "the AMX kernels multiply wrongly on this processor, so others are used; please report its model "
            "(lscpu)");
    }
}

}  // namespace
#else
namespace {

void add_tables_of_instruction_sets(std::vector<const Table*>&) {}

}  // namespace
#endif

namespace {

std::vector<const Table*> find_available() {
    std::vector<const Table*> found = {&portable::kTable};
    add_tables_of_instruction_sets(found);
    return found;
}

const Table& choose() {
    const std::string wanted = Environment::read().cpu_kernels;
    std::string names;
    for (const Table* one : available_tables()) {
        if (wanted == one->name) return *one;
        names += names.empty() ? one->name : std::string(", ") + one->name;
    }
    if (wanted.empty()) return *available_tables().back();
    throw UserError("ARGOSY_CPU_KERNELS is {}, which this processor does not support; it supports {}", wanted,
                    names);
}

}  // namespace

bool multiply_alike(const Table& a, const Table& b) {
    // More than a tile in each dim, and no whole tiles. Small integers: all products and sums are exact.
    constexpr int64_t kRows = 45, kColumns = 83, kTerms = 70;
    const auto integers = [](int64_t count, int64_t seed) {
        constexpr uint16_t kIntegers[] = {0xC040, 0xC000, 0xBF80, 0, 0x3F80, 0x4000, 0x4040};  // -3 to 3
        std::vector<BFloat16> made;
        for (int64_t i = 0; i < count; ++i) made.push_back({kIntegers[(i * i + seed * i) % 7]});
        return made;
    };
    const std::vector<BFloat16> left = integers(kRows * kTerms, 3), right = integers(kTerms * kColumns, 5);
    const Product<BFloat16> product{{left.data(), kTerms, 1}, {right.data(), 1, kColumns}, kTerms};
    const auto multiply = [&](const Table& table) {
        std::vector<float> c(kRows * kColumns);
        table.bf16.matmul_to_float({.products = &product,
                                    .num_products = 1,
                                    .row_begin = 0,
                                    .row_end = kRows,
                                    .column_begin = 0,
                                    .column_end = kColumns,
                                    .c = c.data(),
                                    .c_stride = kColumns});
        return c;
    };
    return multiply(a) == multiply(b);
}

std::span<const Table* const> available_tables() {
    static const std::vector<const Table*> available = find_available();
    return available;
}

const Table& table() {
    static const Table& chosen = choose();
    return chosen;
}

}  // namespace argosy::kernels
