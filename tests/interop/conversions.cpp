#include "interop/conversions.h"

#include <cstring>

#include "base/random.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/step_folder.h"
#include "checkpoint/tensor_file.h"
#include "interop/names.h"
#include "interop/safetensors.h"
#include "model/units.h"

namespace argosy::interop {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorInfo;

checkpoint::Description description(const model::ModelSpec& spec, int64_t step) {
    return {.step = step,
            .program = "0.0.1",
            .mesh = "dp_shard 2, tp 2",
            .model = model::hugging_face_config(spec),
            .config = "[training]\nsteps = 100\n",
            .state = R"({"tokens_seen":1234})"};
}

/// Quarters on four writers: matrices are cut along both dims, vectors along one.
checkpoint::SavePlan in_quarters(const std::vector<TensorInfo>& tensors) {
    checkpoint::SavePlan plan{.grid = {2, 2}, .tensors = {}};
    for (const TensorInfo& tensor : tensors) {
        const int second_dim = tensor.shape.size() == 1 ? 0 : 1;
        plan.tensors.push_back({tensor, {{.dim = 0, .parts = 2}, {.dim = second_dim, .parts = 2}}});
    }
    return plan;
}

std::vector<std::byte> cut_out(const TensorInfo& tensor, const layout::Slab& slab) {
    const std::vector<std::byte> all = tensor_bytes(tensor);
    const int64_t size = size_bytes(tensor.type), columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
    const int64_t first_column = tensor.shape.size() > 1 ? slab.offset[1] : 0;
    const int64_t num_columns = tensor.shape.size() > 1 ? slab.size[1] : 1;
    std::vector<std::byte> bytes;
    for (int64_t row = slab.offset[0]; row < slab.offset[0] + slab.size[0]; ++row) {
        const auto begin = all.begin() + (row * columns + first_column) * size;
        bytes.insert(bytes.end(), begin, begin + num_columns * size);
    }
    return bytes;
}

}  // namespace

model::ModelSpec tiny_spec(const std::string& name) {
    const bool is_glm = name.starts_with("glm4_moe");
    model::ModelSpec spec{.name = name.starts_with("llama") ? "llama3"
                                  : is_glm                  ? "glm4_moe"
                                                            : name,
                          .vocab_size = 61,
                          .dim = 26,
                          .num_layers = 2,
                          .num_heads = 6,
                          .num_kv_heads = 2,
                          .head_dim = 10,
                          .hidden_dim = 37,
                          .max_context = 4097};
    spec.tied_embeddings = name == "llama_tied" || name == "qwen2";
    spec.qkv_bias = name == "qwen2";
    if (name == "qwen3") spec.qk_norm = model::QkNorm::Heads;
    if (name == "phi3") spec.rotary_dim = 6;
    if (name == "mixtral")
        spec.experts = {.router = {.num_experts = 11, .top_k = 2}, .hidden_dim = spec.hidden_dim};
    if (name == "qwen3_moe") {
        spec.qk_norm = model::QkNorm::Heads;
        spec.experts = {.router = {.num_experts = 3, .top_k = 1}, .hidden_dim = 7, .dense_layers = {0}};
    }
    if (is_glm) {
        spec.rotary_dim = 6;
        spec.norm_eps = 1e-5;
    }
    if (name == "glm4_moe") {
        spec.experts = {.router = {.num_experts = 4,
                                   .top_k = 2,
                                   .score = ops::Router::Score::Sigmoid,
                                   .scale = 1.5,
                                   .num_groups = 2,
                                   .top_groups = 1},
                        .hidden_dim = 5,
                        .shared_hidden_dim = 10,
                        .dense_layers = {0}};
    }
    if (name == "llama_tied") spec.rope_scaling = model::RopeScaling{.factor = 32};
    return spec;
}

std::vector<std::byte> tensor_bytes(const TensorInfo& tensor) {
    std::vector<std::byte> bytes(tensor.num_bytes());
    const uint64_t key = name_key(tensor.name);
    for (size_t i = 0; i < bytes.size(); ++i) {
        const auto words = philox({static_cast<uint32_t>(i)},
                                  {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
        bytes[i] = static_cast<std::byte>(words[0]);
    }
    // The last byte of an element has the exponent: small enough for a finite number in every type.
    const size_t size = size_bytes(tensor.type);
    for (size_t i = size - 1; i < bytes.size(); i += size)
        bytes[i] = (bytes[i] & std::byte{0x81}) | std::byte{0x3a};
    return bytes;
}

std::vector<TensorInfo> tiny_tensors(const model::ModelSpec& spec, ElementType type, bool optimizer) {
    std::vector<TensorInfo> tensors;
    for (const layout::ParamSpec& parameter : model::model_parameters(spec)) {
        tensors.push_back({kModelPrefix + parameter.name, type, parameter.shape});
    }
    for (const auto& [layer, bias] : model::router_biases(spec)) {
        if (has_router_biases(spec))
            tensors.push_back({kModelPrefix + bias.name, ElementType::Float32, bias.shape});
    }
    for (const char* mean : {"optimizer/first/", "optimizer/second/"}) {
        if (!optimizer) break;
        for (const layout::ParamSpec& parameter : model::model_parameters(spec)) {
            tensors.push_back({mean + parameter.name, ElementType::Float32, parameter.shape});
        }
    }
    return tensors;
}

std::vector<TensorInfo> hugging_face_tensors(const model::ModelSpec& spec, ElementType type) {
    std::vector<TensorInfo> tensors;
    for (const auto& [name, shape] : hugging_face_map(spec).theirs) {
        const bool is_bias = name.ends_with("e_score_correction_bias");
        tensors.push_back({name, is_bias ? ElementType::Float32 : type, shape});
    }
    return tensors;
}

void write_step(const fs::path& run, const model::ModelSpec& spec, int64_t step) {
    const checkpoint::Hash nonce{1, 2};
    const checkpoint::SavePlan plan =
        in_quarters(tiny_tensors(spec, ElementType::Float32, /*optimizer=*/true));
    const fs::path folder = run / "checkpoint",
                   partial = checkpoint::start_step(folder, step, plan.num_writers());
    for (int rank = 0; rank < plan.num_writers(); ++rank) {
        const std::vector<checkpoint::TensorSlab> slabs = checkpoint::slabs_of(plan, rank);
        auto writer = checkpoint::TensorFile::shard(partial, nonce, plan, rank);
        for (size_t i = 0; i < slabs.size(); ++i) writer.append(i, cut_out(slabs[i].tensor, slabs[i].slab));
        writer.finish();
    }
    checkpoint::commit_step(folder, description(spec, step), nonce, plan,
                            {{"tokenizer.json", "{\"a\": 1}\n"}});
}

void write_hugging_face(const fs::path& folder, const model::ModelSpec& spec, ElementType type) {
    fs::create_directories(folder);
    write_file(folder / "config.json", model::hugging_face_config(spec));
    write_file(folder / "tokenizer.json", "{\"b\": 2}\n");
    const std::vector<TensorInfo> tensors = hugging_face_tensors(spec, type);
    SafetensorsWriter writer(folder / "model.safetensors", tensors);
    for (size_t i = 0; i < tensors.size(); ++i) writer.write(i, 0, tensor_bytes(tensors[i]));
    writer.finish();
}

void convert_to(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
    const ModelSource source = open_model(from);
    const checkpoint::PartialFolder partial(to);
    const auto made = convert(source, plan(source, options), options, partial.path(), {.num_threads = 2});
    checkpoint::publish(made, to, checkpoint::Replace::No);
}

std::map<std::string, StoredTensorBytes> contents(const fs::path& path) {
    const ModelSource source = open_model(path);
    std::map<std::string, StoredTensorBytes> result;
    for (const TensorInfo& tensor : source.tensors->tensors()) {
        StoredTensorBytes& stored =
            result[tensor.name] = {tensor, std::vector<std::byte>(tensor.num_bytes())};
        source.tensors->read(tensor, layout::whole(tensor.shape), stored.bytes);
    }
    return result;
}

}  // namespace argosy::interop
