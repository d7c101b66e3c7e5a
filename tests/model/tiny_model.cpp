#include "model/tiny_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <limits>

#include "model/head.h"
#include "ops/numerics.h"

namespace argosy::model {
namespace {

/// Random weights under which the residual stream stays of order one; norms around 1, biases around 0.
at::Tensor random_weight(testing::RandomTensors& random, const layout::ParamSpec& spec, at::ScalarType type) {
    if (spec.shape.size() == 1)
        return (random.normal(spec.shape, at::kDouble, 0.3) + spec.init.value).to(type);
    return random.normal(spec.shape, type, 1 / std::sqrt(static_cast<double>(spec.shape[1])));
}

/// Makes the tensors of each join of the unit adjacent in memory.
template <class TensorOf>
Joined join(const std::vector<Parameter>& unit, TensorOf tensor_of) {
    Joined joined;
    for (int first = 0; first < std::ssize(unit); first += unit[first].place.count) {
        const Place& place = unit[first].place;
        if (!place.is_join()) continue;
        std::vector<at::Tensor*> parts;
        std::vector<at::Tensor> apart;
        for (int i = first; i < first + place.count; ++i) {
            parts.push_back(&tensor_of(unit[i].spec.name));
            apart.push_back(*parts.back());
        }
        const at::Tensor all = at::cat(apart);
        joined.emplace(first, all);
        for (int64_t begin = 0; at::Tensor * part : parts) {
            const int64_t rows = part->size(0);
            *part = all.narrow(0, begin, rows);
            begin += rows;
        }
    }
    return joined;
}

}  // namespace

std::vector<ModelSpec> tiny_specs() {
    ModelSpec llama{.name = "llama3",
                    .vocab_size = 37,
                    .dim = 20,
                    .num_layers = 2,
                    .num_heads = 6,
                    .num_kv_heads = 2,
                    .head_dim = 4,
                    .hidden_dim = 29,
                    .rope_theta = 1000};
    ModelSpec tied = llama, qwen2 = llama, qwen3 = llama;
    tied.tied_embeddings = true;
    tied.num_kv_heads = 6;
    qwen2.name = "qwen2";
    qwen2.qkv_bias = qwen2.tied_embeddings = true;
    qwen3.name = "qwen3";
    qwen3.qk_norm = QkNorm::Heads;
    qwen3.num_heads = 5;
    qwen3.num_kv_heads = 1;
    qwen3.head_dim = 10;
    ModelSpec biased = llama;
    biased.qkv_bias = biased.output_bias = biased.mlp_bias = true;
    ModelSpec mistral = llama;
    mistral.name = "mistral";
    mistral.sliding_window = 3;
    ModelSpec olmo3 = mistral;
    olmo3.name = "olmo3";
    olmo3.norms = NormPlace::After;
    olmo3.qk_norm = QkNorm::Together;
    olmo3.full_layer_period = 2;
    olmo3.window_rope_theta = 50;
    ModelSpec gemma3 = olmo3;
    gemma3.name = "gemma3";
    gemma3.norms = NormPlace::Both;
    gemma3.qk_norm = QkNorm::Heads;
    gemma3.activation = ops::Activation::GeluTanh;
    gemma3.norms_add_one = gemma3.scaled_embeddings = gemma3.tied_embeddings = true;
    gemma3.query_scalar = 7;
    ModelSpec phi3 = qwen3;
    phi3.name = "phi3";
    phi3.qk_norm = QkNorm::None;
    phi3.rotary_dim = 6;
    ModelSpec mixtral = llama;
    mixtral.name = "mixtral";
    mixtral.experts = {.router = {.num_experts = 5, .top_k = 2}, .hidden_dim = 11};
    ModelSpec qwen3_moe = qwen3;
    qwen3_moe.name = "qwen3_moe";
    qwen3_moe.num_layers = 3;
    qwen3_moe.experts = {
        .router = {.num_experts = 7, .top_k = 3, .normalize = false}, .hidden_dim = 6, .period = 2};
    ModelSpec normed = gemma3;
    normed.name = "normed_experts";
    normed.experts = {.router = {.num_experts = 4, .top_k = 4},
                      .hidden_dim = 9,
                      .shared_hidden_dim = 5,
                      .dense_layers = {0}};
    ModelSpec glm4_moe = qwen3;
    glm4_moe.name = "glm4_moe";
    glm4_moe.rotary_dim = 6;
    glm4_moe.experts = {.router = {.num_experts = 6,
                                   .top_k = 3,
                                   .score = ops::Router::Score::Sigmoid,
                                   .scale = 1.5,
                                   .num_groups = 3,
                                   .top_groups = 2},
                        .hidden_dim = 7,
                        .shared_hidden_dim = 9,
                        .dense_layers = {0}};
    return {llama,  tied, qwen2,   qwen3,     biased, mistral, olmo3,
            gemma3, phi3, mixtral, qwen3_moe, normed, glm4_moe};
}

TinyModel::TinyModel(const ModelSpec& model_spec, at::ScalarType element_type, int64_t num_sequences,
                     int64_t seq_len)
    : spec(model_spec), type(element_type), units(unit_parameters(spec)) {
    // The first gradient must overwrite its sum, so the sums begin as NaN.
    const double unset = std::numeric_limits<double>::quiet_NaN();
    for (const auto& unit : units) {
        for (const Parameter& parameter : unit) {
            const auto& [name, shape] = std::tie(parameter.spec.name, parameter.spec.shape);
            if (values.contains(name)) continue;
            values[name] = random_weight(random, parameter.spec, type);
            sums[name].sum = at::full(shape, unset, ops::accumulation_type(type));
        }
        joined_values.push_back(join(
            unit, [&](const std::string& name) -> auto& { return values.at(name); }));
        joined_sums.push_back(join(
            unit, [&](const std::string& name) -> auto& { return sums.at(name).sum; }));
    }
    const int64_t tokens = num_sequences * seq_len;
    batch = {random.integers({tokens}, 0, spec.vocab_size), random.integers({tokens}, -2, spec.vocab_size),
             num_sequences, seq_len};
    rope = rope_tables(spec, seq_len, ops::accumulation_type(type));
}

Weights TinyModel::weights(int unit) const {
    Weights found;
    for (const Parameter& parameter : units[unit]) found.tensors.push_back(values.at(parameter.spec.name));
    if (tells_joins) found.joined = joined_values[unit];
    return found;
}

Gradients TinyModel::gradients(int unit) {
    Gradients found;
    for (const Parameter& parameter : units[unit]) found.sums.push_back(&sums.at(parameter.spec.name));
    if (tells_joins) found.joined = joined_sums[unit];
    return found;
}

at::Tensor TinyModel::scalar(double value) const { return at::full({}, value, ops::accumulation_type(type)); }

at::Tensor TinyModel::loss_and_gradients(RecomputeMode mode, double scale) {
    std::vector<std::unique_ptr<Layer>> layers;
    layers.push_back(std::make_unique<Embedding>(spec, axis));
    for (int64_t layer = 0; layer < spec.num_layers; ++layer)
        layers.push_back(std::make_unique<Block>(spec, layer, axis, context, experts, rope));
    const int num_layers = static_cast<int>(layers.size());
    std::vector<Tape> tapes(num_layers);
    at::Tensor x;
    for (int i = 0; i < num_layers; ++i) x = layers[i]->forward(weights(i), x, batch, mode, tapes[i]);
    auto [loss, dx] =
        Head(spec, axis)
            .loss_and_input_gradient(weights(num_layers), x, batch, scalar(scale), gradients(num_layers));
    for (int i = num_layers; i-- > 0;) {
        WeightWork work;
        if (mode != RecomputeMode::None) layers[i]->recompute(weights(i), batch, tapes[i]);
        dx = layers[i]->backward_input(weights(i), dx, batch, tapes[i], work);
        work.run(gradients(i));
    }
    return loss;
}

}  // namespace argosy::model
