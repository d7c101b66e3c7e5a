#include "model/units.h"

#include "model/block.h"
#include "model/head.h"

namespace argosy::model {
namespace {

constexpr const char* kRouterBias = ".moe.router.bias";

}  // namespace

std::vector<std::vector<Parameter>> unit_parameters(const ModelSpec& spec) {
    Unit embedding, head;
    declare_embedding(spec, embedding);
    std::vector<std::vector<Parameter>> units = {embedding.parameters()};
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
        Unit block("layers." + std::to_string(layer) + ".");
        declare_block(spec, layer, block);
        units.push_back(block.parameters());
    }
    declare_head(spec, head);
    units.push_back(head.parameters());
    return units;
}

std::vector<std::string> unit_names(const ModelSpec& spec) {
    std::vector<std::string> names = {"embedding"};
    for (int64_t layer = 0; layer < spec.num_layers; ++layer)
        names.push_back("layers." + std::to_string(layer));
    names.push_back("head");
    return names;
}

std::vector<layout::ParamSpec> model_parameters(const ModelSpec& spec) {
    std::vector<layout::ParamSpec> parameters;
    for (const auto& unit : unit_parameters(spec)) {
        for (const Parameter& parameter : unit) {
            const bool tied = parameter.is_table && parameter.is_projection;
            if (!tied) parameters.push_back(parameter.spec);
        }
    }
    return parameters;
}

std::map<int64_t, layout::ParamSpec> router_biases(const ModelSpec& spec) {
    std::map<int64_t, layout::ParamSpec> biases;
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
        if (!layer_spec(spec, layer).has_experts) continue;
        biases[layer] = {.name = "layers." + std::to_string(layer) + kRouterBias,
                         .shape = {spec.experts->router.num_experts}};
    }
    return biases;
}

bool is_router_bias(std::string_view name) { return name.ends_with(kRouterBias); }

int64_t num_parameters(const ModelSpec& spec) {
    int64_t count = 0;
    for (const layout::ParamSpec& parameter : model_parameters(spec))
        count += layout::num_elements(parameter.shape);
    return count;
}

}  // namespace argosy::model
