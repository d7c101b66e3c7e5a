// The layers of a model, rotary frequencies, and the comparison of two models.
#include "model/model_spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace argosy::model {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

/// Keeps high frequencies, divides low ones by `factor`, and interpolates between the two.
double llama3_frequency(double frequency, const RopeScaling& scaling) {
    const double turns = static_cast<double>(scaling.original_context) * frequency / kTurn;
    if (turns > scaling.high_frequency_factor) return frequency;
    if (turns < scaling.low_frequency_factor) return frequency / scaling.factor;
    const double share = (turns - scaling.low_frequency_factor) /
                         (scaling.high_frequency_factor - scaling.low_frequency_factor);
    return (1 - share) * frequency / scaling.factor + share * frequency;
}

/// The number, not necessarily whole, of the pair of elements that turns `turns` times over the original
/// context.
double pair_that_turns(double turns, const ModelSpec& spec) {
    const double positions_per_radian =
        static_cast<double>(spec.rope_scaling->original_context) / (turns * kTurn);
    return static_cast<double>(rotary_dim(spec)) * std::log(positions_per_radian) /
           (2 * std::log(spec.rope_theta));
}

/// Keeps the frequency of pairs before `begin`, divides it after `end`, and interpolates by the pair's
/// number. The upper limit of `end` and the distance 0.001 are those of transformers.
double yarn_frequency(double frequency, int64_t pair, const ModelSpec& spec) {
    const RopeScaling& scaling = *spec.rope_scaling;
    double begin = pair_that_turns(scaling.beta_fast, spec), end = pair_that_turns(scaling.beta_slow, spec);
    if (scaling.truncate) {
        begin = std::floor(begin);
        end = std::ceil(end);
    }
    begin = std::max(begin, 0.0);
    end = std::min(end, static_cast<double>(rotary_dim(spec) - 1));
    if (begin == end) end += 0.001;
    const double divided = std::clamp((static_cast<double>(pair) - begin) / (end - begin), 0.0, 1.0);
    return divided * frequency / scaling.factor + (1 - divided) * frequency;
}

double scaled_frequency(double frequency, int64_t pair, const ModelSpec& spec, int64_t max_seq_len) {
    if (!spec.rope_scaling) return frequency;
    switch (spec.rope_scaling->type) {
        case RopeScaling::Type::Linear:
            return frequency / spec.rope_scaling->factor;
        case RopeScaling::Type::Llama3:
            return llama3_frequency(frequency, *spec.rope_scaling);
        case RopeScaling::Type::Yarn:
            return yarn_frequency(frequency, pair, spec);
        case RopeScaling::Type::Longrope: {
            const RopeScaling& scaling = *spec.rope_scaling;
            const bool is_long = max_seq_len > scaling.original_context;
            return frequency / (is_long ? scaling.long_factors : scaling.short_factors)[pair];
        }
    }
    return frequency;
}

std::string text_of(const std::optional<RopeScaling>& scaling) {
    if (!scaling) return "none";
    switch (scaling->type) {
        case RopeScaling::Type::Linear:
            return fmt::format("linear, factor {}", scaling->factor);
        case RopeScaling::Type::Llama3:
            return fmt::format("llama3, factor {}, low {}, high {}, original context {}", scaling->factor,
                               scaling->low_frequency_factor, scaling->high_frequency_factor,
                               scaling->original_context);
        case RopeScaling::Type::Yarn:
            return fmt::format(
                "yarn, factor {}, beta_fast {}, beta_slow {}, truncate {}, attention factor {}, original "
                "context {}",
                scaling->factor, scaling->beta_fast, scaling->beta_slow, scaling->truncate,
                scaling->attention_factor, scaling->original_context);
        case RopeScaling::Type::Longrope:
            return fmt::format(
                "longrope, short factors {}, long factors {}, attention factor {}, original context {}",
                fmt::join(scaling->short_factors, " "), fmt::join(scaling->long_factors, " "),
                scaling->attention_factor, scaling->original_context);
    }
    return "";
}

std::string text_of(const std::optional<ExpertSpec>& experts) {
    if (!experts) return "none";
    const ops::Router& router = experts->router;
    return fmt::format(
        "{} of {} with {} columns every {} layers but {}, {} scores{} times {}, {} of {} groups, "
        "shared {}",
        router.top_k, router.num_experts, experts->hidden_dim, experts->period,
        fmt::join(experts->dense_layers, " "),
        router.score == ops::Router::Score::Softmax ? "softmax" : "sigmoid",
        router.normalize ? ", normalized," : "", router.scale, router.top_groups, router.num_groups,
        experts->shared_hidden_dim);
}

const char* name_of(QkNorm norm) {
    switch (norm) {
        case QkNorm::None:
            return "none";
        case QkNorm::Heads:
            return "of each head";
        case QkNorm::Together:
            return "of all heads together";
    }
    return "";
}

const char* name_of(NormPlace place) {
    switch (place) {
        case NormPlace::Before:
            return "before";
        case NormPlace::After:
            return "after";
        case NormPlace::Both:
            return "before and after";
    }
    return "";
}

const char* name_of(ops::Activation activation) {
    return activation == ops::Activation::Silu ? "silu" : "tanh form of gelu";
}

}  // namespace

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
    compare("rotary_dim", a.rotary_dim, b.rotary_dim);
    compare("tied_embeddings", a.tied_embeddings, b.tied_embeddings);
    compare("qkv_bias", a.qkv_bias, b.qkv_bias);
    compare("output_bias", a.output_bias, b.output_bias);
    compare("mlp_bias", a.mlp_bias, b.mlp_bias);
    compare("qk_norm", name_of(a.qk_norm), name_of(b.qk_norm));
    compare("norms", name_of(a.norms), name_of(b.norms));
    compare("norms_add_one", a.norms_add_one, b.norms_add_one);
    compare("activation", name_of(a.activation), name_of(b.activation));
    compare("scaled_embeddings", a.scaled_embeddings, b.scaled_embeddings);
    const auto text = [](const auto& value) { return value ? fmt::format("{}", *value) : "none"; };
    compare("query_scalar", text(a.query_scalar), text(b.query_scalar));
    compare("sliding_window", text(a.sliding_window), text(b.sliding_window));
    compare("full_layer_period", a.full_layer_period, b.full_layer_period);
    compare("window_rope_theta", text(a.window_rope_theta), text(b.window_rope_theta));
    compare("experts", text_of(a.experts), text_of(b.experts));
    ModelSpec same_context = a;
    same_context.max_context = b.max_context;
    if (found.empty() && same_context != b) found.emplace_back("a setting that differences() does not name");
    return found;
}

LayerSpec layer_spec(const ModelSpec& spec, int64_t layer) {
    LayerSpec found;
    if (spec.experts) {
        found.has_experts = (layer + 1) % spec.experts->period == 0 &&
                            !std::ranges::binary_search(spec.experts->dense_layers, layer);
    }
    const bool full = spec.full_layer_period > 0 && (layer + 1) % spec.full_layer_period == 0;
    if (full || !spec.sliding_window) return found;
    found.window = spec.sliding_window;
    found.rotates_as_windowed = spec.window_rope_theta.has_value();
    return found;
}

std::vector<double> window_rope_frequencies(const ModelSpec& spec) {
    ModelSpec windowed = spec;
    windowed.rope_theta = spec.window_rope_theta.value();
    windowed.rope_scaling.reset();
    return rope_frequencies(windowed);
}

std::vector<double> rope_frequencies(const ModelSpec& spec, int64_t max_seq_len) {
    std::vector<double> frequencies;
    for (int64_t pair = 0; pair < rotary_dim(spec) / 2; ++pair) {
        const double frequency =
            std::pow(spec.rope_theta, -static_cast<double>(2 * pair) / static_cast<double>(rotary_dim(spec)));
        frequencies.push_back(scaled_frequency(frequency, pair, spec, max_seq_len));
    }
    return frequencies;
}

}  // namespace argosy::model
