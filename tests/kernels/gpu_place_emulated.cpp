#include <new>

#include "kernels/gpu_place.h"
#include "support/emulated_cuda.h"

namespace argosy::kernels {

bool has_gpu() { return true; }

void* allocate_visible(size_t bytes) { return ::operator new(bytes); }
void free_visible(void* memory) { ::operator delete(memory); }

void set_order(Threads threads, uint64_t block_seed) {
    using testing::Order;
    testing::emulated_cuda().threads = threads == Threads::Forwards ? Order::Forwards : Order::Backwards;
    testing::emulated_cuda().block_seed = block_seed;
}
void set_multiprocessors(int number) { testing::emulated_cuda().num_multiprocessors = number; }
void reset_place() { testing::emulated_cuda() = testing::EmulatedCuda(); }

}  // namespace argosy::kernels
