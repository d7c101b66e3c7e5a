// The peak of this processor: the rate of loops of multiply-add instructions that read and write registers
// only. No program that multiplies with these instructions is faster, so the share of the peak says how much
// a step leaves on the table, on every kind of processor.
#pragma once

#include <vector>

namespace argosy::speed {

struct Peak {
    const char* instructions;  // their name in the processor's manual
    bool for_fp32;             // else for bf16 only
    double gflops;             // of all threads together
};

/// The peak of each instruction set of which a kernel table is available (kernels/table.h). `num_threads`
/// threads run the same loop at the same time, `seconds` for each instruction set. The fastest of many short
/// intervals of each thread counts: other programs on the machine slow the others down.
std::vector<Peak> measure_peaks(int num_threads, double seconds);

}  // namespace argosy::speed
