// The gpu room in a build without CUDA: no tensor is on a GPU, and functions that need a GPU throw
// UserError.
#include "base/error.h"
#include "gpu/attention.h"
#include "gpu/device.h"
#include "gpu/graph.h"

namespace argosy::gpu {
namespace {

[[noreturn]] void absent() {
    throw UserError("this build has no CUDA: configure it with -DARGOSY_CUDA=ON (preset cuda)");
}

}  // namespace

c10::Device use(int /*number*/) { absent(); }
bool holds(const at::Tensor& /*x*/) { return false; }
void synchronize() {}
void free_cached_memory() {}

CUstream_st* current_stream() { absent(); }

std::optional<MemoryFigures> memory() { return std::nullopt; }
std::shared_ptr<std::byte> allocate(size_t /*num_bytes*/) { absent(); }
void reset_peak_memory() {}
std::optional<AllocationFailure> last_allocation_failure() { return std::nullopt; }

bool supports_attention(const at::Tensor& q) { return kernels_take(q.scalar_type(), q.size(-1)); }
Attention attention(const at::Tensor&, const at::Tensor&, const at::Tensor&) { absent(); }
AttentionGradient attention_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, const Attention&) {
    absent();
}
Attention masked_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const VisibleKeys&) {
    absent();
}
AttentionGradient masked_attention_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                            const at::Tensor&, const Attention&, const VisibleKeys&) {
    absent();
}

struct Graph::Recorded {};
Graph::Graph(const std::function<void()>& /*work*/, const Graph* /*shares_memory_of*/) { absent(); }
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
void Graph::replay() {}
uint64_t Graph::number() const { return 0; }

}  // namespace argosy::gpu
