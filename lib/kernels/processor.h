// The instruction sets that this processor, and its operating system, let a program use. x86-64 only.
#pragma once

namespace argosy::kernels {

bool processor_has_avx2();         // with FMA and F16C
bool processor_has_avx512();       // F, BW, CD, DQ, VL
bool processor_has_avx512_bf16();  // the above and BF16
/// The above and AMX tiles of bf16. Asks Linux for permission to use tiles, which it grants to the whole
/// process.
bool processor_has_amx();

}  // namespace argosy::kernels
