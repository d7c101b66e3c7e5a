#include <algorithm>
#include <exception>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cublas/choices.h"
#include "cublas/matmul.h"
#include "cublas/with_cuda/product_plan.h"
#include "cuda/device.h"
#include "cuda/memory.h"

namespace argosy::cublas {
namespace {

/// The maximum number of algorithms to time, in the order of cuBLASLt's heuristic; how many of the fastest
/// have their neighbours timed, too; and how many to ask for if the first usable one is taken.
constexpr int kMaxCandidates = 32, kNumBest = 2, kFewCandidates = 8;

constexpr size_t kWorkspaceAlignment = 256;  // bytes; cublasLtMatmul requires it

std::shared_ptr<std::byte> allocate_from_cuda(size_t bytes) {
    const auto memory = std::make_shared<cuda::DeviceMemory>(bytes);
    return {memory, memory->data()};
}

struct NoAlgorithm : RunError {
    using RunError::RunError;
};

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

Origin origin_of(const cuda::Device& device) {
    std::string name = device.name;
    std::replace(name.begin(), name.end(), ' ', '-');
    return {version_text(), name};
}

}  // namespace

int version() { return static_cast<int>(cublasLtGetVersion()); }

struct Multiplier::State {
    /// A problem that run() has seen.
    struct Known {
        ProductPlan plan;
        Algorithm algorithm{};
        explicit Known(const Operands& operands) : plan(operands) {}
    };

    explicit State(const MultiplierOptions& given) : options(given), handle(make_handle()) {
        const cuda::Device device = cuda::describe_device(cuda::current_device());
        origin = origin_of(device);
        target = {device.capability, version()};
        if (!options.allocate) options.allocate = allocate_from_cuda;
        if (options.workspace_bytes == 0) return;
        size_t size = options.workspace_bytes + kWorkspaceAlignment;
        workspace_memory = options.allocate(size);
        void* begin = workspace_memory.get();
        std::align(kWorkspaceAlignment, options.workspace_bytes, begin, size);
        workspace = {static_cast<std::byte*>(begin), options.workspace_bytes};
    }

    /// Throws NoAlgorithm.
    Known& known(const Product& product, const Operands& operands, CUstream_st* stream);
    Algorithm choose(ProductPlan& plan, const Product& product, const Operands& operands,
                     CUstream_st* stream);
    Algorithm time(ProductPlan& plan, std::span<const Algorithm> candidates, const Operands& operands,
                   const cuda::StreamView& stream);

    MultiplierOptions options;
    std::thread::id owner = std::this_thread::get_id();
    Handle handle;
    Origin origin;
    Target target;
    std::shared_ptr<std::byte> workspace_memory;
    std::span<std::byte> workspace;  // part of `workspace_memory`, aligned
    std::unordered_map<Problem, Known, ProblemHash> problems;
    std::unordered_map<Problem, Algorithm, ProblemHash> remembered;
    std::unordered_set<Problem, ProblemHash> without_algorithm;
};

Multiplier::State::Known& Multiplier::State::known(const Product& product, const Operands& operands,
                                                   CUstream_st* stream) {
    if (const auto found = problems.find(operands.problem); found != problems.end()) return found->second;
    check_target(product, operands.problem, target);
    const auto added = problems.try_emplace(operands.problem, operands).first;
    try {
        added->second.algorithm = choose(added->second.plan, product, operands, stream);
    } catch (...) {
        problems.erase(added);
        throw;
    }
    return added->second;
}

Algorithm Multiplier::State::choose(ProductPlan& plan, const Product& product, const Operands& operands,
                                    CUstream_st* stream_handle) {
    if (const auto found = remembered.find(operands.problem); found != remembered.end()) {
        if (plan.supports(handle.get(), found->second, options.workspace_bytes)) return found->second;
        spdlog::warn("the algorithm that an earlier run chose does not work here; another one is used for {}",
                     describe(product));
    }
    const cuda::StreamView stream(stream_handle);
    const bool timed = options.search == Search::Timed && !stream.is_captured();
    std::vector<Algorithm> candidates;
    const cublasStatus_t status = plan.find_algorithms(handle.get(), options.workspace_bytes,
                                                       timed ? kMaxCandidates : kFewCandidates, candidates);
    if (status != CUBLAS_STATUS_SUCCESS) {
        throw NoAlgorithm("cuBLASLt {} has no algorithm for {}: {}", origin.version, describe(product),
                          explain(status));
    }
    return timed ? time(plan, candidates, operands, stream) : candidates[0];
}

Algorithm Multiplier::State::time(ProductPlan& plan, std::span<const Algorithm> candidates,
                                  const Operands& operands, const cuda::StreamView& stream) {
    const Problem& p = operands.problem;
    Operands trial = operands;
    std::shared_ptr<std::byte> scratch;
    if (p.addend == Addend::C) {
        const size_t bytes = span_of(p.m, p.n, p.stride_d) * size_bytes(p.result_type);
        try {
            scratch = options.allocate(bytes);
        } catch (const std::exception& error) {
            spdlog::warn("the algorithms of a matrix product were not timed, so it may be slow: {}",
                         error.what());
            return candidates[0];
        }
        cuda::set_to_zero(scratch.get(), bytes, stream);
        trial.c = trial.d = scratch.get();
    }
    const auto sorted = [&](std::span<const Algorithm> algorithms) {
        return by_time(plan, handle.get(), algorithms, trial, workspace, stream, options.search_seconds);
    };
    // 1. the heuristic's algorithms; if cuBLASLt refuses all, run() launches the first and throws its error
    std::vector<Algorithm> best = sorted(candidates);
    if (best.empty()) return candidates[0];
    if (best.size() > kNumBest) best.resize(kNumBest);
    // 2. the best of them and their neighbours
    const size_t count = best.size();
    for (size_t i = 0; i < count; ++i) {
        plan.add_neighbours(handle.get(), Algorithm(best[i]), options.workspace_bytes, best);
    }
    if (best.size() == count) return best[0];
    const std::vector<Algorithm> again = sorted(best);
    return again.empty() ? best[0] : again[0];
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
    State::Known& known = state_->known(product, operands, stream);
    const cublasStatus_t status =
        known.plan.launch(state_->handle.get(), known.algorithm, operands, state_->workspace, stream);
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

int Multiplier::num_problems() const { return static_cast<int>(state_->problems.size()); }

std::string Multiplier::choices() const {
    std::vector<std::string> lines;
    for (const auto& [problem, known] : state_->problems) {
        lines.push_back(line_of({problem, known.algorithm}, state_->origin));
    }
    for (const auto& [problem, algorithm] : state_->remembered) {
        if (!state_->problems.contains(problem))
            lines.push_back(line_of({problem, algorithm}, state_->origin));
    }
    std::sort(lines.begin(), lines.end());
    std::string text;
    for (const std::string& line : lines) text += line;
    return text;
}

int Multiplier::remember(std::string_view choices) {
    const std::vector<Choice> found = choices_in(choices, state_->origin);
    for (const Choice& one : found) state_->remembered.insert_or_assign(one.problem, one.algorithm);
    return static_cast<int>(found.size());
}

}  // namespace argosy::cublas
