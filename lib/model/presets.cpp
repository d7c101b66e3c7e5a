// The table of presets, and preset(), which finds one by family and flavor.
#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "model/model_spec.h"

namespace argosy::model {
namespace {

struct Preset {
    const char* flavor;
    ModelSpec spec;
};

constexpr int64_t kLlamaVocabulary = 128256, kQwenVocabulary = 151936, kLargeQwenVocabulary = 152064;
constexpr RopeScaling kLlama31{}, kLlama32{.factor = 32};

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

ModelSpec llama3(const Sizes& sizes, std::optional<RopeScaling> scaling, bool tied = false) {
    ModelSpec spec = with_sizes("llama3", sizes);
    spec.rope_scaling = scaling;
    spec.max_context = scaling ? 131072 : 8192;
    spec.tied_embeddings = tied;
    return spec;
}

ModelSpec qwen(const char* name, const Sizes& sizes, bool tied, double norm_eps = 1e-6) {
    ModelSpec spec = with_sizes(name, sizes);
    spec.norm_eps = norm_eps;
    spec.rope_theta = 1e6;
    spec.tied_embeddings = tied;
    spec.qkv_bias = spec.name == "qwen2";
    spec.qk_norm = spec.name == "qwen3";
    spec.max_context = spec.qk_norm ? 40960 : 32768;
    return spec;
}

// Published models, except for debugmodel and for 256x6x16 and 4096x12x32 (dim x layers x heads).
const Preset kPresets[] = {
    {"debugmodel", llama3({512, 128, 4, 4, 2, 32, 352}, std::nullopt)},
    {"256x6x16", llama3({32000, 256, 6, 16, 16, 16, 768}, std::nullopt)},
    {"4096x12x32", llama3({32000, 4096, 12, 32, 32, 128, 11008}, std::nullopt)},
    {"1B", llama3({kLlamaVocabulary, 2048, 16, 32, 8, 64, 8192}, kLlama32, /*tied=*/true)},
    {"3B", llama3({kLlamaVocabulary, 3072, 28, 24, 8, 128, 8192}, kLlama32, /*tied=*/true)},
    {"8B", llama3({kLlamaVocabulary, 4096, 32, 32, 8, 128, 14336}, kLlama31)},
    {"70B", llama3({kLlamaVocabulary, 8192, 80, 64, 8, 128, 28672}, kLlama31)},
    {"405B", llama3({kLlamaVocabulary, 16384, 126, 128, 8, 128, 53248}, kLlama31)},
    {"0.5B", qwen("qwen2", {kQwenVocabulary, 896, 24, 14, 2, 64, 4864}, /*tied=*/true)},
    {"1.5B", qwen("qwen2", {kQwenVocabulary, 1536, 28, 12, 2, 128, 8960}, /*tied=*/true)},
    {"3B", qwen("qwen2", {kQwenVocabulary, 2048, 36, 16, 2, 128, 11008}, /*tied=*/true)},
    {"7B", qwen("qwen2", {kLargeQwenVocabulary, 3584, 28, 28, 4, 128, 18944}, /*tied=*/false)},
    {"14B", qwen("qwen2", {kLargeQwenVocabulary, 5120, 48, 40, 8, 128, 13824}, /*tied=*/false, 1e-5)},
    {"0.6B", qwen("qwen3", {kQwenVocabulary, 1024, 28, 16, 8, 128, 3072}, /*tied=*/true)},
    {"1.7B", qwen("qwen3", {kQwenVocabulary, 2048, 28, 16, 8, 128, 6144}, /*tied=*/true)},
    {"4B", qwen("qwen3", {kQwenVocabulary, 2560, 36, 32, 8, 128, 9728}, /*tied=*/true)},
    {"8B", qwen("qwen3", {kQwenVocabulary, 4096, 36, 32, 8, 128, 12288}, /*tied=*/false)},
    {"14B", qwen("qwen3", {kQwenVocabulary, 5120, 40, 40, 8, 128, 17408}, /*tied=*/false)},
    {"32B", qwen("qwen3", {kQwenVocabulary, 5120, 64, 64, 8, 128, 25600}, /*tied=*/false)},
};

std::string known_presets() {
    std::string text, family;
    for (const Preset& preset : kPresets) {
        if (preset.spec.name != family)
            text += fmt::format("{}{}:", family.empty() ? "" : "; ", preset.spec.name);
        family = preset.spec.name;
        text += fmt::format(" {}", preset.flavor);
    }
    return text;
}

}  // namespace

ModelSpec preset(const std::string& name, const std::string& flavor) {
    for (const Preset& preset : kPresets) {
        if (preset.spec.name == name && preset.flavor == flavor) return preset.spec;
    }
    throw UserError("no preset has model.name = \"{}\" and model.flavor = \"{}\"; there are {}", name, flavor,
                    known_presets());
}

}  // namespace argosy::model
