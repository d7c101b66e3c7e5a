#include "model/parameter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

namespace argosy::model {
namespace {

using layout::Init;
using layout::InitKind;

constexpr double kDefaultDeviation = 0.02;
constexpr const char* kTable = "tok_embeddings.weight";

Parameter matrix(Role role, std::string name, int64_t rows, int64_t columns, double deviation) {
    return {role, {.name = std::move(name), .shape = {rows, columns}, .init = {InitKind::Normal, deviation}}};
}

/// The matrix of a linear layer; the tensor axis cuts its outputs (dim 0) or its inputs (dim 1).
Parameter projection(Role role, std::string name, int64_t outputs, int64_t inputs, double deviation, int cut) {
    Parameter parameter = matrix(role, std::move(name), outputs, inputs, deviation);
    parameter.tensor_dim = cut;
    parameter.is_projection = true;
    return parameter;
}

/// A vector that every rank of the tensor axis has.
Parameter vector(Role role, std::string name, int64_t size, double value) {
    return {
        role,
        {.name = std::move(name), .shape = {size}, .init = {InitKind::Constant, value}, .is_matrix = false}};
}

/// The bias of outputs that the tensor axis cuts.
Parameter cut_bias(Role role, std::string name, int64_t size) {
    Parameter parameter = vector(role, std::move(name), size, 0);
    parameter.tensor_dim = 0;
    return parameter;
}

/// The embedding's table. A tied table is also the head's matrix: its rows start with about unit length,
/// which keeps the initial logits of order one.
Parameter table(Role role, const ModelSpec& spec) {
    const double deviation = spec.tied_embeddings ? 1 / std::sqrt(static_cast<double>(spec.dim)) : 1;
    Parameter parameter = matrix(role, kTable, spec.vocab_size, spec.dim, deviation);
    parameter.tensor_dim = 0;
    parameter.is_projection = role == Role::Output;
    return parameter;
}

std::vector<Parameter> block(const ModelSpec& spec, int64_t layer) {
    constexpr int kOutputs = 0, kInputs = 1;
    const int64_t q = spec.num_heads * spec.head_dim, kv = spec.num_kv_heads * spec.head_dim;
    // Deeper layers start with smaller additions to the residual stream.
    const double deviation = kDefaultDeviation,
                 residual_deviation = kDefaultDeviation / std::sqrt(2.0 * static_cast<double>(layer + 1));
    const auto name = [&](const char* rest) { return fmt::format("layers.{}.{}", layer, rest); };
    const auto of_keys = [&](Parameter parameter) {
        parameter.max_parts = spec.num_kv_heads;
        return parameter;
    };

    std::vector<Parameter> parameters = {
        vector(Role::AttentionNorm, name("attention_norm.weight"), spec.dim, 1),
        projection(Role::Wq, name("attention.wq.weight"), q, spec.dim, deviation, kOutputs),
        of_keys(projection(Role::Wk, name("attention.wk.weight"), kv, spec.dim, deviation, kOutputs)),
        of_keys(projection(Role::Wv, name("attention.wv.weight"), kv, spec.dim, deviation, kOutputs)),
        projection(Role::Wo, name("attention.wo.weight"), spec.dim, q, residual_deviation, kInputs),
        vector(Role::FfnNorm, name("ffn_norm.weight"), spec.dim, 1),
        projection(Role::Gate, name("feed_forward.w1.weight"), spec.hidden_dim, spec.dim, deviation, kOutputs),
        projection(Role::Up, name("feed_forward.w3.weight"), spec.hidden_dim, spec.dim, residual_deviation,
                   kOutputs),
        projection(Role::Down, name("feed_forward.w2.weight"), spec.dim, spec.hidden_dim, residual_deviation,
                   kInputs),
    };
    const auto add = [&](std::initializer_list<Parameter> more) {
        parameters.insert(parameters.end(), more);
    };
    if (spec.qkv_bias) {
        add({cut_bias(Role::BiasQ, name("attention.wq.bias"), q),
             of_keys(cut_bias(Role::BiasK, name("attention.wk.bias"), kv)),
             of_keys(cut_bias(Role::BiasV, name("attention.wv.bias"), kv))});
    }
    if (spec.output_bias) add({vector(Role::BiasO, name("attention.wo.bias"), spec.dim, 0)});
    if (spec.mlp_bias) {
        add({cut_bias(Role::BiasGate, name("feed_forward.w1.bias"), spec.hidden_dim),
             cut_bias(Role::BiasUp, name("feed_forward.w3.bias"), spec.hidden_dim),
             vector(Role::BiasDown, name("feed_forward.w2.bias"), spec.dim, 0)});
    }
    if (spec.qk_norm) {
        add({vector(Role::QNorm, name("attention.q_norm.weight"), spec.head_dim, 1),
             vector(Role::KNorm, name("attention.k_norm.weight"), spec.head_dim, 1)});
    }
    return parameters;
}

std::vector<Parameter> head(const ModelSpec& spec) {
    const double deviation = 1 / std::sqrt(static_cast<double>(spec.dim));
    return {vector(Role::FinalNorm, "norm.weight", spec.dim, 1),
            spec.tied_embeddings
                ? table(Role::Output, spec)
                : projection(Role::Output, "output.weight", spec.vocab_size, spec.dim, deviation, 0)};
}

}  // namespace

std::span<const Role> roles_of(Join join) {
    static constexpr std::array kQkv = {Role::Wq, Role::Wk, Role::Wv};
    static constexpr std::array kQkvBias = {Role::BiasQ, Role::BiasK, Role::BiasV};
    static constexpr std::array kGateUp = {Role::Gate, Role::Up};
    static constexpr std::array kGateUpBias = {Role::BiasGate, Role::BiasUp};
    switch (join) {
        case Join::Qkv:
            return kQkv;
        case Join::QkvBias:
            return kQkvBias;
        case Join::GateUp:
            return kGateUp;
        case Join::GateUpBias:
            return kGateUpBias;
    }
    return {};
}

std::optional<Join> join_of(Role role) {
    for (int i = 0; i < kNumJoins; ++i) {
        const auto roles = roles_of(static_cast<Join>(i));
        if (std::ranges::find(roles, role) != roles.end()) return static_cast<Join>(i);
    }
    return std::nullopt;
}

const char* name_of(Role role) {
    if (const auto join = join_of(role)) return name_of(*join);
    switch (role) {
        case Role::Embedding:
            return "tok_embeddings";
        case Role::Wo:
        case Role::BiasO:
            return "wo";
        case Role::Down:
        case Role::BiasDown:
            return "w2";
        case Role::Output:
            return "output";
        default:
            return "";
    }
}

const char* name_of(Join join) {
    return join == Join::Qkv || join == Join::QkvBias ? "wq, wk, wv" : "w1, w3";
}

void GradientSum::start_microbatch(int64_t microbatch) {
    if (!rounding || rounding->microbatch == microbatch) return;
    rounding->microbatch = microbatch;
    rounding->count = 0;
}

void GradientSum::add_rounded(const at::Tensor& rows, int64_t first_row) const {
    ops::add_rounded(sum.narrow(0, first_row, rows.size(0)), rows, !empty,
                     rounding->from(first_row * sum.stride(0)));
}

void GradientSum::count_gradient() {
    empty = false;
    if (rounding) ++rounding->count;
}

ops::Stack Weights::stack(Join join) const {
    ops::Stack stack{.all = joined[join], .name = name_of(join)};
    for (const Role role : roles_of(join)) {
        if ((*this)[role].defined()) stack.parts.push_back((*this)[role]);
    }
    return with_casts(std::move(stack), roles_of(join)[0]);
}

ops::Stack Weights::stack(Role role) const {
    ops::Stack stack = ops::Stack::of((*this)[role]);
    stack.name = name_of(role);
    return with_casts(std::move(stack), role);
}

ops::Stack Weights::with_casts(ops::Stack stack, Role role) const {
    if (recipes[role] != nullptr) stack.recipe = recipes[role];
    if (scales[role].defined()) stack.all = {stack.whole(), scales[role], at::ScalarType::Undefined};
    return stack;
}

std::vector<std::vector<Parameter>> unit_parameters(const ModelSpec& spec) {
    std::vector<std::vector<Parameter>> units = {{table(Role::Embedding, spec)}};
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) units.push_back(block(spec, layer));
    units.push_back(head(spec));
    return units;
}

std::vector<std::string> unit_names(const ModelSpec& spec) {
    std::vector<std::string> names = {"embedding"};
    for (int64_t layer = 0; layer < spec.num_layers; ++layer)
        names.push_back("layers." + std::to_string(layer));
    names.push_back("head");
    return names;
}

int64_t num_parameters(const ModelSpec& spec) {
    int64_t count = 0;
    for (const auto& unit : unit_parameters(spec)) {
        for (const Parameter& parameter : unit) {
            if (spec.tied_embeddings && parameter.role == Role::Output) continue;
            count += layout::num_elements(parameter.spec.shape);
        }
    }
    return count;
}

}  // namespace argosy::model
