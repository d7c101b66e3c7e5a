#include "interop/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/strict_json.h"
#include "model/units.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;
using checkpoint::TensorSource;

constexpr const char *kHead = "lm_head.weight", *kTable = "model.embed_tokens.weight";

// The parts of a parameter's name that differ: this program's part, then Hugging Face's.
constexpr std::array<std::pair<const char*, const char*>, 18> kParts = {{
    {"tok_embeddings", "embed_tokens"},
    {"attention_norm", "input_layernorm"},
    {"attention", "self_attn"},
    {"wq", "q_proj"},
    {"wk", "k_proj"},
    {"wv", "v_proj"},
    {"wo", "o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"attention_post_norm", "post_attention_layernorm"},
    {"ffn_pre_norm", "pre_feedforward_layernorm"},
    {"ffn_post_norm", "post_feedforward_layernorm"},
    {"feed_forward", "mlp"},
    {"w1", "gate_proj"},
    {"w2", "down_proj"},
    {"w3", "up_proj"},
    {"moe", "mlp"},
    {"router", "gate"},
    {"output", "lm_head"},
}};

std::string hugging_face_part(const std::string& part, bool is_mixtral) {
    if (is_mixtral && part == "moe") return "block_sparse_moe";
    if (is_mixtral && (part == "w1" || part == "w2" || part == "w3")) return part;
    const auto* found = std::ranges::find_if(kParts, [&](const auto& pair) { return part == pair.first; });
    return found == kParts.end() ? part : found->second;
}

bool equal(const TensorSource& source, const TensorInfo& a, const TensorInfo& b) {
    if (a.type != b.type || a.shape != b.shape) return false;
    constexpr int64_t kSlabElements = 1 << 18;
    std::vector<std::byte> left, right;
    for (const layout::Slab& slab : layout::consecutive_slabs(a.shape, kSlabElements)) {
        left.resize(slab.num_elements() * size_bytes(a.type));
        right.resize(left.size());
        source.read(a, slab, left);
        source.read(b, slab, right);
        if (std::memcmp(left.data(), right.data(), left.size()) != 0) return false;
    }
    return true;
}

/// Whether the tensor is a rotary table. Older exports store these tables, although they follow from the
/// configuration.
bool is_rotary_table(const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); }

/// Whether the tensor is of the layer after the last one, which GLM's files have to predict further tokens.
bool is_of_prediction(const std::string& name, const model::ModelSpec& spec) {
    return spec.name == "glm4_moe" && name.starts_with(fmt::format("model.layers.{}.", spec.num_layers));
}

/// Converts "layers.0.attention.wq.weight" to "model.layers.0.self_attn.q_proj.weight".
std::string hugging_face_name(const std::string& parameter, bool is_mixtral) {
    std::string name, part;
    for (const char letter : parameter + ".") {
        if (letter != '.') {
            part += letter;
            continue;
        }
        name += (name.empty() ? "" : ".") + hugging_face_part(part, is_mixtral);
        part.clear();
    }
    return name == kHead ? name : "model." + name;
}

/// The map of a stack of experts' matrices, of each of which theirs have a tensor: "a.experts.w1.weight" is
/// "a.experts.0.w1.weight" and so on.
void add_experts(const layout::ParamSpec& stack, const std::string& their_name, int64_t num_experts,
                 TensorMap& map) {
    const std::string word = ".experts.";
    const size_t number = their_name.find(word) + word.size();
    MappedTensor ours{kModelPrefix + stack.name, stack.shape, {}};
    const std::vector<int64_t> shape = {stack.shape[0] / num_experts, stack.shape[1]};
    for (int64_t i = 0; i < num_experts; ++i) {
        map.theirs.push_back(
            {fmt::format("{}{}.{}", their_name.substr(0, number), i, their_name.substr(number)), shape});
        ours.pieces.push_back(whole_piece(map.theirs.back().name, shape));
        ours.pieces.back().row = i * shape[0];
    }
    map.ours.push_back(std::move(ours));
}

/// Replaces a matrix's own tensor of theirs by the rows of Phi-3's fused one, if it is in one.
void fuse(const model::ModelSpec& spec, TensorMap& map) {
    const int64_t q = spec.num_heads * spec.head_dim, kv = spec.num_kv_heads * spec.head_dim;
    struct Rows {
        std::string_view name, fused;
        int64_t first_row, num_rows;
    };
    const Rows all[] = {{"q_proj.weight", "qkv_proj.weight", 0, q + 2 * kv},
                        {"k_proj.weight", "qkv_proj.weight", q, q + 2 * kv},
                        {"v_proj.weight", "qkv_proj.weight", q + kv, q + 2 * kv},
                        {"gate_proj.weight", "gate_up_proj.weight", 0, 2 * spec.hidden_dim},
                        {"up_proj.weight", "gate_up_proj.weight", spec.hidden_dim, 2 * spec.hidden_dim}};
    Piece& piece = map.ours.back().pieces[0];
    for (const auto& [name, fused, first_row, num_rows] : all) {
        if (!piece.tensor.ends_with(name)) continue;
        piece.tensor.replace(piece.tensor.size() - name.size(), name.size(), fused);
        piece.their_row = first_row;
        map.theirs.pop_back();
        if (first_row == 0) map.theirs.push_back({piece.tensor, {num_rows, piece.num_columns}});
        return;
    }
}

}  // namespace

TensorMap hugging_face_map(const model::ModelSpec& spec) {
    TensorMap map;
    const bool is_mixtral = spec.name == "mixtral";
    for (const layout::ParamSpec& parameter : model::model_parameters(spec)) {
        const std::string theirs = hugging_face_name(parameter.name, is_mixtral);
        if (parameter.name.find(".experts.") != std::string::npos) {
            add_experts(parameter, theirs, spec.experts->router.num_experts, map);
            continue;
        }
        map.add(kModelPrefix + parameter.name, theirs, parameter.shape);
        if (spec.name == "phi3") fuse(spec, map);
    }
    if (!has_router_biases(spec)) return map;
    for (const auto& [layer, bias] : model::router_biases(spec)) {
        std::string theirs = hugging_face_name(bias.name, is_mixtral);
        theirs.replace(theirs.rfind('.') + 1, std::string::npos, "e_score_correction_bias");
        map.add(kModelPrefix + bias.name, theirs, bias.shape, /*optional=*/true);
    }
    return map;
}

bool has_router_biases(const model::ModelSpec& spec) { return spec.name == "glm4_moe" && spec.experts; }

const TensorInfo* find_router_bias(const TensorSource& source, const model::ModelSpec& spec, int64_t layer) {
    const auto biases = model::router_biases(spec);
    const auto bias = biases.find(layer);
    return bias == biases.end() ? nullptr : source.find(kModelPrefix + bias->second.name);
}

void check_weights(const TensorSource& checkpoint, const model::ModelSpec& spec) {
    TensorMap map;
    for (const layout::ParamSpec& parameter : model::model_parameters(spec))
        map.add(kModelPrefix + parameter.name, kModelPrefix + parameter.name, parameter.shape);
    for (const auto& [layer, bias] : model::router_biases(spec))
        map.add(kModelPrefix + bias.name, kModelPrefix + bias.name, bias.shape, /*optional=*/true);
    TensorsByName there = by_name(checkpoint);
    std::erase_if(there, [](const auto& entry) { return !entry.first.starts_with(kModelPrefix); });
    TensorFaults faults;
    take_expected(there, map, faults);
    for (const auto& [name, tensor] : there) faults.add(shown(name) + " is not a tensor of the model");
    faults.check(checkpoint.place(), spec);
}

void check_tied_head(const TensorSource& source, const TensorInfo& head, const std::string& table,
                     bool checked, TensorFaults& faults) {
    if (checked) return;
    const TensorInfo* found = source.find(table);
    if (!found || equal(source, head, *found)) return;
    faults.add(fmt::format("{} differs from {}, but the model ties the two", head.name, table));
}

std::unique_ptr<TensorSource> with_checkpoint_names(std::unique_ptr<TensorSource> tensors,
                                                    const model::ModelSpec& spec, bool checked) {
    TensorMap map = hugging_face_map(spec);
    TensorsByName there = by_name(*tensors);
    TensorFaults faults;
    take_expected(there, map, faults);
    bool predicts = checked;  // it is said once
    for (const auto& [name, tensor] : there) {
        if (is_rotary_table(name)) continue;
        if (is_of_prediction(name, spec)) {
            if (!std::exchange(predicts, true))
                spdlog::warn("{}: layer {}, which predicts further tokens, is left out", tensors->place(),
                             spec.num_layers);
        } else if (spec.tied_embeddings && name == kHead) {
            check_tied_head(*tensors, *tensor, kTable, checked, faults);
        } else {
            faults.add(shown(name) + " is not a tensor of the model");
        }
    }
    faults.check(tensors->place(), spec);
    return std::make_unique<MappedSource>(std::move(tensors), std::move(map.ours));
}

}  // namespace argosy::interop
