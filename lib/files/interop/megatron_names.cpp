#include "interop/megatron_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/strict_json.h"
#include "interop/names.h"
#include "interop/tensor_map.h"
#include "model/units.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;
using checkpoint::TensorSource;

constexpr std::string_view kMegatronTable = "embedding.word_embeddings.weight",
                           kMegatronHead = "output_layer.weight", kMegatronLayers = "decoder.layers.";

/// Names of a module within its layer, or of one of no layer. Norms have the name of Transformer Engine, in
/// whose modules they are part of the next product, or that of Megatron's own modules.
struct MegatronName {
    std::string_view ours;
    std::array<std::string_view, 2> theirs;
};
constexpr MegatronName kMegatronNames[] = {
    {"tok_embeddings.weight", {kMegatronTable}},
    {"norm.weight", {"decoder.final_layernorm.weight"}},
    {"output.weight", {kMegatronHead}},
    {"attention_norm.weight", {"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"}},
    {"attention.wq.", {"self_attention.linear_qkv."}},
    {"attention.wk.", {"self_attention.linear_qkv."}},
    {"attention.wv.", {"self_attention.linear_qkv."}},
    {"attention.q_norm.weight", {"self_attention.q_layernorm.weight"}},
    {"attention.k_norm.weight", {"self_attention.k_layernorm.weight"}},
    {"attention.wo.", {"self_attention.linear_proj."}},
    {"ffn_norm.weight", {"mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"}},
    {"feed_forward.w1.", {"mlp.linear_fc1."}},
    {"feed_forward.w2.", {"mlp.linear_fc2."}},
    {"feed_forward.w3.", {"mlp.linear_fc1."}},
};

/// A parameter's rows in a tensor of `size` rows: blocks of `num` rows, the first at `first`, one every
/// `step`.
struct FusedRows {
    int64_t size, first = 0, num, step = 0, num_blocks = 1;
};

FusedRows fused_rows(std::string_view module, int64_t num_rows, const model::ModelSpec& spec) {
    const int64_t groups = spec.num_kv_heads, head = spec.head_dim, query = spec.num_heads / groups * head;
    const auto of_groups = [&](int64_t first, int64_t num) {
        const int64_t step = query + 2 * head;
        return FusedRows{groups * step, first, num, step, groups};
    };
    if (module == "attention.wq.") return of_groups(0, query);
    if (module == "attention.wk.") return of_groups(query, head);
    if (module == "attention.wv.") return of_groups(query + head, head);
    if (module == "feed_forward.w1.") return {.size = 2 * num_rows, .num = num_rows};
    if (module == "feed_forward.w3.") return {.size = 2 * num_rows, .first = num_rows, .num = num_rows};
    return {.size = num_rows, .num = num_rows};
}

/// Whether a tensor is a state of the optimizer: "optimizer.state.exp_avg.decoder.final_layernorm.weight".
bool is_megatron_state(const std::string& name) {
    return name.starts_with("optimizer.") ||
           (name.starts_with("chained_") && name.find(".optimizer.") != std::string::npos);
}

class MegatronMap {
  public:
    MegatronMap(const model::ModelSpec& spec, const TensorSource& source, double vocabulary_multiple,
                bool checked)
        : spec_(spec), source_(source), vocabulary_multiple_(vocabulary_multiple), checked_(checked) {
        for (const TensorInfo& tensor : source.tensors()) {
            if (!tensor.name.ends_with(kMegatronTable) || is_megatron_state(tensor.name)) continue;
            prefix_ = tensor.name.substr(0, tensor.name.size() - kMegatronTable.size());
        }
        is_stacked_ = find(std::string(kMegatronLayers) + "mlp.linear_fc2.weight") != nullptr;
    }

    void add(const layout::ParamSpec& parameter);
    const std::string& prefix() const { return prefix_; }
    TensorMap take() { return std::move(map_); }

  private:
    const TensorInfo* find(const std::string& name) const { return source_.find(prefix_ + name); }
    std::string tensor_name(const std::string& layer, const MegatronName& names, std::string_view end) const;
    void note_padding(const TensorInfo& table, int64_t num_rows) const;
    void add_pieces(MappedTensor ours, const std::string& theirs, const FusedRows& rows,
                    const std::string& layer);

    const model::ModelSpec& spec_;
    const TensorSource& source_;
    double vocabulary_multiple_;
    bool checked_;
    std::string prefix_;  // of all weights: "module." in NeMo's folders
    bool is_stacked_ = false;
    TensorMap map_;
    std::set<std::string> known_;  // names of map_.theirs
};

/// The first of the names that the folder has.
std::string MegatronMap::tensor_name(const std::string& layer, const MegatronName& names,
                                     std::string_view end) const {
    std::string prefix;
    if (!layer.empty())
        prefix = is_stacked_ ? std::string(kMegatronLayers) : fmt::format("{}{}.", kMegatronLayers, layer);
    for (const std::string_view theirs : names.theirs) {
        const std::string name = fmt::format("{}{}{}", prefix, theirs, end);
        if (!theirs.empty() && find(name)) return name;
    }
    return fmt::format("{}{}{}", prefix, names.theirs[0], end);
}

/// Logs the rows that are left out; UserError if there are more than the run has padded.
void MegatronMap::note_padding(const TensorInfo& table, int64_t num_rows) const {
    const int64_t more = table.shape[0] - num_rows;
    if (static_cast<double>(more) >= vocabulary_multiple_) {
        throw UserError(
            "{}: {} has {} rows, {} more than vocab_size of config.json, but the run padded its vocabulary "
            "to a multiple of {:g}. Give the config.json of the run's model, or one whose vocab_size is {}",
            source_.place(), table.name, table.shape[0], more, vocabulary_multiple_, table.shape[0]);
    }
    spdlog::log(std::isnan(vocabulary_multiple_) && !checked_ ? spdlog::level::warn : spdlog::level::info,
                "{}: the last {} of {} rows of {} pad the vocabulary, and are left out", source_.place(),
                more, table.shape[0], table.name);
}

void MegatronMap::add(const layout::ParamSpec& parameter) {
    const std::string word = "layers.";
    std::string layer, rest = parameter.name;
    if (rest.starts_with(word)) {
        const size_t end = rest.find('.', word.size());
        layer = rest.substr(word.size(), end - word.size());
        rest = rest.substr(end + 1);
    }
    for (const MegatronName& names : kMegatronNames) {
        if (!rest.starts_with(names.ours)) continue;
        std::string name = tensor_name(layer, names, rest.substr(names.ours.size()));
        FusedRows rows = fused_rows(names.ours, parameter.shape[0], spec_);
        // singleton_local_shards saves the halves of linear_fc1 as tensors of their own.
        const bool is_gate = names.ours == "feed_forward.w1.", is_up = names.ours == "feed_forward.w3.";
        if (const std::string half = name + (is_gate ? "_w" : "_v"); (is_gate || is_up) && find(half)) {
            name = half;
            rows = {.size = rows.num, .num = rows.num};
        }
        const bool is_vocabulary = name == kMegatronTable || name == kMegatronHead;
        const TensorInfo* theirs = is_vocabulary ? find(name) : nullptr;
        if (theirs && !theirs->shape.empty() && theirs->shape[0] > rows.size) {
            note_padding(*theirs, rows.num);
            rows.size = theirs->shape[0];
        }
        return add_pieces({kModelPrefix + parameter.name, parameter.shape, {}}, prefix_ + name, rows, layer);
    }
    throw UserError(
        "{}: Megatron's layers of {} are not read: only those of dense Llama, Mistral, Qwen2 and Qwen3 "
        "are, which have no {}",
        source_.place(), spec_.name, rest);
}

void MegatronMap::add_pieces(MappedTensor ours, const std::string& theirs, const FusedRows& rows,
                             const std::string& layer) {
    // A tensor of one dim is a row, whose columns are then counted, and a stack of such tensors a matrix.
    const bool is_vector = ours.shape.size() == 1, in_stack = is_stacked_ && !layer.empty();
    const int64_t number = in_stack ? std::stoll(layer) : 0;
    for (int64_t i = 0; i < rows.num_blocks; ++i) {
        Piece piece{.tensor = theirs};
        (is_vector ? piece.their_column : piece.their_row) = rows.first + i * rows.step;
        (is_vector ? piece.column : piece.row) = i * rows.num;
        (is_vector ? piece.num_columns : piece.num_rows) = rows.num;
        if (!is_vector) piece.num_columns = ours.shape[1];
        piece.their_row += number * (is_vector ? 1 : rows.size);
        ours.pieces.push_back(std::move(piece));
    }
    std::vector<int64_t> shape = ours.shape;
    shape[0] = rows.size;
    if (in_stack) shape.insert(shape.begin(), spec_.num_layers);
    map_.ours.push_back(std::move(ours));
    if (known_.insert(theirs).second) map_.theirs.push_back({theirs, std::move(shape)});
}

}  // namespace

std::unique_ptr<TensorSource> with_megatron_names(std::unique_ptr<TensorSource> tensors,
                                                  const model::ModelSpec& spec, double vocabulary_multiple,
                                                  bool checked) {
    MegatronMap names(spec, *tensors, vocabulary_multiple, checked);
    for (const layout::ParamSpec& parameter : model::model_parameters(spec)) names.add(parameter);
    TensorMap map = names.take();
    TensorsByName there = by_name(*tensors);
    std::erase_if(there, [](const auto& entry) { return is_megatron_state(entry.first); });
    TensorFaults faults;
    take_expected(there, map, faults);
    for (const auto& [name, tensor] : there) {
        if (spec.tied_embeddings && name == names.prefix() + std::string(kMegatronHead)) {
            check_tied_head(*tensors, *tensor, names.prefix() + std::string(kMegatronTable), checked,
                            faults);
        } else {
            faults.add(shown(name) + " is not a tensor of the model");
        }
    }
    faults.check(tensors->place(), spec);
    return std::make_unique<MappedSource>(std::move(tensors), std::move(map.ours));
}

}  // namespace argosy::interop
