// The table of presets.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/error.h"
#include "model/families.h"
#include "model/model_spec.h"

namespace argosy::model {
namespace {

struct Preset {
    const char *name, *flavor;
    ModelSpec spec;
};

constexpr int64_t kLlamaVocabulary = 128256, kQwenVocabulary = 151936, kLargeQwenVocabulary = 152064;
constexpr int64_t kOlmo2Vocabulary = 100352, kOlmo3Vocabulary = 100278;
const RopeScaling kLlama31{}, kLlama32{.factor = 32};
const RopeScaling kOlmo3{.type = RopeScaling::Type::Yarn,
                         .factor = 8,
                         .original_context = 8192,
                         .attention_factor = 1.2079441541679836};
constexpr int64_t kGemmaVocabulary = 262144, kLargeGemmaVocabulary = 262208;
const RopeScaling kGemma3{.type = RopeScaling::Type::Linear, .factor = 8};

/// {vocabulary, dim, layers, heads, key/value heads, head dim, hidden dim}
using Sizes = std::array<int64_t, 7>;

const Family& family_called(std::string_view name) {
    return *std::ranges::find(kFamilies, name, &Family::name);
}

ModelSpec with_sizes(const char* name, const Sizes& sizes) {
    ModelSpec spec = model_of(family_called(name));
    spec.vocab_size = sizes[0];
    spec.dim = sizes[1];
    spec.num_layers = sizes[2];
    spec.num_heads = sizes[3];
    spec.num_kv_heads = sizes[4];
    spec.head_dim = sizes[5];
    spec.hidden_dim = sizes[6];
    return spec;
}

/// Gives the window to the layers that have one in the family. Called after the rotary settings.
void add_window(ModelSpec& spec, int64_t window) {
    spec.sliding_window = window;
    spec.full_layer_period = family_called(spec.name).full_layer_period;
    spec.window_rope_theta = window_rope_theta_of(spec, kGemmaWindowBase);
}

/// A Llama with the rotary frequencies of the versions before Llama 3. The architecture is that of llama3.
ModelSpec llama2(const Sizes& sizes, int64_t max_context = 4096) {
    ModelSpec spec = with_sizes("llama3", sizes);
    spec.norm_eps = 1e-5;
    spec.max_context = max_context;
    return spec;
}

ModelSpec llama3(const Sizes& sizes, std::optional<RopeScaling> scaling, bool tied = false) {
    ModelSpec spec = llama2(sizes, scaling ? 131072 : 8192);
    spec.rope_theta = 500000;
    spec.rope_scaling = scaling;
    spec.tied_embeddings = tied;
    return spec;
}

/// The first version of Mistral 7B; later ones have no window.
ModelSpec mistral(const Sizes& sizes) {
    ModelSpec spec = with_sizes("mistral", sizes);
    spec.norm_eps = 1e-5;
    spec.sliding_window = 4096;
    spec.max_context = 32768;
    return spec;
}

/// The window of OLMo 3 comes with the frequencies of its long context, if those are scaled.
ModelSpec olmo(const char* name, const Sizes& sizes, std::optional<RopeScaling> scaling = {}) {
    ModelSpec spec = with_sizes(name, sizes);
    spec.norm_eps = 1e-6;
    spec.rope_theta = 500000;
    spec.max_context = scaling ? 65536 : 4096;
    if (spec.name == "olmo2") return spec;
    spec.rope_scaling = scaling;
    add_window(spec, 4096);
    return spec;
}

/// The models without the encoder of images.
ModelSpec gemma3(const Sizes& sizes, int64_t window, double query_scalar,
                 std::optional<RopeScaling> scaling = {}) {
    ModelSpec spec = with_sizes("gemma3", sizes);
    spec.query_scalar = query_scalar;
    spec.rope_scaling = scaling;
    add_window(spec, window);
    spec.max_context = scaling ? 131072 : 32768;
    return spec;
}

ModelSpec phi3(const Sizes& sizes, double rope_theta, int64_t max_context,
               std::optional<int64_t> window = {}) {
    ModelSpec spec = with_sizes("phi3", sizes);
    spec.rope_theta = rope_theta;
    spec.max_context = max_context;
    spec.sliding_window = window;
    return spec;
}

ModelSpec qwen(const char* name, const Sizes& sizes, bool tied, double norm_eps = 1e-6) {
    ModelSpec spec = with_sizes(name, sizes);
    spec.norm_eps = norm_eps;
    spec.rope_theta = 1e6;
    spec.tied_embeddings = tied;
    spec.max_context = spec.name == "qwen2" ? 32768 : 40960;
    return spec;
}

ModelSpec mixtral(const Sizes& sizes, int64_t num_experts, int64_t max_context) {
    ModelSpec spec = with_sizes("mixtral", sizes);
    spec.experts = {.router = {.num_experts = num_experts, .top_k = 2}, .hidden_dim = spec.hidden_dim};
    spec.max_context = max_context;
    return spec;
}

ModelSpec qwen3_moe(const Sizes& sizes, const ops::Router& router, int64_t expert_hidden_dim) {
    ModelSpec spec = qwen("qwen3_moe", sizes, /*tied=*/false);
    spec.experts = {.router = router, .hidden_dim = expert_hidden_dim};
    return spec;
}

/// GLM 4.5 Air without its layer that predicts further tokens.
ModelSpec glm4_moe(const Sizes& sizes, const ops::Router& router, int64_t expert_hidden_dim) {
    ModelSpec spec = with_sizes("glm4_moe", sizes);
    spec.rope_theta = 1e6;
    spec.rotary_dim = spec.head_dim / 2;
    spec.qkv_bias = true;
    spec.experts = {.router = router,
                    .hidden_dim = expert_hidden_dim,
                    .shared_hidden_dim = expert_hidden_dim,
                    .dense_layers = {0}};
    spec.experts->router.score = ops::Router::Score::Sigmoid;
    return spec;
}

// Published models, except for both debugmodels and for 256x6x16 and 4096x12x32 (dim x layers x heads).
// llama2 271M, 1B and 26B are sizes of TorchTitan; tinyllama 300M is MicroLlama. 8B-8k and 70B-8k are the
// first Llama 3, without scaled frequencies.
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
    {"gemma3", "270M", gemma3({kGemmaVocabulary, 640, 18, 4, 1, 256, 2048}, 512, 256)},
    {"gemma3", "1B", gemma3({kGemmaVocabulary, 1152, 26, 4, 1, 256, 6912}, 512, 256)},
    {"gemma3", "4B", gemma3({kLargeGemmaVocabulary, 2560, 34, 8, 4, 256, 10240}, 1024, 256, kGemma3)},
    {"gemma3", "12B", gemma3({kLargeGemmaVocabulary, 3840, 48, 16, 8, 256, 15360}, 1024, 256, kGemma3)},
    {"gemma3", "27B", gemma3({kLargeGemmaVocabulary, 5376, 62, 32, 16, 128, 21504}, 1024, 168, kGemma3)},
    {"phi3", "mini-4k", phi3({32064, 3072, 32, 32, 32, 96, 8192}, 1e4, 4096, 2047)},
    {"phi3", "medium-4k", phi3({32064, 5120, 40, 40, 10, 128, 17920}, 1e4, 4096, 2047)},
    {"phi3", "4", phi3({100352, 5120, 40, 40, 10, 128, 17920}, 250000, 16384)},
    {"mixtral", "8x7B", mixtral({32000, 4096, 32, 32, 8, 128, 14336}, 8, 32768)},
    {"qwen3_moe", "debugmodel", qwen3_moe({512, 128, 4, 4, 2, 32, 352}, {8, 2}, 96)},
    {"qwen3_moe", "30B-A3B", qwen3_moe({kQwenVocabulary, 2048, 48, 32, 4, 128, 6144}, {128, 8}, 768)},
    {"qwen3_moe", "235B-A22B", qwen3_moe({kQwenVocabulary, 4096, 94, 64, 4, 128, 12288}, {128, 8}, 1536)},
    {"glm4_moe", "106B-A12B", glm4_moe({151552, 4096, 46, 96, 8, 128, 10944}, {128, 8}, 1408)},
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

std::vector<NamedPreset> presets() {
    std::vector<NamedPreset> all;
    for (const Preset& preset : kPresets) all.push_back({preset.name, preset.flavor, preset.spec});
    return all;
}

std::string architecture_of(const std::string& name) {
    const auto found = std::ranges::find(kPresets, name, &Preset::name);
    return found == std::end(kPresets) ? name : found->spec.name;
}

std::string model_type_of(const std::string& architecture) {
    const auto family = std::ranges::find(kFamilies, architecture, &Family::name);
    return family == std::end(kFamilies) ? architecture : family->model_type;
}

}  // namespace argosy::model
