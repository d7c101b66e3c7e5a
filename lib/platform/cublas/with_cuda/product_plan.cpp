#include "cublas/with_cuda/product_plan.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "cuda/memory.h"

namespace argosy::cublas {
namespace {

static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

cudaDataType_t datatype(ElementType type) {
    switch (type) {
        case ElementType::BFloat16:
            return CUDA_R_16BF;
        case ElementType::Float32:
            return CUDA_R_32F;
        case ElementType::Float8E4M3:
            return CUDA_R_8F_E4M3;
        case ElementType::Float8E5M2:
            return CUDA_R_8F_E5M2;
        default:
            return CUDA_R_64F;
    }
}

/// The scales of one operand: of B if `of_b`, else of A.
cublasLtMatmulMatrixScale_t scale_mode(ScaleMode mode, bool of_b) {
    if (mode == (of_b ? ScaleMode::SquareB : ScaleMode::SquareA))
        return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    if (has_blocks_of_128(mode)) return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    switch (mode) {
        case ScaleMode::Line:
            return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
        case ScaleMode::Block:
            return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
        default:
            return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    }
}

/// CUBLAS_COMPUTE_32F takes fp32 as it is; TF32 would be CUBLAS_COMPUTE_32F_FAST_TF32.
cublasComputeType_t compute_type(ElementType type) {
    return type == ElementType::Float64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
}

cudaDataType_t scale_type(ElementType type) { return type == ElementType::Float64 ? CUDA_R_64F : CUDA_R_32F; }

/// The factor alpha or beta, in scale_type().
class Scalar {
  public:
    Scalar(double value, ElementType type)
        : double_(value), float_(static_cast<float>(value)), is_double_(type == ElementType::Float64) {}
    const void* address() const {
        return is_double_ ? static_cast<const void*>(&double_) : static_cast<const void*>(&float_);
    }

  private:
    double double_;
    float float_;
    bool is_double_;
};

void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
}

void set(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
}

cublasLtMatrixLayoutOpaque_t layout(ElementType type, bool transposed, int64_t rows, int64_t columns,
                                    int64_t stride) {
    if (transposed) std::swap(rows, columns);
    cublasLtMatrixLayoutOpaque_t made;
    check(cublasLtMatrixLayoutInit(&made, datatype(type), rows, columns, stride), "cublasLtMatrixLayoutInit");
    return made;
}

/// How parts of a sum that are computed separately may be added up: in the result's type only if the sum has
/// that type, too.
std::vector<uint32_t> reductions_of(const Problem& problem) {
    if (size_bytes(problem.result_type) == 2) return {CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE};
    return {CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
            CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE};
}

/// Whether the algorithm may read an addend that is not C itself, if the problem has one. cuBLASLt's search
/// does not see the addresses.
bool takes_addend(const cublasLtMatmulAlgo_t& algorithm, const Problem& problem) {
    if (problem.addend != Addend::Another) return true;
    int32_t supported = 0;
    size_t bytes = 0;
    return cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT,
                                             &supported, sizeof(supported),
                                             &bytes) == CUBLAS_STATUS_SUCCESS &&
           supported != 0;
}

/// Returns conditions for cuBLASLt's search: workspace, alignments, and how parts of a sum are added up.
cublasLtMatmulPreferenceOpaque_t preference_for(const Problem& problem, size_t workspace_bytes) {
    cublasLtMatmulPreferenceOpaque_t made;
    check(cublasLtMatmulPreferenceInit(&made), "cublasLtMatmulPreferenceInit");
    set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes});
    uint32_t reductions = 0;
    for (const uint32_t scheme : reductions_of(problem)) reductions |= scheme;
    set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(problem.alignment_a));
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(problem.alignment_b));
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(problem.alignment_c));
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(problem.alignment_d));
    return made;
}

cublasLtMatmulAlgo_t to_cublaslt(const Algorithm& algorithm) {
    cublasLtMatmulAlgo_t made;
    std::memcpy(&made, algorithm.data(), sizeof(made));
    return made;
}

Algorithm from_cublaslt(const cublasLtMatmulAlgo_t& algorithm) {
    Algorithm made;
    std::memcpy(made.data(), &algorithm, sizeof(algorithm));
    return made;
}

constexpr cublasLtClusterShape_t kClusters[] = {CUBLASLT_CLUSTER_SHAPE_1x1x1, CUBLASLT_CLUSTER_SHAPE_2x1x1,
                                                CUBLASLT_CLUSTER_SHAPE_1x2x1, CUBLASLT_CLUSTER_SHAPE_2x2x1,
                                                CUBLASLT_CLUSTER_SHAPE_4x1x1, CUBLASLT_CLUSTER_SHAPE_1x4x1};

/// Whether the algorithm has that attribute and took the value.
template <class Value>
bool set(cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, Value value) {
    return cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attribute, &value, sizeof(value)) ==
           CUBLAS_STATUS_SUCCESS;
}

/// The tiles that the algorithm's kernels have.
std::vector<uint32_t> tiles_of(const cublasLtMatmulAlgo_t& algorithm) {
    std::vector<uint32_t> tiles(CUBLASLT_MATMUL_TILE_END);
    size_t bytes = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoCapGetAttribute(
        &algorithm, CUBLASLT_ALGO_CAP_TILE_IDS, tiles.data(), tiles.size() * sizeof(tiles[0]), &bytes);
    tiles.resize(status == CUBLAS_STATUS_SUCCESS ? bytes / sizeof(tiles[0]) : 0);
    return tiles;
}

/// Each round times all algorithms in turn, so that a device that grows warm slows down each of them.
constexpr int kRounds = 3;

/// Returns how many launches are timed together: enough for about 0.2 ms on an H100, so that the resolution
/// of the device's clock, half a microsecond, does not matter; but no more than kMaxLaunches.
int launches_of(const Problem& problem) {
    constexpr double kMinFlops = 1e11;
    constexpr double kMaxLaunches = 10;
    const double flops = 2.0 * static_cast<double>(problem.m) * static_cast<double>(problem.n) *
                         static_cast<double>(problem.k);
    return static_cast<int>(std::clamp(std::ceil(kMinFlops / flops), 1.0, kMaxLaunches));
}

struct Measured {
    struct Round {
        cuda::Event begin, end;
        double seconds() const { return cuda::Event::seconds_between(begin, end); }
    };
    size_t algorithm;  // index into the `algorithms` of by_time()
    std::vector<Round> rounds = std::vector<Round>(kRounds);

    double median_seconds() const {
        std::array<double, kRounds> seconds;
        for (int i = 0; i < kRounds; ++i) {
            seconds[i] = rounds[i].seconds();
        }
        std::sort(seconds.begin(), seconds.end());
        return seconds[kRounds / 2];
    }
};

const char* remedy(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "; it needs a GPU, a driver that runs this CUDA, and some memory that is free there";
        case CUBLAS_STATUS_ALLOC_FAILED:
            return "; use smaller sizes, or a GPU without other processes";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "; the failed call may be an earlier one: CUDA_LAUNCH_BLOCKING=1 finds it";
        case CUBLAS_STATUS_ARCH_MISMATCH:
            return "; this GPU is older than the operation";
        default:
            return "";
    }
}

}  // namespace

ProductPlan::ProductPlan(const Operands& operands)
    : problem_(operands.problem),
      a_(layout(problem_.type_a, problem_.transpose_a, problem_.m, problem_.k, problem_.stride_a)),
      b_(layout(problem_.type_b, problem_.transpose_b, problem_.k, problem_.n, problem_.stride_b)),
      d_(layout(problem_.result_type, /*transposed=*/false, problem_.m, problem_.n, problem_.stride_d)) {
    check(cublasLtMatmulDescInit(&operation_, compute_type(problem_.type_a), scale_type(problem_.type_a)),
          "cublasLtMatmulDescInit");
    const auto transposition = [](bool transposed) -> int32_t {
        return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    };
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, transposition(problem_.transpose_a));
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, transposition(problem_.transpose_b));
    if (is_float8(problem_.type_a)) {
        set(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(problem_.fast_sums));
        const auto mode = [&](bool of_b) { return static_cast<int32_t>(scale_mode(problem_.scales, of_b)); };
        set(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode(/*of_b=*/false));
        set(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode(/*of_b=*/true));
    }
    if (problem_.bias) {
        set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS));
        set(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
            static_cast<int32_t>(datatype(problem_.result_type)));
    }
    set_pointers(operands);
}

void ProductPlan::set_pointers(const Operands& operands) {
    if (problem_.bias) set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    if (problem_.scales == ScaleMode::None) return;
    set(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.scale_a);
    set(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.scale_b);
}

cublasStatus_t ProductPlan::find_algorithms(cublasLtContext* handle, size_t workspace_bytes,
                                            int max_algorithms, std::vector<Algorithm>& found) {
    cublasLtMatmulPreferenceOpaque_t preference = preference_for(problem_, workspace_bytes);
    std::vector<cublasLtMatmulHeuristicResult_t> results(max_algorithms);
    int num_results = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, &operation_, &a_, &b_, &d_, &d_, &preference, max_algorithms, results.data(), &num_results);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    for (int i = 0; i < num_results; ++i) {
        const bool usable =
            results[i].state == CUBLAS_STATUS_SUCCESS && takes_addend(results[i].algo, problem_);
        if (usable) found.push_back(from_cublaslt(results[i].algo));
    }
    return found.empty() ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

bool ProductPlan::supports(cublasLtContext* handle, const Algorithm& algorithm, size_t workspace_bytes) {
    const cublasLtMatmulAlgo_t checked = to_cublaslt(algorithm);
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(handle, &operation_, &a_, &b_, &d_, &d_, &checked, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= workspace_bytes;
}

void ProductPlan::add_neighbours(cublasLtContext* handle, const Algorithm& algorithm, size_t workspace_bytes,
                                 std::vector<Algorithm>& found) {
    const auto add = [&](const cublasLtMatmulAlgo_t& changed) {
        const Algorithm neighbour = from_cublaslt(changed);
        const bool known = std::ranges::find(found, neighbour) != found.end();
        if (!known && supports(handle, neighbour, workspace_bytes)) found.push_back(neighbour);
    };
    const cublasLtMatmulAlgo_t start = to_cublaslt(algorithm);
    // Few clusters, some splits, hundreds of tiles: by_time() may not come to the last ones.
    for (const cublasLtClusterShape_t shape : kClusters) {
        cublasLtMatmulAlgo_t changed = start;
        if (set(changed, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, static_cast<uint16_t>(shape))) add(changed);
    }
    for (const uint32_t scheme : reductions_of(problem_)) {
        for (const int32_t num_parts : {2, 3, 4, 6, 8, 12, 16}) {
            cublasLtMatmulAlgo_t changed = start;
            if (set(changed, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, num_parts) &&
                set(changed, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, scheme)) {
                add(changed);
            }
        }
    }
    for (const uint32_t tile : tiles_of(start)) {
        cublasLtMatmulAlgo_t changed = start;
        if (set(changed, CUBLASLT_ALGO_CONFIG_TILE_ID, tile)) add(changed);
    }
}

cublasStatus_t ProductPlan::launch(cublasLtContext* handle, const Algorithm& algorithm,
                                   const Operands& operands, std::span<std::byte> workspace,
                                   CUstream_st* stream) {
    set_pointers(operands);
    const Scalar alpha(1, problem_.type_a), beta(problem_.addend == Addend::None ? 0 : 1, problem_.type_a);
    const cublasLtMatmulAlgo_t chosen = to_cublaslt(algorithm);
    return cublasLtMatmul(handle, &operation_, alpha.address(), operands.a, &a_, operands.b, &b_,
                          beta.address(), operands.c, &d_, operands.d, &d_, &chosen, workspace.data(),
                          workspace.size(), stream);
}

std::vector<Algorithm> by_time(ProductPlan& plan, cublasLtContext* handle,
                               std::span<const Algorithm> algorithms, const Operands& operands,
                               std::span<std::byte> workspace, const cuda::StreamView& stream,
                               double max_seconds) {
    const auto launch = [&](size_t number) {
        return plan.launch(handle, algorithms[number], operands, workspace, stream.handle()) ==
               CUBLAS_STATUS_SUCCESS;
    };
    // 1. the first launch of an algorithm loads its kernel; the second is timed
    stream.synchronize();  // earlier work does not count
    const double end = seconds_now() + max_seconds;
    std::vector<Measured> measured;
    for (size_t i = 0; i < algorithms.size() && (measured.empty() || seconds_now() < end); ++i) {
        if (!launch(i)) continue;
        measured.push_back({.algorithm = i});
        measured.back().rounds[0].begin.record(stream);
        launch(i);
        measured.back().rounds[0].end.record(stream);
        stream.synchronize();
    }
    if (measured.empty()) return {};
    // 2. drop what is much slower than the fastest: of many tiles and clusters, most are
    constexpr double kMaxRatio = 2;
    constexpr size_t kFinalists = 8;
    const auto first_seconds = [](const Measured& one) { return one.rounds[0].seconds(); };
    std::ranges::stable_sort(measured, {}, first_seconds);
    const double limit = kMaxRatio * first_seconds(measured[0]);
    std::erase_if(measured, [&](const Measured& one) { return first_seconds(one) > limit; });
    measured.erase(measured.begin() + std::min(measured.size(), kFinalists), measured.end());
    // 3. time the others, in rounds
    const int num_launches = launches_of(operands.problem);
    for (int round = 0; round < kRounds; ++round) {
        for (Measured& one : measured) {
            one.rounds[round].begin.record(stream);
            for (int i = 0; i < num_launches; ++i) launch(one.algorithm);
            one.rounds[round].end.record(stream);
        }
    }
    stream.synchronize();
    std::ranges::stable_sort(measured, {}, &Measured::median_seconds);
    std::vector<Algorithm> sorted;
    for (const Measured& one : measured) sorted.push_back(algorithms[one.algorithm]);
    return sorted;
}

void write_empty_sum(const Operands& operands, const cuda::StreamView& stream) {
    const Problem& p = operands.problem;
    if (p.addend == Addend::C) return;
    const size_t size = size_bytes(p.result_type);
    const bool dense = p.stride_d == p.m;
    const size_t bytes = (dense ? p.m * p.n : p.m) * size;
    for (int64_t column = 0; column < (dense ? 1 : p.n); ++column) {
        const int64_t begin = column * p.stride_d * size;
        auto* const to = static_cast<std::byte*>(operands.d) + begin;
        if (p.addend == Addend::Another) {
            cuda::copy_on_device(to, static_cast<const std::byte*>(operands.c) + begin, bytes, stream);
        } else {
            cuda::set_to_zero(to, bytes, stream);
        }
    }
}

std::string explain(int code) {
    const auto status = static_cast<cublasStatus_t>(code);
    return fmt::format("{} ({}){}", cublasLtGetStatusName(status), cublasLtGetStatusString(status),
                       remedy(status));
}

void check(int status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS) throw RunError("{} failed: {}", call, explain(status));
}

}  // namespace argosy::cublas
