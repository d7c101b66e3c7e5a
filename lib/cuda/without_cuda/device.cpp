#include "cuda/device.h"

#include "cuda/without_cuda/absent.h"

namespace argosy::cuda {

int device_count() { return 0; }
void set_device(int /*number*/) { absent(); }
int current_device() { absent(); }
Device describe_device(int /*number*/) { absent(); }
size_t free_memory_bytes() { absent(); }
int runtime_version() { return 0; }
int driver_version() { return 0; }

}  // namespace argosy::cuda
