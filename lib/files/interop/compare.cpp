#include "interop/compare.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "gpu/element_type.h"
#include "interop/element_conversion.h"
#include "interop/layerwise_model.h"
#include "interop/names.h"
#include "model/units.h"
#include "ops/ops_context.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorSource;

constexpr int64_t kNumSequences = 2, kSeqLen = 32;
/// Only the last positions of each sequence are compared: they depend on all earlier ones.
constexpr int64_t kComparedPositions = 16;

/// Maximum change of a logit by rounding the weights, as a fraction of the largest logit. Rounding changes a
/// weight by up to 2^-8 (bf16) or 2^-11 (fp16) of itself. Measured on models of 2 to 32 layers, logits change
/// by one to three times that fraction of the largest logit. Random weights that are so large that attention
/// jumps from token to token change logits by up to 26 times (bf16) and 72 times (fp16) that fraction. The
/// bounds are 128 and 256 times: beyond them the type is too narrow for the model.
constexpr double kBf16Bound = 1.0 / 2, kFp16Bound = 1.0 / 8;

/// Returns the bound for weights that `copy` rounds to bf16 or fp16, and 0 if there are none. Rounding fp64
/// to fp32 does not count, because all runs use fp32.
double narrowing_bound(const TensorSource& original, const TensorSource& copy) {
    double bound = 0;
    for (const checkpoint::TensorInfo& tensor : copy.tensors()) {
        const checkpoint::TensorInfo* from = original.find(tensor.name);
        const bool weight = tensor.name.starts_with(kModelPrefix);
        if (!weight || from == nullptr || from->type == tensor.type) continue;
        if (tensor.type == ElementType::BFloat16) bound = std::max(bound, kBf16Bound);
        if (tensor.type == ElementType::Float16) bound = std::max(bound, kFp16Bound);
    }
    return bound;
}

model::Batch sequences(int64_t vocab_size) {
    constexpr int64_t kNumTokens = kNumSequences * kSeqLen;
    const at::Tensor tokens = at::empty({kNumTokens}, at::kLong);
    auto* token = tokens.mutable_data_ptr<int64_t>();
    for (uint32_t i = 0; i < kNumTokens; ++i) {
        const auto word = philox({i, 0, 0, 0}, {0, 0})[0];
        token[i] = static_cast<int64_t>(word % static_cast<uint64_t>(vocab_size));
    }
    return {tokens, at::full({kNumTokens}, -1, at::kLong), kNumSequences, kSeqLen};
}

/// Treats all NaNs as equal, because rounding may change a NaN's bits.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
    if (std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) return true;
    const at::Tensor same = a.view(at::kInt).eq(b.view(at::kInt));
    return same.logical_or(a.isnan().logical_and(b.isnan())).all().item<bool>();
}

at::Tensor last_positions(const at::Tensor& stream) {
    return stream.view({kNumSequences, kSeqLen, -1})
        .narrow(1, kSeqLen - kComparedPositions, kComparedPositions)
        .reshape({kNumSequences * kComparedPositions, -1});
}

/// A checkpoint viewed in other types: each tensor is rounded while it is read.
class RoundedSource : public TensorSource {
  public:
    /// Offers those tensors of `values` that also exist in `types`, with the types of `types`. REQUIRES: both
    /// outlive this object; for each tensor the two types are equal or both floating.
    RoundedSource(const TensorSource& values, const TensorSource& types) : values_(values) {
        for (checkpoint::TensorInfo tensor : values.tensors()) {
            const checkpoint::TensorInfo* other = types.find(tensor.name);
            if (other == nullptr) continue;
            tensor.type = other->type;
            tensors_.push_back(std::move(tensor));
        }
    }

    const std::vector<checkpoint::TensorInfo>& tensors() const override { return tensors_; }
    void read(const checkpoint::TensorInfo& tensor, const layout::Slab& slab,
              std::span<std::byte> out) const override {
        const checkpoint::TensorInfo& stored = values_.at(tensor.name);
        if (stored.type == tensor.type) return values_.read(stored, slab, out);
        std::vector<std::byte> exact(slab.num_elements() * size_bytes(stored.type));
        values_.read(stored, slab, exact);
        // LibTorch rounds, so that a fault of the conversion shows; fp64 to bf16 would be rounded twice.
        if (stored.type == ElementType::Float64)
            return convert_elements(stored.type, exact, tensor.type, out);
        const auto as_tensor = [&](std::byte* elements, ElementType type) {
            return at::from_blob(elements, {slab.num_elements()}, gpu::scalar_type(type).value());
        };
        as_tensor(out.data(), tensor.type).copy_(as_tensor(exact.data(), stored.type));
    }
    const std::string& place() const override { return values_.place(); }

  private:
    const TensorSource& values_;
    std::vector<checkpoint::TensorInfo> tensors_;
};

/// A model, and the state of one batch as it passes the units.
struct ForwardPass {
    explicit ForwardPass(const TensorSource& tensors, const model::ModelSpec& spec)
        : model(tensors, spec, at::kFloat) {}

    /// Returns the residual stream after `unit`; after the last unit, the logits of the last positions.
    const at::Tensor& run_unit(int64_t unit, const model::Batch& batch) {
        if (unit + 1 < model.num_units()) {
            model.run_unit(unit, {&batch, 1}, streams);
        } else {
            streams[0] = model.logits(last_positions(streams[0]));
        }
        return streams[0];
    }

    LayerwiseModel model;
    Streams streams;
};

void measure(const at::Tensor& original, const at::Tensor& copy, LogitsComparison& found) {
    found.num_positions = original.size(0);
    found.largest_logit = original.abs().max().item<double>();
    found.largest_difference = (original - copy).abs().max().item<double>();
}

}  // namespace

bool LogitsComparison::passed() const {
    // If the original's logits are not finite, only equality counts; if only the copy's are not, the test
    // fails.
    const bool comparable = bound > 0 && std::isfinite(largest_logit);
    return equal() && (!comparable || largest_difference <= bound * largest_logit);
}

std::string LogitsComparison::text() const {
    const std::string start = fmt::format("logits of {} positions ", num_positions);
    if (!equal()) {
        return start + fmt::format(
                           "differ by up to {:.3g}, and the largest logit is {:.3g}; the output of {} is the "
                           "first that is not equal bit for bit{}",
                           largest_difference, largest_logit, first_different,
                           bound > 0 ? " to that of the rounded original" : "");
    }
    if (bound == 0) return start + "are equal bit for bit";
    return start + fmt::format(
                       "equal those of the rounded original bit for bit; rounding changes them by up to "
                       "{:.3g} (limit {:.3g}; the largest logit is {:.3g})",
                       largest_difference, bound * largest_logit, largest_logit);
}

LogitsComparison compare_logits(const ComparedModel& original, const ComparedModel& copy,
                                const std::function<void(double share)>& progress) {
    const std::vector<std::string> unlike = model::differences(original.spec, copy.spec);
    if (!unlike.empty()) {
        throw UserError("{} and {} are different models: {}", original.tensors.place(), copy.tensors.place(),
                        fmt::join(unlike, "; "));
    }
    const ops::OpsContext context;
    LogitsComparison found;
    found.bound = narrowing_bound(original.tensors, copy.tensors);
    const RoundedSource rounded(original.tensors, copy.tensors);
    ForwardPass exact_pass(original.tensors, original.spec), rounded_pass(rounded, original.spec),
        copy_pass(copy.tensors, copy.spec);
    const model::Batch batch = sequences(original.spec.vocab_size);
    const std::vector<std::string> units = model::unit_names(original.spec);
    for (size_t unit = 0; unit < units.size(); ++unit) {
        const auto number = static_cast<int64_t>(unit);
        // If no type is narrower, rounding changes nothing, so the exact result is the expected one.
        const at::Tensor exact = exact_pass.run_unit(number, batch);
        const at::Tensor copied = copy_pass.run_unit(number, batch);
        const at::Tensor expected = found.bound > 0 ? rounded_pass.run_unit(number, batch) : exact;
        if (found.equal() && !same_bits(expected, copied)) found.first_different = units[unit];
        if (unit + 1 == units.size()) measure(exact, copied, found);
        if (progress) progress(static_cast<double>(unit + 1) / static_cast<double>(units.size()));
    }
    return found;
}

}  // namespace argosy::interop
