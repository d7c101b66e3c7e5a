#include "interop/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"
#include "model/units.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;
using checkpoint::TensorSource;

constexpr const char *kHead = "lm_head.weight", *kTable = "model.embed_tokens.weight";

// The parts of a parameter's name that differ: this program's part, then Hugging Face's.
constexpr std::array<std::pair<const char*, const char*>, 16> kParts = {{
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
    {"output", "lm_head"},
}};

std::string hugging_face_part(const std::string& part) {
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
        const auto found = there.find(place.name);
        if (found == there.end()) {
            faults.add(place.name + " is missing");
            continue;
        }
        check_tensor(*found->second, place.shape, faults);
        there.erase(found);
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

class RenamedSource : public TensorSource {
  public:
    RenamedSource(std::unique_ptr<TensorSource> tensors, const model::ModelSpec& spec)
        : inner_(std::move(tensors)) {
        for (const layout::ParamSpec& parameter : model::model_parameters(spec)) {
            const HuggingFacePlace place = hugging_face_place(parameter, spec);
            const TensorInfo& theirs = inner_->at(place.name);
            tensors_.push_back({kModelPrefix + parameter.name, theirs.type, parameter.shape});
            theirs_.emplace(tensors_.back().name, std::pair(&theirs, place.first_row));
        }
    }
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    void read(const TensorInfo& tensor, const layout::Slab& slab, std::span<std::byte> out) const override {
        const auto& [theirs, first_row] = theirs_.find(tensor.name)->second;
        layout::Slab rows = slab;
        rows.offset[0] += first_row;
        inner_->read(*theirs, rows, out);
    }
    const std::string& place() const override { return inner_->place(); }

  private:
    std::unique_ptr<TensorSource> inner_;
    std::vector<TensorInfo> tensors_;
    std::map<std::string, std::pair<const TensorInfo*, int64_t>> theirs_;  // with the first row
};

/// Converts "layers.0.attention.wq.weight" to "model.layers.0.self_attn.q_proj.weight".
std::string hugging_face_name(const std::string& parameter) {
    std::string name, part;
    for (const char letter : parameter + ".") {
        if (letter != '.') {
            part += letter;
            continue;
        }
        name += (name.empty() ? "" : ".") + hugging_face_part(part);
        part.clear();
    }
    return name == kHead ? name : "model." + name;
}

}  // namespace

HuggingFacePlace hugging_face_place(const layout::ParamSpec& parameter, const model::ModelSpec& spec) {
    HuggingFacePlace place{.name = hugging_face_name(parameter.name), .shape = parameter.shape};
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
        if (!place.name.ends_with(name)) continue;
        place.name.replace(place.name.size() - name.size(), name.size(), fused);
        place.first_row = first_row;
        place.shape[0] = num_rows;
        break;
    }
    return place;
}

void check_weights(const TensorSource& checkpoint, const model::ModelSpec& spec) {
    auto there = by_name(checkpoint);
    std::erase_if(there, [](const auto& entry) { return !entry.first.starts_with(kModelPrefix); });
    Faults faults;
    take_expected(
        there, spec,
        [](const layout::ParamSpec& parameter) {
            return HuggingFacePlace{.name = kModelPrefix + parameter.name, .shape = parameter.shape};
        },
        faults);
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
    for (const auto& [name, tensor] : there) {
        if (is_rotary_table(name)) continue;
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
