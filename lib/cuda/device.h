// The GPUs that this process sees. What wraps CUDA is in real/; a build without it takes none/, where there
// is no device and everything else throws UserError. CUDA's headers are included in real/ alone.
#pragma once

#include <cstddef>
#include <string>

namespace argosy::cuda {

/// Devices that CUDA_VISIBLE_DEVICES and the job leave to this process; 0 on a machine without a driver.
/// Throws RunError for a driver that is older than CUDA here.
int device_count();

/// What this thread works on from now on.
void set_device(int number);
int current_device();

struct Device {
    int number;  // among those that this process sees
    std::string name;
    std::string pci_bus_id;  // "0000:3b:00.0": which one it is on its node
    size_t memory_bytes;
    int capability;  // 90 for 9.0
};
Device describe_device(int number);

/// Of this thread's device.
size_t free_memory_bytes();

/// As CUDA counts, 13000 for 13.0; 0 where there is none. The driver's is the newest CUDA that it can run.
int runtime_version();
int driver_version();

/// "13.0".
std::string version_text(int version);

}  // namespace argosy::cuda
