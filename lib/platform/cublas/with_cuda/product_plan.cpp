#include "cublas/with_cuda/product_plan.h"

#include <cublasLt.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "cuda/memory.h"

namespace argosy::cublas {
namespace {

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
uint32_t reductions_of(const Problem& problem) {
    if (size_bytes(problem.result_type) == 2) return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    return CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
           CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
}

/// Whether the algorithm may read an addend that is not C itself, if the problem has one. cuBLASLt's
/// heuristic does not see the addresses.
bool takes_addend(const cublasLtMatmulAlgo_t& algorithm, const Problem& problem) {
    if (problem.addend != Addend::Another) return true;
    int32_t supported = 0;
    size_t bytes = 0;
    return cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT,
                                             &supported, sizeof(supported),
                                             &bytes) == CUBLAS_STATUS_SUCCESS &&
           supported != 0;
}

/// Returns conditions for cuBLASLt's heuristic: workspace, alignments, and how parts of a sum are added up.
cublasLtMatmulPreferenceOpaque_t preference_for(const Problem& problem, size_t workspace_bytes) {
    cublasLtMatmulPreferenceOpaque_t made;
    check(cublasLtMatmulPreferenceInit(&made), "cublasLtMatmulPreferenceInit");
    set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes});
    set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions_of(problem));
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(problem.alignment_a));
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(problem.alignment_b));
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(problem.alignment_c));
    set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(problem.alignment_d));
    return made;
}

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
    if (problem_.max_multiprocessors > 0) {
        set(operation_, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
            static_cast<int32_t>(problem_.max_multiprocessors));
    }
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

cublasStatus_t ProductPlan::find_algorithm(cublasLtContext* handle, size_t workspace_bytes, int choice) {
    constexpr int kCandidates = 8;
    cublasLtMatmulPreferenceOpaque_t preference = preference_for(problem_, workspace_bytes);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
    int num_results = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, &operation_, &a_, &b_, &d_, &d_, &preference, kCandidates, results.data(), &num_results);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    for (int i = 0; i < num_results; ++i) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS || !takes_addend(results[i].algo, problem_)) continue;
        if (choice-- > 0) continue;
        algorithm_ = results[i].algo;
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t ProductPlan::launch(cublasLtContext* handle, const Operands& operands,
                                   std::span<std::byte> workspace, CUstream_st* stream) {
    set_pointers(operands);
    const Scalar alpha(operands.factor, problem_.type_a), beta(operands.addend_factor, problem_.type_a);
    return cublasLtMatmul(handle, &operation_, alpha.address(), operands.a, &a_, operands.b, &b_,
                          beta.address(), operands.c, &d_, operands.d, &d_, &algorithm_, workspace.data(),
                          workspace.size(), stream);
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
