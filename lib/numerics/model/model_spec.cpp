// The table of presets, rotary frequencies, and the comparison of two models.
#include "model/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include "base/error.h"

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
    return static_cast<double>(spec.head_dim) * std::log(positions_per_radian) /
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
    end = std::min(end, static_cast<double>(spec.head_dim - 1));
    if (begin == end) end += 0.001;
    const double divided = std::clamp((static_cast<double>(pair) - begin) / (end - begin), 0.0, 1.0);
    return divided * frequency / scaling.factor + (1 - divided) * frequency;
}

double scaled_frequency(double frequency, int64_t pair, const ModelSpec& spec) {
    if (!spec.rope_scaling) return frequency;
    switch (spec.rope_scaling->type) {
        case RopeScaling::Type::Linear:
            return frequency / spec.rope_scaling->factor;
        case RopeScaling::Type::Llama3:
            return llama3_frequency(frequency, *spec.rope_scaling);
        case RopeScaling::Type::Yarn:
            return yarn_frequency(frequency, pair, spec);
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
    }
    return "";
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

const char* name_of(NormPlace place) { return place == NormPlace::Before ? "before" : "after"; }

struct Preset {
    const char *name, *flavor;
    ModelSpec spec;
};

constexpr int64_t kLlamaVocabulary = 128256, kQwenVocabulary = 151936, kLargeQwenVocabulary = 152064;
constexpr int64_t kOlmo2Vocabulary = 100352, kOlmo3Vocabulary = 100278;
constexpr RopeScaling kLlama31{}, kLlama32{.factor = 32};
constexpr RopeScaling kOlmo3{.type = RopeScaling::Type::Yarn,
                             .factor = 8,
                             .original_context = 8192,
                             .attention_factor = 1.2079441541679836};

/// {vocabulary, dim, layers, heads, key/value heads, head dim, hidden dim}
using Sizes = std::array<int64_t, 7>;

ModelSpec with_sizes(const char* name, const Sizes& sizes) {
    ModelSpec spec;
    spec.name = name;
    spec.vocab_size = sizes[0];
    spec.dim = sizes[1];
    spec.num_layers = sizes[2];
    spec.num_heads = sizes[3];
    spec.num_kv_heads = sizes[4];
    spec.head_dim = sizes[5];
    spec.hidden_dim = sizes[6];
    return spec;
}

/// A Llama with the rotary frequencies of the versions before Llama 3. The architecture is that of llama3.
ModelSpec llama2(const Sizes& sizes, int64_t max_context = 4096) {
    ModelSpec spec = with_sizes("llama3", sizes);
    spec.rope_theta = 10000;
    spec.max_context = max_context;
    return spec;
}

ModelSpec llama3(const Sizes& sizes, std::optional<RopeScaling> scaling, bool tied = false) {
    ModelSpec spec = with_sizes("llama3", sizes);
    spec.rope_scaling = scaling;
    spec.max_context = scaling ? 131072 : 8192;
    spec.tied_embeddings = tied;
    return spec;
}

/// The first version of Mistral 7B; later ones have no window.
ModelSpec mistral(const Sizes& sizes) {
    ModelSpec spec = with_sizes("mistral", sizes);
    spec.rope_theta = 10000;
    spec.sliding_window = 4096;
    spec.max_context = 32768;
    return spec;
}

/// The window of OLMo 3 comes with the frequencies of its long context, if those are scaled.
ModelSpec olmo(const char* name, const Sizes& sizes, std::optional<RopeScaling> scaling = {}) {
    ModelSpec spec = with_sizes(name, sizes);
    spec.norm_eps = 1e-6;
    spec.norms = NormPlace::After;
    spec.qk_norm = QkNorm::Together;
    spec.max_context = scaling ? 65536 : 4096;
    if (spec.name == "olmo2") return spec;
    spec.sliding_window = 4096;
    spec.full_layer_period = 4;
    spec.rope_scaling = scaling;
    if (scaling) spec.window_rope_theta = spec.rope_theta;
    return spec;
}

ModelSpec qwen(const char* name, const Sizes& sizes, bool tied, double norm_eps = 1e-6) {
    ModelSpec spec = with_sizes(name, sizes);
    spec.norm_eps = norm_eps;
    spec.rope_theta = 1e6;
    spec.tied_embeddings = tied;
    spec.qkv_bias = spec.name == "qwen2";
    const bool third = spec.name == "qwen3";
    if (third) spec.qk_norm = QkNorm::Heads;
    spec.max_context = third ? 40960 : 32768;
    return spec;
}

// Published models, except for debugmodel and for 256x6x16 and 4096x12x32 (dim x layers x heads). llama2
// 271M, 1B and 26B are sizes of TorchTitan; tinyllama 300M is MicroLlama. 8B-8k and 70B-8k are the first
// Llama 3, without scaled frequencies.
const Preset kPresets[] = {
    {"llama3", "debugmodel", llama3({512, 128, 4, 4, 2, 32, 352}, std::nullopt)},
    {"llama3", "256x6x16", llama3({32000, 256, 6, 16, 16, 16, 768}, std::nullopt)},
    {"llama3", "4096x12x32", llama3({32000, 4096, 12, 32, 32, 128, 11008}, std::nullopt)},
    {"llama3", "1B", llama3({kLlamaVocabulary, 2048, 16, 32, 8, 64, 8192}, kLlama32, /*tied=*/true)},
    {"llama3", "3B", llama3({kLlamaVocabulary, 3072, 28, 24, 8, 128, 8192}, kLlama32, /*tied=*/true)},
    {"llama3", "8B", llama3({kLlamaVocabulary, 4096, 32, 32, 8, 128, 14336}, kLlama31)},
    {"llama3", "70B", llama3({kLlamaVocabulary, 8192, 80, 64, 8, 128, 28672}, kLlama31)},
    {"llama3", "405B", llama3({kLlamaVocabulary, 16384, 126, 128, 8, 128, 53248}, kLlama31)},
    {"llama3", "8B-8k", llama3({kLlamaVocabulary, 4096, 32, 32, 8, 128, 14336}, std::nullopt)},
    {"llama3", "70B-8k", llama3({kLlamaVocabulary, 8192, 80, 64, 8, 128, 28672}, std::nullopt)},
    {"llama2", "256x6x16", llama2({32000, 256, 6, 16, 16, 16, 768})},
    {"llama2", "271M", llama2({32000, 1024, 16, 8, 8, 128, 2816})},
    {"llama2", "1B", llama2({32000, 2048, 18, 16, 16, 128, 5632})},
    {"llama2", "7B", llama2({32000, 4096, 32, 32, 32, 128, 11008})},
    {"llama2", "13B", llama2({32000, 5120, 40, 40, 40, 128, 13824})},
    {"llama2", "26B", llama2({32000, 5120, 80, 40, 40, 128, 13824})},
    {"llama2", "70B", llama2({32000, 8192, 80, 64, 8, 128, 28672})},
    {"tinyllama", "300M", llama2({32000, 1024, 12, 16, 4, 64, 5632}, 2048)},
    {"tinyllama", "1.1B", llama2({32000, 2048, 22, 32, 4, 64, 5632}, 2048)},
    {"mistral", "7B", mistral({32000, 4096, 32, 32, 8, 128, 14336})},
    {"qwen2", "0.5B", qwen("qwen2", {kQwenVocabulary, 896, 24, 14, 2, 64, 4864}, /*tied=*/true)},
    {"qwen2", "1.5B", qwen("qwen2", {kQwenVocabulary, 1536, 28, 12, 2, 128, 8960}, /*tied=*/true)},
    {"qwen2", "3B", qwen("qwen2", {kQwenVocabulary, 2048, 36, 16, 2, 128, 11008}, /*tied=*/true)},
    {"qwen2", "7B", qwen("qwen2", {kLargeQwenVocabulary, 3584, 28, 28, 4, 128, 18944}, /*tied=*/false)},
    {"qwen2", "14B",
     qwen("qwen2", {kLargeQwenVocabulary, 5120, 48, 40, 8, 128, 13824}, /*tied=*/false, 1e-5)},
    {"qwen3", "0.6B", qwen("qwen3", {kQwenVocabulary, 1024, 28, 16, 8, 128, 3072}, /*tied=*/true)},
    {"qwen3", "1.7B", qwen("qwen3", {kQwenVocabulary, 2048, 28, 16, 8, 128, 6144}, /*tied=*/true)},
    {"qwen3", "4B", qwen("qwen3", {kQwenVocabulary, 2560, 36, 32, 8, 128, 9728}, /*tied=*/true)},
    {"qwen3", "8B", qwen("qwen3", {kQwenVocabulary, 4096, 36, 32, 8, 128, 12288}, /*tied=*/false)},
    {"qwen3", "14B", qwen("qwen3", {kQwenVocabulary, 5120, 40, 40, 8, 128, 17408}, /*tied=*/false)},
    {"qwen3", "32B", qwen("qwen3", {kQwenVocabulary, 5120, 64, 64, 8, 128, 25600}, /*tied=*/false)},
    {"olmo2", "1B", olmo("olmo2", {kOlmo2Vocabulary, 2048, 16, 16, 16, 128, 8192})},
    {"olmo2", "7B", olmo("olmo2", {kOlmo2Vocabulary, 4096, 32, 32, 32, 128, 11008})},
    {"olmo2", "13B", olmo("olmo2", {kOlmo2Vocabulary, 5120, 40, 40, 40, 128, 13824})},
    {"olmo2", "32B", olmo("olmo2", {kOlmo2Vocabulary, 5120, 64, 40, 8, 128, 27648})},
    {"olmo3", "7B", olmo("olmo3", {kOlmo3Vocabulary, 4096, 32, 32, 32, 128, 11008}, kOlmo3)},
    {"olmo3", "32B", olmo("olmo3", {kOlmo3Vocabulary, 5120, 64, 40, 8, 128, 27648}, kOlmo3)},
};

std::string known_presets() {
    std::string text, family;
    for (const Preset& preset : kPresets) {
        if (preset.name != family) text += fmt::format("{}{}:", family.empty() ? "" : "; ", preset.name);
        family = preset.name;
        text += fmt::format(" {}", preset.flavor);
    }
    return text;
}

}  // namespace

ModelSpec preset(const std::string& name, const std::string& flavor) {
    for (const Preset& preset : kPresets) {
        if (preset.name == name && preset.flavor == flavor) return preset.spec;
    }
    throw UserError("no preset has model.name = \"{}\" and model.flavor = \"{}\"; there are {}", name, flavor,
                    known_presets());
}

std::string architecture_of(const std::string& name) {
    const auto found = std::ranges::find(kPresets, name, &Preset::name);
    return found == std::end(kPresets) ? name : found->spec.name;
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
    compare("output_bias", a.output_bias, b.output_bias);
    compare("mlp_bias", a.mlp_bias, b.mlp_bias);
    compare("qk_norm", name_of(a.qk_norm), name_of(b.qk_norm));
    compare("norms", name_of(a.norms), name_of(b.norms));
    const auto text = [](const auto& value) { return value ? fmt::format("{}", *value) : "none"; };
    compare("sliding_window", text(a.sliding_window), text(b.sliding_window));
    compare("full_layer_period", a.full_layer_period, b.full_layer_period);
    compare("window_rope_theta", text(a.window_rope_theta), text(b.window_rope_theta));
    return found;
}

LayerSpec layer_spec(const ModelSpec& spec, int64_t layer) {
    const bool full = spec.full_layer_period > 0 && (layer + 1) % spec.full_layer_period == 0;
    if (full || !spec.sliding_window) return {};
    return {.window = spec.sliding_window, .rotates_as_windowed = spec.window_rope_theta.has_value()};
}

std::vector<double> window_rope_frequencies(const ModelSpec& spec) {
    ModelSpec windowed = spec;
    windowed.rope_theta = spec.window_rope_theta.value();
    windowed.rope_scaling.reset();
    return rope_frequencies(windowed);
}

std::vector<double> rope_frequencies(const ModelSpec& spec) {
    std::vector<double> frequencies;
    for (int64_t pair = 0; pair < spec.head_dim / 2; ++pair) {
        const double frequency =
            std::pow(spec.rope_theta, -static_cast<double>(2 * pair) / static_cast<double>(spec.head_dim));
        frequencies.push_back(scaled_frequency(frequency, pair, spec));
    }
    return frequencies;
}

}  // namespace argosy::model
