#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cublas/matmul.h"
#include "cublas/with_cuda/product_plan.h"
#include "cuda/device.h"
#include "cuda/memory.h"

namespace argosy::cublas {
namespace {

constexpr size_t kWorkspaceAlignment = 256;  // bytes; cublasLtMatmul requires it

std::shared_ptr<std::byte> allocate_from_cuda(size_t bytes) {
    const auto memory = std::make_shared<cuda::DeviceMemory>(bytes);
    return {memory, memory->data()};
}

Handle make_handle() {
    if (cuda::device_count() == 0) {
        throw RunError(
            "matrix products with cuBLASLt need a GPU, and this process sees none: check `nvidia-smi`, "
            "CUDA_VISIBLE_DEVICES and the job's --gpus options");
    }
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "cublasLtCreate");
    return Handle(handle);
}

}  // namespace

int version() { return static_cast<int>(cublasLtGetVersion()); }

struct Multiplier::State {
    explicit State(const MultiplierOptions& given) : options(given), handle(make_handle()) {
        const cuda::Device device = cuda::describe_device(cuda::current_device());
        target = {device.capability, version()};
        if (!options.allocate) options.allocate = allocate_from_cuda;
        if (options.workspace_bytes == 0) return;
        size_t size = options.workspace_bytes + kWorkspaceAlignment;
        workspace_memory = options.allocate(size);
        void* begin = workspace_memory.get();
        std::align(kWorkspaceAlignment, options.workspace_bytes, begin, size);
        workspace = {static_cast<std::byte*>(begin), options.workspace_bytes};
    }

    /// The plan of the operands' problem. Throws NoAlgorithm.
    ProductPlan& plan_of(const Product& product, const Operands& operands);

    MultiplierOptions options;
    std::thread::id owner = std::this_thread::get_id();
    Handle handle;
    Target target;
    std::shared_ptr<std::byte> workspace_memory;
    std::span<std::byte> workspace;                         // part of `workspace_memory`, aligned
    std::map<Problem, std::unique_ptr<ProductPlan>> plans;  // of the problems that run() has seen
    std::set<Problem> without_algorithm;
};

ProductPlan& Multiplier::State::plan_of(const Product& product, const Operands& operands) {
    if (const auto found = plans.find(operands.problem); found != plans.end()) return *found->second;
    check_target(product, operands.problem, target);
    auto plan = std::make_unique<ProductPlan>(operands);
    const cublasStatus_t status = plan->find_algorithm(handle.get(), options.workspace_bytes, options.choice);
    if (status != CUBLAS_STATUS_SUCCESS) {
        throw NoAlgorithm("cuBLASLt {} has no algorithm for {}: {}", version_text(), describe(product),
                          explain(status));
    }
    return *plans.emplace(operands.problem, std::move(plan)).first->second;
}

Multiplier::Multiplier(const MultiplierOptions& options) : state_(std::make_unique<State>(options)) {}
Multiplier::~Multiplier() = default;
Multiplier::Multiplier(Multiplier&&) noexcept = default;
Multiplier& Multiplier::operator=(Multiplier&&) noexcept = default;

void Multiplier::run(const Product& product, CUstream_st* stream) {
    ARGOSY_CHECK(std::this_thread::get_id() == state_->owner,
                 "a Multiplier is called from a thread that does not own it");
    const Operands operands = operands_of(product);
    const Problem& problem = operands.problem;
    if (problem.m == 0 || problem.n == 0) return;
    if (problem.k == 0) {
        write_empty_sum(operands, cuda::StreamView(stream));
        return;
    }
    ProductPlan& plan = state_->plan_of(product, operands);
    const cublasStatus_t status = plan.launch(state_->handle.get(), operands, state_->workspace, stream);
    if (status != CUBLAS_STATUS_SUCCESS) {
        throw RunError("cublasLtMatmul failed: {}; of {}", explain(status), describe(product));
    }
}

bool Multiplier::try_run(const Product& product, CUstream_st* stream) {
    const Problem problem = operands_of(product).problem;
    if (state_->without_algorithm.contains(problem)) return false;
    try {
        run(product, stream);
    } catch (const NoAlgorithm& error) {
        state_->without_algorithm.insert(problem);
        spdlog::warn("{}; such products are computed in another way, which is slower", error.what());
        return false;
    }
    return true;
}

Target Multiplier::target() const { return state_->target; }

}  // namespace argosy::cublas
