#include "gpu/hold.h"

namespace argosy::cuda {

int num_multiprocessors() { return 3; }

HeldMultiprocessors::HeldMultiprocessors(int number) : flags_((number + 1) * sizeof(uint32_t)) {}
HeldMultiprocessors::~HeldMultiprocessors() = default;

}  // namespace argosy::cuda
