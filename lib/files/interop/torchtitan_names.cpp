#include "interop/torchtitan_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"
#include "interop/names.h"
#include "model/units.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;
using checkpoint::TensorSource;

constexpr const char *kStates = "optimizer.state.", *kStep = ".step";

struct StateName {
    const char *ours, *theirs;
};
/// AdamW's, and Muon's at the end.
constexpr StateName kStateNames[] = {{"optimizer/first/", ".exp_avg"},
                                     {"optimizer/second/", ".exp_avg_sq"},
                                     {"optimizer/momentum/", ".momentum_buffer"}};

/// Names of a parameter within its layer, or of one of no layer.
struct TitanName {
    std::string_view ours;
    // Since July 2026; version 0.2.2, if it differs; another one between them.
    std::array<std::string_view, 3> theirs;
    // A tensor that also has other parameters: that of attention since April 2026, those of w1 and w3 in
    // TorchTitan's override of the feed-forward.
    std::array<std::string_view, 2> fused = {};
};
constexpr TitanName kTitanNames[] = {
    {"output.weight", {"lm_head.weight", "output.weight"}},
    {"attention.wq.weight",
     {"attention.qkv_linear.wq.weight", "attention.wq.weight"},
     {"attention.qkv_linear.wqkv.weight"}},
    {"attention.wk.weight",
     {"attention.qkv_linear.wk.weight", "attention.wk.weight"},
     {"attention.qkv_linear.wqkv.weight"}},
    {"attention.wv.weight",
     {"attention.qkv_linear.wv.weight", "attention.wv.weight"},
     {"attention.qkv_linear.wqkv.weight"}},
    {"feed_forward.w1.weight", {"feed_forward.w1.weight"}, {"feed_forward.w13"}},
    {"feed_forward.w3.weight", {"feed_forward.w3.weight"}, {"feed_forward.w13"}},
    {"moe.router.weight", {"moe.router.gate.weight"}},
    {"moe.router.bias", {"moe.expert_bias_E", "moe.expert_bias"}},
    {"moe.experts.w1.weight",
     {"moe.routed_experts.inner_experts.w1_EFD", "moe.experts.w1", "moe.experts.w1_EFD"},
     {"moe.routed_experts.inner_experts.w13", "moe.experts.w13"}},
    {"moe.experts.w2.weight",
     {"moe.routed_experts.inner_experts.w2_EDF", "moe.experts.w2", "moe.experts.w2_EDF"}},
    {"moe.experts.w3.weight",
     {"moe.routed_experts.inner_experts.w3_EFD", "moe.experts.w3", "moe.experts.w3_EFD"},
     {"moe.routed_experts.inner_experts.w13", "moe.experts.w13"}},
};

/// A key in two parts: "layers.12." and the rest; the first part is empty for tensors of no layer.
std::pair<std::string, std::string> split_layer(const std::string& key) {
    const std::string word = "layers.";
    if (!key.starts_with(word)) return {"", key};
    const size_t end = key.find('.', word.size());
    if (end == std::string::npos) return {"", key};
    return {key.substr(0, end + 1), key.substr(end + 1)};
}

std::string of_any_layer(const std::string& key) {
    const auto& [layer, rest] = split_layer(key);
    return (layer.empty() ? "" : "layers.*.") + rest;
}

struct TitanTensor {
    std::string key;
    bool fused = false;
};

/// The tensor that has the parameter; `end` follows its keys: ".exp_avg".
TitanTensor find_tensor(const std::string& parameter, const std::string& end, const HasKey& has) {
    const auto& [layer, rest] = split_layer(parameter);
    const std::string any = layer.empty() ? "" : "layers.*.";
    const auto* names = std::ranges::find(kTitanNames, rest, &TitanName::ours);
    if (names == std::end(kTitanNames)) return {parameter};
    for (const auto& name : names->theirs)
        if (!name.empty() && has(any + std::string(name) + end)) return {layer + std::string(name)};
    for (const auto& name : names->fused)
        if (!name.empty() && has(any + std::string(name) + end)) return {layer + std::string(name), true};
    return {layer + std::string(names->theirs[0])};
}

/// The tensor that TorchTitan saves of the parameter, or of its state. Feed-forwards with one tensor for w1
/// and w3 are an override in TorchTitan, which few runs have.
TitanTensor saved_tensor(const std::string& parameter, TorchTitanNames age, bool is_state) {
    const auto& [layer, rest] = split_layer(parameter);
    const auto* names = std::ranges::find(kTitanNames, rest, &TitanName::ours);
    if (names == std::end(kTitanNames)) return {parameter};
    const bool is_current = age == TorchTitanNames::Current;
    if (is_current && is_state && rest.starts_with("attention."))
        return {layer + std::string(names->fused[0]), true};
    const std::string_view former = names->theirs[1];
    return {layer + std::string(is_current || former.empty() ? names->theirs[0] : former)};
}

/// Adds a tensor of ours, "model/..." or "optimizer/...", that holds `parameter` or a state of it.
class TitanMap {
  public:
    explicit TitanMap(const model::ModelSpec& spec) : spec_(spec) {}

    void add(const std::string& prefix, const layout::ParamSpec& parameter, const TitanTensor& theirs,
             const std::string& their_name, bool optional = false) {
        MappedTensor ours{prefix + parameter.name, parameter.shape, {}, optional};
        const std::string rest = split_layer(parameter.name).second;
        const int64_t rows = parameter.shape[0], columns = parameter.shape.back();
        std::vector<int64_t> shape = parameter.shape;
        if (rest == "attention.wq.weight" || rest == "attention.wk.weight" || rest == "attention.wv.weight") {
            add_heads(rest[11], theirs.fused, their_name, columns, ours.pieces);
            if (theirs.fused) shape[0] = (spec_.num_heads + 2 * spec_.num_kv_heads) * spec_.head_dim;
        } else {
            ours.pieces.push_back(whole_piece(their_name, parameter.shape));
            if (rest.starts_with("moe.experts."))
                shape = {spec_.experts->router.num_experts, rows / spec_.experts->router.num_experts,
                         columns};
            if (theirs.fused) {  // w1 and w3, row by row
                ours.pieces[0].their_row_step = 2;
                ours.pieces[0].their_row = rest.ends_with("w3.weight");
                shape.insert(shape.end() - 1, 2);
            }
        }
        map_.ours.push_back(std::move(ours));
        if (known_.insert(their_name).second) map_.theirs.push_back({their_name, shape});
    }

    TensorMap take() { return std::move(map_); }

  private:
    /// `letter` is q, k or v. Fused rows come group by group: the query heads of a key's head, it, the
    /// value's.
    void add_heads(char letter, bool fused, const std::string& their_name, int64_t columns,
                   std::vector<Piece>& pieces) const {
        const bool is_query = letter == 'q', is_paired = spec_.name == "llama3" && letter != 'v';
        const int64_t per_group = spec_.num_heads / spec_.num_kv_heads;
        for (int64_t head = 0; head < (is_query ? spec_.num_heads : spec_.num_kv_heads); ++head) {
            int64_t their_head = head;
            if (fused && is_query) their_head = head / per_group * (per_group + 2) + head % per_group;
            if (fused && !is_query) their_head = head * (per_group + 2) + per_group + (letter == 'v');
            add_head(their_name, their_head * spec_.head_dim, head * spec_.head_dim,
                     {spec_.head_dim, columns}, is_paired, pieces);
        }
    }

    const model::ModelSpec& spec_;
    TensorMap map_;
    std::set<std::string> known_;  // names of map_.theirs
};

/// The keys of a checkpoint without the layers' numbers and without a prefix that all weights have.
class TitanKeys {
  public:
    explicit TitanKeys(const TensorSource& tensors) {
        for (const TensorInfo& tensor : tensors.tensors()) {
            const bool is_state = tensor.name.starts_with(kStates);
            if (!is_state && tensor.name.starts_with("model.layers.")) prefix_ = "model.";
            keys_.insert(is_state ? kStates + of_any_layer(tensor.name.substr(std::strlen(kStates)))
                                  : tensor.name);
        }
        const std::set<std::string> keys = std::exchange(keys_, {});
        for (const std::string& key : keys)
            keys_.insert(key.starts_with(prefix_) ? of_any_layer(key.substr(prefix_.size())) : key);
    }
    /// Full checkpoints until July 2025 have "model." before the names of weights.
    const std::string& prefix() const { return prefix_; }
    HasKey has() const {
        return [this](const std::string& key) { return keys_.contains(key); };
    }

  private:
    std::string prefix_;
    std::set<std::string> keys_;
};

TensorMap weights_in(const model::ModelSpec& spec, const TitanKeys& keys) {
    TensorMap map = torchtitan_weights(spec, keys.has());
    if (keys.prefix().empty()) return map;
    for (TensorMap::Theirs& theirs : map.theirs) theirs.name = keys.prefix() + theirs.name;
    for (MappedTensor& ours : map.ours)
        for (Piece& piece : ours.pieces) piece.tensor = keys.prefix() + piece.tensor;
    return map;
}

/// Whether the tensor follows from the model's description, or counts what a step does not need.
bool is_derived(const std::string& name) {
    return name.ends_with("freqs_cis") || name.ends_with("rope_cache") || name.ends_with(".rope.cache") ||
           name.find("tokens_per_expert") != std::string::npos;
}

bool is_weight_key(const std::string& name) {
    for (const char* other : {"optimizer.", "lr_scheduler.", "train_state.", "dataloader."})
        if (name.starts_with(other)) return false;
    return true;
}

bool is_head(const std::string& name) {
    return name.ends_with("lm_head.weight") || name.ends_with("output.weight");
}

/// The number of updates, which AdamW keeps for each parameter. Removes these tensors from `there`.
int64_t take_steps(const TensorSource& tensors, bool checked, TensorsByName& there, TensorFaults& faults) {
    std::optional<float> updates;
    std::erase_if(there, [&](const auto& entry) {
        const TensorInfo& tensor = *entry.second;
        if (!entry.first.starts_with(kStates) || !entry.first.ends_with(kStep)) return false;
        if (tensor.type != ElementType::Float32 || tensor.num_elements() != 1) {
            faults.add(fmt::format("{} is no number of type f32", tensor.name));
            return true;
        }
        if (checked && updates) return true;
        float step = 0;
        tensors.read(tensor, layout::whole(tensor.shape), std::as_writable_bytes(std::span(&step, 1)));
        if (updates && *updates != step)
            faults.add(fmt::format("{} is {}, that of another parameter {}", tensor.name, step, *updates));
        updates = step;
        return true;
    });
    return static_cast<int64_t>(updates.value_or(0));
}

/// Adds the states to `ours`, unless there are none or they do not fit the model.
void add_states(const TensorSource& tensors, const model::ModelSpec& spec, const TitanKeys& keys,
                bool checked, TensorsByName& there, TorchTitanTensors& result, std::vector<MappedTensor>& ours) {
    std::erase_if(there, [](const auto& entry) { return !entry.first.starts_with(kStates); });
    if (there.empty()) return;
    TensorMap map = torchtitan_states(spec, keys.has());
    TensorFaults faults;
    const int64_t num_updates = take_steps(tensors, checked, there, faults);
    take_expected(there, map, faults);
    for (const auto& [name, tensor] : there)
        faults.add(shown(name) + " is no state of an optimizer of this program");
    result.has_optimizer = faults.none();
    if (!result.has_optimizer) {
        result.state_faults = faults.text();
        return;
    }
    result.num_updates = num_updates;
    std::ranges::move(map.ours, std::back_inserter(ours));
}

}  // namespace

bool has_torchtitan_names(const model::ModelSpec& spec) {
    const auto is_of = {"llama3", "qwen3", "qwen3_moe"};
    return std::ranges::find(is_of, spec.name) != is_of.end() && !spec.qkv_bias && !spec.output_bias &&
           !spec.mlp_bias;
}

TensorMap torchtitan_weights(const model::ModelSpec& spec, const HasKey& has) {
    TitanMap map(spec);
    const auto add = [&](const layout::ParamSpec& parameter, bool optional) {
        const TitanTensor theirs = find_tensor(parameter.name, "", has);
        map.add(kModelPrefix, parameter, theirs, theirs.key, optional);
    };
    for (const layout::ParamSpec& parameter : model::model_parameters(spec)) add(parameter, false);
    for (const auto& [layer, bias] : model::router_biases(spec)) add(bias, true);
    return map.take();
}

TensorMap torchtitan_states(const model::ModelSpec& spec, const HasKey& has) {
    const auto has_state = [&](const std::string& key) { return has(kStates + key); };
    TitanMap map(spec);
    for (const layout::ParamSpec& parameter : model::model_parameters(spec)) {
        const auto& [adamw, muon] =
            std::pair(std::span(kStateNames).first(2), std::span(kStateNames).last(1));
        const TitanTensor with_momentum = find_tensor(parameter.name, muon[0].theirs, has_state);
        const bool is_muon = has_state(of_any_layer(with_momentum.key) + muon[0].theirs);
        for (const auto& [ours, state] : is_muon ? muon : adamw) {
            const TitanTensor theirs = find_tensor(parameter.name, state, has_state);
            map.add(ours, parameter, theirs, kStates + theirs.key + state);
        }
    }
    return map.take();
}

TensorMap torchtitan_tensors(const model::ModelSpec& spec, TorchTitanNames names, const HasKey& has) {
    TitanMap map(spec);
    const auto add_weight = [&](const layout::ParamSpec& parameter) {
        const TitanTensor theirs = saved_tensor(parameter.name, names, false);
        map.add(kModelPrefix, parameter, theirs, theirs.key);
    };
    for (const layout::ParamSpec& parameter : model::model_parameters(spec)) add_weight(parameter);
    for (const auto& [layer, bias] : model::router_biases(spec)) add_weight(bias);
    for (const layout::ParamSpec& parameter : model::model_parameters(spec)) {
        for (const auto& [ours, state] : kStateNames) {
            if (!has(ours + parameter.name)) continue;
            const TitanTensor theirs = saved_tensor(parameter.name, names, true);
            map.add(ours, parameter, theirs, kStates + theirs.key + state);
        }
    }
    return map.take();
}

std::string torchtitan_head(TorchTitanNames names) { return saved_tensor("output.weight", names, false).key; }

TorchTitanTensors with_torchtitan_names(std::unique_ptr<TensorSource> tensors,
                                        const std::vector<std::string>& other_tensors,
                                        const model::ModelSpec& spec, bool with_states, bool checked) {
    const TitanKeys keys(*tensors);
    TensorMap map = weights_in(spec, keys);
    TensorsByName there = by_name(*tensors);
    TensorFaults faults;
    take_expected(there, map, faults);
    for (const auto& [name, tensor] : there) {
        if (!is_weight_key(name) || is_derived(name)) continue;
        if (spec.tied_embeddings && is_head(name)) {
            check_tied_head(*tensors, *tensor, keys.prefix() + "tok_embeddings.weight", checked,
                            faults);
        } else {
            faults.add(shown(name) + " is not a tensor of the model");
        }
    }
    for (const std::string& name : other_tensors)
        if (is_weight_key(name) && !is_derived(name))
            faults.add(shown(name) + " is not a tensor of the model");
    faults.check(tensors->place(), spec);
    TorchTitanTensors result;
    if (with_states) add_states(*tensors, spec, keys, checked, there, result, map.ours);
    result.tensors = std::make_unique<MappedSource>(std::move(tensors), std::move(map.ours));
    return result;
}

bool are_torchtitan_weights_of(const model::ModelSpec& spec, const TensorSource& tensors) {
    if (!has_torchtitan_names(spec)) return false;
    TensorsByName there = by_name(tensors);
    TensorFaults faults;
    take_expected(there, weights_in(spec, TitanKeys(tensors)), faults);
    return faults.none() && std::ranges::all_of(there, [&](const auto& entry) {
               return !is_weight_key(entry.first) || is_derived(entry.first) ||
                      (spec.tied_embeddings && is_head(entry.first));
           });
}

}  // namespace argosy::interop
