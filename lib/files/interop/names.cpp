#include "interop/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
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

/// Collects the faults of many tensors into one message.
class Faults {
  public:
    void add(std::string fault) {
        if (++count_ <= kShown) shown_.push_back(std::move(fault));
    }
    void check(const std::string& place, const model::ModelSpec& spec) const {
        if (count_ == 0) return;
        const std::string rest = count_ > kShown ? fmt::format("; and {} more", count_ - kShown) : "";
        throw UserError("{}: the tensors do not match the model ({}, {} layers, {} wide{}): {}{}", place,
                        spec.name, spec.num_layers, spec.dim, spec.tied_embeddings ? ", tied embeddings" : "",
                        fmt::join(shown_, "; "), rest);
    }

  private:
    static constexpr int kShown = 20;
    int count_ = 0;
    std::vector<std::string> shown_;
};

void check_tensor(const TensorInfo& found, const std::vector<int64_t>& shape, Faults& faults) {
    if (found.shape != shape) {
        faults.add(fmt::format("{} has shape [{}], expected [{}]", found.name, fmt::join(found.shape, ", "),
                               fmt::join(shape, ", ")));
    }
    if (!is_floating(found.type)) {
        faults.add(fmt::format("{} has elements of type {}, expected f64, f32, bf16 or f16", found.name,
                               found.type_name()));
    }
}

std::map<std::string, const TensorInfo*> by_name(const TensorSource& source) {
    std::map<std::string, const TensorInfo*> tensors;
    for (const TensorInfo& tensor : source.tensors()) tensors.emplace(tensor.name, &tensor);
    return tensors;
}

/// Checks the tensors that the model expects and removes them from `there`, where only unexpected tensors
/// remain. `place_of(parameter)` is a parameter's place in `there`.
template <class PlaceOf>
void take_expected(std::map<std::string, const TensorInfo*>& there, const model::ModelSpec& spec,
                   PlaceOf&& place_of, Faults& faults) {
    for (const layout::ParamSpec& parameter : model::model_parameters(spec)) {
        const HuggingFacePlace place = place_of(parameter);
        if (place.first_row > 0) continue;  // the parameter in the first row brings their tensor
        const TensorInfo* first = nullptr;
        for (const std::string& name : place.names) {
            const auto found = there.find(name);
            if (found == there.end()) {
                faults.add(name + " is missing");
                continue;
            }
            const TensorInfo& tensor = *found->second;
            check_tensor(tensor, place.shape, faults);
            if (!first) first = &tensor;
            if (tensor.type != first->type) {
                faults.add(fmt::format("{} has elements of type {}, but {} of type {}", name,
                                       tensor.type_name(), first->name, first->type_name()));
            }
            there.erase(found);
        }
    }
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

/// Removes the biases of experts that are there; files without them mean zeros.
void take_biases(std::map<std::string, const TensorInfo*>& there, const model::ModelSpec& spec,
                 const std::function<std::string(const layout::ParamSpec&)>& name_of, Faults& faults) {
    for (const auto& [layer, bias] : model::router_biases(spec)) {
        const auto found = there.find(name_of(bias));
        if (found == there.end()) continue;
        check_tensor(*found->second, bias.shape, faults);
        there.erase(found);
    }
}

class RenamedSource : public TensorSource {
  public:
    RenamedSource(std::unique_ptr<TensorSource> tensors, const model::ModelSpec& spec)
        : inner_(std::move(tensors)) {
        const auto there = by_name(*inner_);
        for (const layout::ParamSpec& parameter : model::model_parameters(spec)) {
            const HuggingFacePlace place = hugging_face_place(parameter, spec);
            Rows rows{.first = place.first_row};
            for (const std::string& name : place.names) rows.tensors.push_back(there.at(name));
            tensors_.push_back({kModelPrefix + parameter.name, rows.tensors[0]->type, parameter.shape});
            rows_.emplace(tensors_.back().name, std::move(rows));
        }
        for (const auto& [layer, bias] : model::router_biases(spec)) {
            const auto found = there.find(hugging_face_place(bias, spec).names[0]);
            if (found == there.end() || !has_router_biases(spec)) continue;
            tensors_.push_back({kModelPrefix + bias.name, found->second->type, bias.shape});
            rows_.emplace(tensors_.back().name, Rows{.tensors = {found->second}});
        }
    }
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    void read(const TensorInfo& tensor, const layout::Slab& slab, std::span<std::byte> out) const override {
        const Rows& rows = rows_.find(tensor.name)->second;
        const int64_t num_rows = rows.tensors[0]->shape[0], end = rows.first + slab.offset[0] + slab.size[0];
        layout::Slab part = slab;
        for (int64_t row = rows.first + slab.offset[0]; row < end; row += part.size[0]) {
            part.offset[0] = row % num_rows;
            part.size[0] = std::min(num_rows - part.offset[0], end - row);
            const int64_t num_bytes = part.num_elements() * size_bytes(tensor.type);
            inner_->read(*rows.tensors[row / num_rows], part, out.first(num_bytes));
            out = out.subspan(num_bytes);
        }
    }
    const std::string& place() const override { return inner_->place(); }

  private:
    /// The tensors of a HuggingFacePlace.
    struct Rows {
        std::vector<const TensorInfo*> tensors = {};
        int64_t first = 0;
    };

    std::unique_ptr<TensorSource> inner_;
    std::vector<TensorInfo> tensors_;
    std::map<std::string, Rows> rows_;
};

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

/// Names a tensor for each expert: "a.experts.w1.weight" becomes "a.experts.0.w1.weight" and so on.
HuggingFacePlace of_each_expert(HuggingFacePlace place, int64_t num_experts) {
    const std::string stack = place.names[0], word = ".experts.";
    const size_t number = stack.find(word) + word.size();
    place.names.clear();
    for (int64_t i = 0; i < num_experts; ++i)
        place.names.push_back(fmt::format("{}{}.{}", stack.substr(0, number), i, stack.substr(number)));
    place.shape[0] /= num_experts;
    return place;
}

}  // namespace

HuggingFacePlace hugging_face_place(const layout::ParamSpec& parameter, const model::ModelSpec& spec) {
    HuggingFacePlace place{.names = {hugging_face_name(parameter.name, spec.name == "mixtral")},
                           .shape = parameter.shape};
    if (model::is_router_bias(parameter.name)) {
        std::string& name = place.names[0];
        name.replace(name.rfind('.') + 1, std::string::npos, "e_score_correction_bias");
        return place;
    }
    if (parameter.name.find(".experts.") != std::string::npos)
        return of_each_expert(std::move(place), spec.experts->router.num_experts);
    if (spec.name != "phi3") return place;
    const int64_t q = spec.num_heads * spec.head_dim, kv = spec.num_kv_heads * spec.head_dim;
    struct Part {
        std::string_view name, fused;
        int64_t first_row, num_rows;
    };
    const Part parts[] = {{"q_proj.weight", "qkv_proj.weight", 0, q + 2 * kv},
                          {"k_proj.weight", "qkv_proj.weight", q, q + 2 * kv},
                          {"v_proj.weight", "qkv_proj.weight", q + kv, q + 2 * kv},
                          {"gate_proj.weight", "gate_up_proj.weight", 0, 2 * spec.hidden_dim},
                          {"up_proj.weight", "gate_up_proj.weight", spec.hidden_dim, 2 * spec.hidden_dim}};
    for (const auto& [name, fused, first_row, num_rows] : parts) {
        std::string& theirs = place.names[0];
        if (!theirs.ends_with(name)) continue;
        theirs.replace(theirs.size() - name.size(), name.size(), fused);
        place.first_row = first_row;
        place.shape[0] = num_rows;
        break;
    }
    return place;
}

bool has_router_biases(const model::ModelSpec& spec) { return spec.name == "glm4_moe" && spec.experts; }

const TensorInfo* find_router_bias(const TensorSource& source, const model::ModelSpec& spec, int64_t layer) {
    const auto biases = model::router_biases(spec);
    const auto bias = biases.find(layer);
    return bias == biases.end() ? nullptr : source.find(kModelPrefix + bias->second.name);
}

void check_weights(const TensorSource& checkpoint, const model::ModelSpec& spec) {
    auto there = by_name(checkpoint);
    std::erase_if(there, [](const auto& entry) { return !entry.first.starts_with(kModelPrefix); });
    Faults faults;
    take_expected(
        there, spec,
        [](const layout::ParamSpec& parameter) {
            return HuggingFacePlace{.names = {kModelPrefix + parameter.name}, .shape = parameter.shape};
        },
        faults);
    take_biases(
        there, spec, [](const layout::ParamSpec& bias) { return kModelPrefix + bias.name; }, faults);
    for (const auto& [name, tensor] : there) faults.add(shown(name) + " is not a tensor of the model");
    faults.check(checkpoint.place(), spec);
}

std::unique_ptr<TensorSource> with_checkpoint_names(std::unique_ptr<TensorSource> tensors,
                                                    const model::ModelSpec& spec) {
    auto there = by_name(*tensors);
    Faults faults;
    take_expected(
        there, spec, [&](const layout::ParamSpec& parameter) { return hugging_face_place(parameter, spec); },
        faults);
    if (has_router_biases(spec)) {
        take_biases(
            there, spec, [&](const auto& bias) { return hugging_face_place(bias, spec).names[0]; }, faults);
    }
    bool predicts = false;
    for (const auto& [name, tensor] : there) {
        if (is_rotary_table(name)) continue;
        if (is_of_prediction(name, spec)) {
            if (!std::exchange(predicts, true))
                spdlog::warn("{}: layer {}, which predicts further tokens, is left out", tensors->place(),
                             spec.num_layers);
            continue;
        }
        if (!(spec.tied_embeddings && name == kHead)) {
            faults.add(shown(name) + " is not a tensor of the model");
            continue;
        }
        const TensorInfo* table = tensors->find(kTable);
        if (table && !equal(*tensors, *tensor, *table)) {
            faults.add(fmt::format("{} differs from {}, but config.json ties the two", kHead, kTable));
        }
    }
    faults.check(tensors->place(), spec);
    return std::make_unique<RenamedSource>(std::move(tensors), spec);
}

}  // namespace argosy::interop
