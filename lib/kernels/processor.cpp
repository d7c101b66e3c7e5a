#include "kernels/processor.h"

#ifdef ARGOSY_KERNELS_X86

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace argosy::kernels {
namespace {

/// A bit of CPUID leaf 7: subleaf 0 describes AMX, subleaf 1 describes AVX512_BF16.
bool leaf7_bit(unsigned subleaf, char register_name, int bit) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, subleaf, &a, &b, &c, &d) == 0) return false;
    return ((register_name == 'a' ? a : d) >> bit & 1) != 0;
}

/// Asks Linux for the state of AMX tiles, which it (5.16 and newer) gives only to a process that asks for it.
bool request_tiles() {
    constexpr int kArchReqXcompPerm = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

}  // namespace

bool processor_has_avx2() { return __builtin_cpu_supports("x86-64-v3") != 0; }

bool processor_has_avx512() { return __builtin_cpu_supports("x86-64-v4") != 0; }

bool processor_has_avx512_bf16() { return processor_has_avx512() && leaf7_bit(1, 'a', 5); }

bool processor_has_amx() {
    constexpr int kAmxBf16 = 22, kAmxTile = 24;
    return processor_has_avx512_bf16() && leaf7_bit(0, 'd', kAmxBf16) && leaf7_bit(0, 'd', kAmxTile) &&
           request_tiles();
}

}  // namespace argosy::kernels

#endif
