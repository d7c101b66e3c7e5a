// The GPUs that this process sees. The folder with_cuda/ wraps CUDA and alone includes CUDA's headers. A
// build without CUDA uses without_cuda/, where counts and versions are 0 and all other functions throw
// UserError.
#pragma once

#include <cstddef>
#include <string>

namespace argosy::cuda {

/// Devices that CUDA_VISIBLE_DEVICES and the job leave to this process; 0 on a machine without a driver.
/// Throws RunError if the driver is too old for this program's CUDA.
int device_count();

/// Selects the device of this thread.
void set_device(int number);
int current_device();

struct Device {
    int number;  // among the devices that this process sees
    std::string name;
    std::string pci_bus_id;  // "0000:3b:00.0": identifies the device on its node
    size_t memory_bytes;
    int capability;  // 90 for 9.0
    int multiprocessors;
};
Device describe_device(int number);

/// Free memory of this thread's device.
size_t free_memory_bytes();

/// CUDA's version numbers, 13000 for 13.0: of the CUDA runtime in this program, and the newest that the
/// driver can run. 0 if there is none.
int runtime_version();
int driver_version();

/// "13.0".
inline std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Named ranges of this thread (NVTX), which a profiler such as Nsight Systems shows beside the GPU's work.

/// Whether a profiler that takes ranges was attached when the process started.
bool takes_ranges();
/// A range begins, within the ranges that are open. Without a profiler, does nothing.
void begin_range(const char* name);
/// The innermost range ends.
void end_range();

/// Throws RunError, which names `call` and has CUDA's own text, unless `status` is cudaSuccess. Only in
/// builds with CUDA.
void check(int status, const char* call);

}  // namespace argosy::cuda
