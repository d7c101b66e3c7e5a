#include "support/fake_cublaslt.h"

#include <cublasLt.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>

#include "support/fake_cublaslt_product.h"
#include "support/fake_gpus.h"
#include "support/work_log.h"

struct cublasLtContext {};

namespace argosy::testing {

FakeCublasLt& fake_cublaslt() {
    static FakeCublasLt fake = [] {
        FakeCublasLt made;
        const char* const version = std::getenv("ARGOSY_FAKE_CUBLAS_VERSION");
        if (version) made.version = std::strtoul(version, nullptr, 10);
        const char* const slow = std::getenv("ARGOSY_FAKE_CUBLAS_SLOW");
        if (slow) made.slow = std::atoi(slow);
        return made;
    }();
    return fake;
}

namespace {

struct Preference {
    uint64_t workspace_bytes = 0;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t alignments[4] = {256, 256, 256, 256};  // A, B, C, D
};

/// The content of an algorithm's opaque bytes.
struct FakeAlgorithm {
    static constexpr int32_t kMark = 0x4b1a5;
    int32_t mark = 0, number = 0;

    bool known() const {
        return mark == kMark && (number == kRounding || number < fake_cublaslt().num_algorithms);
    }
};

FakeAlgorithm algorithm_in(const cublasLtMatmulAlgo_t& opaque) {
    FakeAlgorithm algorithm;
    static_assert(sizeof(algorithm) <= sizeof(opaque));
    std::memcpy(static_cast<void*>(&algorithm), &opaque, sizeof(algorithm));
    return algorithm;
}

/// The descriptors are opaque memory of the caller, large enough for this content.
template <class Ours, class Theirs>
Ours& in(Theirs* theirs) {
    static_assert(sizeof(Ours) <= sizeof(*theirs) && std::is_trivially_copyable_v<Ours>);
    return *reinterpret_cast<Ours*>(theirs);
}

Layout& layout(cublasLtMatrixLayout_t x) { return in<Layout>(x); }
Operation& operation(cublasLtMatmulDesc_t x) { return in<Operation>(x); }
Preference& preference(cublasLtMatmulPreference_t x) { return in<Preference>(x); }

template <class Value>
cublasStatus_t store(Value& value, const void* from, size_t bytes) {
    if (!from || bytes != sizeof(value)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&value, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

bool is_aligned(const void* data, size_t bytes) { return reinterpret_cast<uintptr_t>(data) % bytes == 0; }

/// Whether algorithm `number` accepts a matrix with this column stride and alignment.
bool wants(int number, size_t alignment, const Layout& layout) {
    const bool any = number + 1 == fake_cublaslt().num_algorithms;
    return any || (alignment % 16 == 0 && layout.stride * size_of(layout.type) % 16 == 0);
}

size_t workspace_of(int number) { return number == 0 ? 0 : 1024; }

cublasStatus_t first_failure(std::initializer_list<cublasStatus_t> all) {
    for (const cublasStatus_t one : all) {
        if (one != CUBLAS_STATUS_SUCCESS) return one;
    }
    return CUBLAS_STATUS_SUCCESS;
}

Call call_of(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
             cublasLtMatrixLayout_t d) {
    return {
        .operation = operation(desc), .a_layout = layout(a), .b_layout = layout(b), .d_layout = layout(d)};
}

cublasLtMatmulHeuristicResult_t result_for(int number) {
    const FakeAlgorithm algorithm{FakeAlgorithm::kMark, number};
    cublasLtMatmulHeuristicResult_t result{};
    std::memcpy(&result.algo, &algorithm, sizeof(algorithm));
    result.workspaceSize = workspace_of(number);
    result.state = CUBLAS_STATUS_SUCCESS;
    return result;
}

}  // namespace
}  // namespace argosy::testing

using namespace argosy::testing;  // C functions have no namespace of their own

size_t cublasLtGetVersion() { return fake_cublaslt().version; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
        default:
            return "CUBLAS_STATUS_OTHER";
    }
}

const char* cublasLtGetStatusString(cublasStatus_t) { return "in words"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new cublasLtContext;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
    operation(desc) = {.compute_type = compute, .scale_type = scale};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* from,
                                              size_t bytes) {
    Operation& stored = operation(desc);
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return store(stored.transpose_a, from, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return store(stored.transpose_b, from, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return store(stored.epilogue, from, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
            return store(stored.bias_type, from, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return store(stored.bias, from, bytes);
        case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
            return store(stored.fast_sums, from, bytes);
        case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
            return store(stored.max_multiprocessors, from, bytes);
        case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
            return store(stored.scale_mode_a, from, bytes);
        case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
            return store(stored.scale_mode_b, from, bytes);
        case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
            return store(stored.scale_a, from, bytes);
        case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
            return store(stored.scale_b, from, bytes);
        default:
            return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t made, size_t, cudaDataType_t type,
                                                 uint64_t rows, uint64_t columns, int64_t stride) {
    layout(made) = {type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t made, size_t) {
    preference(made) = {};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t given,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* from, size_t bytes) {
    Preference& stored = preference(given);
    switch (attribute) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            return store(stored.workspace_bytes, from, bytes);
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
            return store(stored.reductions, from, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
            return store(stored.alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], from,
                         bytes);
        default:
            return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t given, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int* num_results) {
    ++fake_cublaslt().num_questions;
    *num_results = 0;
    const Call call = call_of(desc, a, b, d);
    const bool bias_is_there = !call.has_bias() || call.operation.bias;
    if (c != d || !bias_is_there || most < 1) return CUBLAS_STATUS_INVALID_VALUE;
    if (const auto failure = first_failure({call.check_shapes(), call.check_types()})) return failure;
    const bool lacks =
        fake_cublaslt().lacks_float8 || (fake_cublaslt().lacks_other_orders && !call.has_adjacent_terms());
    if (lacks && is_float8(call.a_layout.type)) return CUBLAS_STATUS_NOT_SUPPORTED;

    const Preference& wishes = preference(given);
    std::vector<int> numbers;
    if (wishes.reductions & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE && size_of(call.d_layout.type) == 2) {
        numbers.push_back(kRounding);
    }
    for (int number = 0; number < fake_cublaslt().num_algorithms; ++number) {
        const bool fits = wants(number, wishes.alignments[0], call.a_layout) &&
                          wants(number, wishes.alignments[1], call.b_layout) &&
                          wants(number, std::min(wishes.alignments[2], wishes.alignments[3]), call.d_layout);
        if (fits && workspace_of(number) <= wishes.workspace_bytes) numbers.push_back(number);
    }
    for (const int number : numbers) {
        if (*num_results < most) results[(*num_results)++] = result_for(number);
    }
    return *num_results == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                 cublasLtMatmulAlgoCapAttributes_t attribute, void* values,
                                                 size_t bytes, size_t* written) {
    if (attribute == CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT) {
        const int32_t supported = algorithm_in(*algorithm).number != fake_cublaslt().only_in_place;
        std::memcpy(values, &supported, *written = bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    Call call = call_of(desc, a_layout, b_layout, d_layout);
    call.a = a;
    call.b = b;
    call.c = c;
    call.d = d;
    call.alpha = element(alpha, 0, call.operation.scale_type);
    call.beta = element(beta, 0, call.operation.scale_type);
    const FakeAlgorithm chosen = algorithm_in(*algorithm);
    const int number = call.algorithm = chosen.number;

    if (work_log)
        note_work("cublasLtMatmul algorithm " + std::to_string(number) + text_of_argument(call.alpha) +
                  text_of_argument(call.beta));

    const FakeCublasLt& fake = fake_cublaslt();
    if (c != d && call.beta != 0 && number == fake_cublaslt().only_in_place)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!chosen.known() || c_layout != d_layout) return CUBLAS_STATUS_INVALID_VALUE;
    if (const auto failure =
            first_failure({call.check_shapes(), call.check_types(), call.check_pointers()})) {
        return failure;
    }
    const bool works = is_on_device(workspace, workspace_of(number)) && is_aligned(workspace, 256);
    if (workspace_of(number) > workspace_bytes || (workspace_bytes > 0 && !works)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const auto alignment = [](const void* data) { return is_aligned(data, 16) ? 16 : 1; };
    const bool fits = wants(number, alignment(a), call.a_layout) &&
                      wants(number, alignment(b), call.b_layout) &&
                      wants(number, std::min(alignment(c), alignment(d)), call.d_layout);
    if (!fits || std::count(fake.refused.begin(), fake.refused.end(), number) > 0) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }

    if (fake.idle) return CUBLAS_STATUS_SUCCESS;
    enqueue(
        stream,
        [=] {
            if (number == fake_cublaslt().slow) std::this_thread::sleep_for(std::chrono::milliseconds(6));
            call.compute();
        },
        [=] {
            fake_cublaslt().ran.push_back(number);
            fake_cublaslt().num_float8 += is_float8(call.a_layout.type);
            fake_cublaslt().num_fast += call.operation.fast_sums;
            fake_cublaslt().max_multiprocessors = call.operation.max_multiprocessors;
            return true;
        });
    return CUBLAS_STATUS_SUCCESS;
}
