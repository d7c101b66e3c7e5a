// Refers to every function of lib/platform/gpu, so that the linker must find all of them.
#include "gpu/attention.h"
#include "gpu/cudnn.h"
#include "gpu/device.h"
#include "gpu/graph.h"

using namespace argosy;

int main(int argc, char**) {
    if (argc < 100) return 0;  // only linked, never run
    const at::Tensor x;
    const auto forward = gpu::attention(x, x, x);
    gpu::attention_backward(x, x, x, x, forward);
    gpu::masked_attention_backward(x, x, x, x, gpu::masked_attention(x, x, x, {}), {});
    gpu::prefer_cudnn(true);
    gpu::Graph([] { gpu::synchronize(); }).replay();
    gpu::reset_peak_memory();
    return gpu::use(0).index() + gpu::holds(x) + gpu::supports_attention(x) +
           static_cast<int>(gpu::memory()->num_retries) + (gpu::current_stream() != nullptr);
}
