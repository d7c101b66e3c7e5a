#include "kernels/gpu_table.h"

namespace argosy::kernels {

const GpuTable* gpu_table() { return nullptr; }

}  // namespace argosy::kernels
