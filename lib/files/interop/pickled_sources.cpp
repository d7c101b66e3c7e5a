// Models in files of torch.save: Meta's consolidated.NN.pth, each of which has a part of every matrix, and
// the pytorch_model.bin that Hugging Face used before safetensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json_field.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "interop/foreign_sources.h"
#include "interop/joined_source.h"
#include "interop/names.h"
#include "interop/safetensors.h"
#include "interop/tensor_map.h"
#include "model/units.h"
#include "pytorch/saved_file.h"

namespace argosy::interop {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorInfo;
using checkpoint::TensorSource;

constexpr int64_t kMaxMetaJsonBytes = 100'000'000;

/// UserError if the file has tensors of types that no weight has.
std::unique_ptr<pytorch::SavedFile> open_weights(const fs::path& path) {
    auto file = std::make_unique<pytorch::SavedFile>(path);
    std::vector<std::string> others;
    for (const pytorch::OtherTensor& tensor : file->other_tensors())
        others.push_back(fmt::format("{} ({})", shown(tensor.name), tensor.type));
    if (others.empty()) return file;
    constexpr size_t kShown = 12;
    throw UserError("{} has tensors that are not of the model: {}", path.string(), listed(others, kShown));
}

/// The prefix of the names of part `part`: its file's name.
std::string meta_part(int part) { return fmt::format("consolidated.{:02}.pth/", part); }

/// The files' tensors, "consolidated.00.pth/norm.weight".
std::unique_ptr<TensorSource> open_parts(const fs::path& folder, int& num_parts) {
    std::vector<JoinedSource::Member> members;
    std::error_code failed;
    const auto file = [&] {
        const std::string name = meta_part(static_cast<int>(members.size()));
        return folder / name.substr(0, name.size() - 1);
    };
    while (is_there(file())) {
        members.push_back({meta_part(static_cast<int>(members.size())), open_weights(file())});
    }
    num_parts = static_cast<int>(members.size());
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("consolidated.") && name > meta_part(num_parts))
            throw UserError("{} has {}, but no {}", folder.string(), name, file().filename().string());
    }
    if (members.empty()) {
        throw UserError("{} has {}, but no {}, which has Meta's weights", folder.string(), kMetaParameters,
                        file().filename().string());
    }
    return std::make_unique<JoinedSource>(std::move(members), folder.string());
}

/// The sizes of a dim that parts divide and of one that they do not.
struct MetaSizes {
    int64_t vocab_size = 0, hidden_dim = 0;
};

MetaSizes meta_sizes(const TensorSource& parts, int num_parts, int64_t dim) {
    const TensorInfo &table = parts.at(meta_part(0) + "tok_embeddings.weight"),
                     &gate = parts.at(meta_part(0) + "layers.0.feed_forward.w1.weight");
    for (const TensorInfo* matrix : {&table, &gate}) {
        if (matrix->shape.size() != 2) throw UserError("{}: {} is no matrix", parts.place(), matrix->name);
    }
    // Llama 3 divides the vocabulary, Llama 2 the width.
    return {table.shape[1] == dim ? table.shape[0] * num_parts : table.shape[0], gate.shape[0] * num_parts};
}

/// Whether a preset has the sizes, with whose scaled frequencies it was published.
bool is_of_sizes(const model::ModelSpec& preset, const model::ModelSpec& spec) {
    return preset.name == spec.name && preset.rope_scaling && preset.dim == spec.dim &&
           preset.num_layers == spec.num_layers && preset.num_heads == spec.num_heads &&
           preset.vocab_size == spec.vocab_size;
}

/// Sets the scaling of Llama 3.1's frequencies. Llama 3.2 has another factor, which params.json may leave
/// out: then it is that of the preset of these sizes or, without one, of the given model.
void scale_frequencies(const JsonField& parameters, const std::optional<model::RopeScaling>& given,
                       model::ModelSpec& spec) {
    spec.rope_scaling = model::RopeScaling{};
    spec.max_context = 131072;
    bool is_known = false;
    for (const model::NamedPreset& preset : model::presets()) {
        if (!is_of_sizes(preset.spec, spec)) continue;
        is_known = true;
        spec.rope_scaling = preset.spec.rope_scaling;
        spec.tied_embeddings = preset.spec.tied_embeddings;
    }
    if (!is_known && given && given->type == model::RopeScaling::Type::Llama3) spec.rope_scaling = given;
    spec.rope_scaling->factor = parameters["rope_scaling_factor"].number(spec.rope_scaling->factor);
}

/// The model of Meta's params.json. `scaling`: that of the given model.
model::ModelSpec meta_spec(const fs::path& folder, const TensorSource& parts, int num_parts,
                           const std::optional<model::RopeScaling>& scaling) {
    const std::string file = (folder / kMetaParameters).string();
    const nlohmann::ordered_json text = parse_json(read_text(file, kMaxMetaJsonBytes), file);
    const JsonField parameters(text, file);
    constexpr int64_t kMax = 1 << 30;
    const auto count = [&](const char* key, std::optional<int64_t> if_null = {}) {
        return parameters[key].whole<int64_t>(1, kMax, if_null);
    };
    for (const char* key : {"moe", "sliding_window", "vision_chunk_size"}) {
        if (!parameters[key].is_null())
            parameters[key].refuse("is of a model that is not read from Meta's files");
    }
    model::ModelSpec spec{.name = "llama3"};
    spec.dim = count("dim");
    spec.num_layers = count("n_layers");
    spec.num_heads = count("n_heads");
    spec.num_kv_heads = count("n_kv_heads", spec.num_heads);
    spec.head_dim = count("head_dim", spec.dim / spec.num_heads);
    const MetaSizes sizes = meta_sizes(parts, num_parts, spec.dim);
    spec.vocab_size = sizes.vocab_size;
    spec.hidden_dim = sizes.hidden_dim;
    spec.norm_eps = parameters["norm_eps"].number(1e-5);
    spec.rope_theta = parameters["rope_theta"].number(10000);
    spec.max_context = spec.rope_theta > 10000 ? 8192 : 4096;
    if (parameters["use_scaled_rope"].boolean(false)) scale_frequencies(parameters, scaling, spec);
    return spec;
}

/// Sets the model of params.json, or checks that the given one is the same. params.json does not say whether
/// embedding and head are one table.
void set_model(const OpenOptions& options, const TensorSource& parts, int num_parts, ModelSource& source) {
    const bool is_given = give_model(options, source);
    if (is_given && source.spec.name != "llama3")
        throw UserError("{}: Meta's files are of Llama, not of {}", source.path.string(), source.spec.name);
    model::ModelSpec spec = meta_spec(source.path, parts, num_parts, source.spec.rope_scaling);
    if (is_given) {
        spec.tied_embeddings = source.spec.tied_embeddings;
        const std::vector<std::string> differences = model::differences(spec, source.spec);
        if (differences.empty()) return;
        throw UserError("{} says another model than the one that is given: {}",
                        (source.path / kMetaParameters).string(), fmt::join(differences, "; "));
    }
    source.spec = spec;
    source.config_json = model::hugging_face_config(spec);
}

/// Maps the model's tensors to those of the parts.
class MetaMap {
  public:
    MetaMap(const model::ModelSpec& spec, int num_parts, bool divides_vocabulary)
        : spec_(spec), num_parts_(num_parts), divides_vocabulary_(divides_vocabulary) {}

    void add(const layout::ParamSpec& parameter) {
        map_.ours.push_back({kModelPrefix + parameter.name, parameter.shape, {}});
        const std::string rest =
            parameter.name.substr(parameter.name.find_last_of('.', parameter.name.size() - 8) + 1);
        if (parameter.shape.size() == 1) {
            add_part(parameter, 0, parameter.shape, whole_piece("", parameter.shape));
        } else if (rest == "wq.weight" || rest == "wk.weight" || rest == "wv.weight") {
            add_heads(parameter, rest[1]);
        } else if (rest == "wo.weight" || rest == "w2.weight" ||
                   (rest == "tok_embeddings.weight" && !divides_vocabulary_)) {
            add_cut(parameter, /*dim=*/1);
        } else {
            add_cut(parameter, /*dim=*/0);
        }
    }
    TensorMap take() { return std::move(map_); }

  private:
    void add_part(const layout::ParamSpec& parameter, int part, const std::vector<int64_t>& shape,
                  Piece piece) {
        piece.tensor = meta_part(part) + parameter.name;
        const auto is_it = [&](const TensorMap::Theirs& theirs) { return theirs.name == piece.tensor; };
        if (map_.theirs.empty() || !is_it(map_.theirs.back())) map_.theirs.push_back({piece.tensor, shape});
        map_.ours.back().pieces.push_back(std::move(piece));
    }

    void add_cut(const layout::ParamSpec& parameter, int dim) {
        std::vector<int64_t> shape = parameter.shape;
        shape[dim] /= num_parts_;
        for (int part = 0; part < num_parts_; ++part) {
            Piece piece = whole_piece("", shape);
            (dim == 0 ? piece.row : piece.column) = part * shape[dim];
            add_part(parameter, part, shape, piece);
        }
    }

    /// Each part has some heads. If there are more parts than heads of keys, neighbours have the same head.
    void add_heads(const layout::ParamSpec& parameter, char letter) {
        const int64_t num_heads = letter == 'q' ? spec_.num_heads : spec_.num_kv_heads;
        const int64_t in_part = std::max<int64_t>(1, num_heads / num_parts_);
        const int64_t parts_of_head = std::max<int64_t>(1, num_parts_ / num_heads);
        const int64_t columns = parameter.shape[1];
        for (int64_t head = 0; head < num_heads; ++head) {
            std::vector<Piece> pieces;
            add_head("", head % in_part * spec_.head_dim, head * spec_.head_dim, {spec_.head_dim, columns},
                     letter != 'v', pieces);
            for (const Piece& piece : pieces)
                add_part(parameter, static_cast<int>(head / in_part * parts_of_head),
                         {in_part * spec_.head_dim, columns}, piece);
        }
    }

    const model::ModelSpec& spec_;
    int num_parts_;
    bool divides_vocabulary_;
    TensorMap map_;
};

void check_divisible(const model::ModelSpec& spec, int num_parts, const std::string& place) {
    const int64_t heads = std::max<int64_t>(spec.num_kv_heads, num_parts);
    if (spec.num_heads % num_parts == 0 && heads % spec.num_kv_heads == 0 && heads % num_parts == 0) return;
    throw UserError("{}: {} parts do not divide {} heads with {} heads of keys", place, num_parts,
                    spec.num_heads, spec.num_kv_heads);
}

}  // namespace

ModelSource open_meta(const fs::path& folder, const OpenOptions& options) {
    int num_parts = 0;
    auto parts = open_parts(folder, num_parts);
    ModelSource source{.form = Form::Meta, .path = folder};
    set_model(options, *parts, num_parts, source);
    if (source.assets.empty()) source.assets = folder;
    const model::ModelSpec& spec = source.spec;
    check_divisible(spec, num_parts, folder.string());
    const TensorInfo& table = parts->at(meta_part(0) + "tok_embeddings.weight");
    MetaMap meta(spec, num_parts, table.shape.size() == 2 && table.shape[1] == spec.dim);
    for (const layout::ParamSpec& parameter : model::model_parameters(spec)) meta.add(parameter);
    TensorMap map = meta.take();

    TensorsByName there = by_name(*parts);
    TensorFaults faults;
    take_expected(there, map, faults);
    std::set<std::string> expected;  // of the first part: the others have the same names
    for (const TensorMap::Theirs& theirs : map.theirs)
        expected.insert(theirs.name.substr(meta_part(0).size()));
    for (const auto& [name, tensor] : there) {
        const std::string part = name.substr(0, meta_part(0).size()), key = name.substr(part.size());
        if (expected.contains(key) || key == "rope.freqs") continue;
        if (spec.tied_embeddings && key == "output.weight")
            check_tied_head(*parts, *tensor, part + "tok_embeddings.weight", options.checked, faults);
        else
            faults.add(shown(name) + " is not a tensor of the model");
    }
    faults.check(folder.string(), spec);
    source.tensors = std::make_unique<MappedSource>(std::move(parts), std::move(map.ours));
    return source;
}

std::unique_ptr<TensorSource> open_pickled_weights(const fs::path& folder) {
    const fs::path index = folder / kPickledWeightsIndex;
    if (!is_there(index)) return open_weights(folder / kPickledWeights);
    const auto file_of_tensor =
        parse_weights_index(read_text(index, kMaxMetaJsonBytes), index.string(), ".bin");
    std::set<std::string> files;
    for (const auto& [tensor, file] : file_of_tensor) files.insert(file);
    std::vector<JoinedSource::Member> members;
    for (const std::string& file : files) {
        if (!is_there(folder / file))
            throw UserError("{}: its file {} is missing", index.string(), shown(file));
        members.push_back({"", open_weights(folder / file)});
    }
    return std::make_unique<JoinedSource>(std::move(members), folder.string());
}

}  // namespace argosy::interop
