#include "model/model_spec.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace argosy::model {
namespace {

/// Keeps high frequencies, divides low ones by `factor`, and interpolates between the two.
double stretched(double frequency, const RopeScaling& scaling) {
    // Turns of the rotation over the original context.
    const double turns = static_cast<double>(scaling.original_context) * frequency / (2 * std::numbers::pi);
    if (turns > scaling.high_frequency_factor) return frequency;
    if (turns < scaling.low_frequency_factor) return frequency / scaling.factor;
    const double share = (turns - scaling.low_frequency_factor) /
                         (scaling.high_frequency_factor - scaling.low_frequency_factor);
    return (1 - share) * frequency / scaling.factor + share * frequency;
}

std::string text_of(const std::optional<RopeScaling>& scaling) {
    if (!scaling) return "none";
    return fmt::format("factor {}, low {}, high {}, original context {}", scaling->factor,
                       scaling->low_frequency_factor, scaling->high_frequency_factor,
                       scaling->original_context);
}

}  // namespace

void validate(const ModelSpec& spec) {
    // The limits are far above any real model, and keep the number of parameters within an int64_t.
    constexpr int64_t kMaxLayers = 1 << 16, kMaxWidth = 1 << 20, kMaxTokens = 1 << 30;
    struct Size {
        const char* key;
        int64_t value, max;
    };
    for (const auto& [key, value, max] :
         {Size{"vocab_size", spec.vocab_size, kMaxTokens}, Size{"dim", spec.dim, kMaxWidth},
          Size{"num_layers", spec.num_layers, kMaxLayers}, Size{"num_heads", spec.num_heads, kMaxWidth},
          Size{"num_kv_heads", spec.num_kv_heads, kMaxWidth}, Size{"head_dim", spec.head_dim, kMaxWidth},
          Size{"hidden_dim", spec.hidden_dim, kMaxWidth},
          Size{"max_position_embeddings", spec.max_context, kMaxTokens}}) {
        if (value < 1) throw UserError("the model's {} is {}; it must be at least 1", key, value);
        if (value > max) throw UserError("the model's {} is {}; it must be at most {}", key, value, max);
    }
    if (spec.num_heads % spec.num_kv_heads != 0) {
        throw UserError(
            "{} query heads cannot share {} key/value heads evenly; num_kv_heads must divide num_heads",
            spec.num_heads, spec.num_kv_heads);
    }
    if (spec.num_heads * spec.head_dim > kMaxWidth) {
        throw UserError("{} heads of {} elements are more than {} together", spec.num_heads, spec.head_dim,
                        kMaxWidth);
    }
    if (spec.head_dim % 2 != 0) {
        throw UserError("head_dim is {}; rotary embedding pairs a head's elements, so it must be even",
                        spec.head_dim);
    }
}

std::vector<std::string> differences(const ModelSpec& a, const ModelSpec& b) {
    std::vector<std::string> found;
    const auto compare = [&](const char* key, const auto& left, const auto& right) {
        if (left != right) found.push_back(fmt::format("{}: {} against {}", key, left, right));
    };
    compare("name", a.name, b.name);
    compare("vocab_size", a.vocab_size, b.vocab_size);
    compare("dim", a.dim, b.dim);
    compare("num_layers", a.num_layers, b.num_layers);
    compare("num_heads", a.num_heads, b.num_heads);
    compare("num_kv_heads", a.num_kv_heads, b.num_kv_heads);
    compare("head_dim", a.head_dim, b.head_dim);
    compare("hidden_dim", a.hidden_dim, b.hidden_dim);
    compare("norm_eps", a.norm_eps, b.norm_eps);
    compare("rope_theta", a.rope_theta, b.rope_theta);
    compare("rope_scaling", text_of(a.rope_scaling), text_of(b.rope_scaling));
    compare("tied_embeddings", a.tied_embeddings, b.tied_embeddings);
    compare("qkv_bias", a.qkv_bias, b.qkv_bias);
    compare("qk_norm", a.qk_norm, b.qk_norm);
    return found;
}

std::vector<double> rope_frequencies(const ModelSpec& spec) {
    std::vector<double> frequencies;
    for (int64_t i = 0; i < spec.head_dim; i += 2) {
        const double frequency =
            std::pow(spec.rope_theta, -static_cast<double>(i) / static_cast<double>(spec.head_dim));
        frequencies.push_back(spec.rope_scaling ? stretched(frequency, *spec.rope_scaling) : frequency);
    }
    return frequencies;
}

}  // namespace argosy::model
