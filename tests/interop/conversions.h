// Tiny models in every form, and conversions between them in one call.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "interop/convert.h"
#include "model/model_spec.h"
#include "scratch_folder.h"

namespace argosy::interop {

/// llama, llama_tied, qwen2 (tied), qwen3, phi3, mixtral, qwen3_moe, glm4_moe, and glm4_moe_dense, all of
/// whose layers are dense: sizes that divide nothing.
model::ModelSpec tiny_spec(const std::string& name);
inline const std::vector<std::string> kTinyModels = {
    "llama", "llama_tied", "qwen2", "qwen3", "phi3", "mixtral", "qwen3_moe", "glm4_moe", "glm4_moe_dense"};

/// Bytes that depend on the name and are finite numbers in every type.
std::vector<std::byte> tensor_bytes(const checkpoint::TensorInfo& tensor);

/// A checkpoint's tensors: weights of `type`, and AdamW's means in f32.
std::vector<checkpoint::TensorInfo> tiny_tensors(const model::ModelSpec& spec, ElementType type,
                                                 bool optimizer);

/// The tensors of a Hugging Face folder.
std::vector<checkpoint::TensorInfo> hugging_face_tensors(const model::ModelSpec& spec, ElementType type);

/// A step of a run on four ranks, two by two: slabs cut along both dims; with a tokenizer.json.
void write_step(const std::filesystem::path& run, const model::ModelSpec& spec, int64_t step = 70);

/// With a tokenizer.json.
void write_hugging_face(const std::filesystem::path& folder, const model::ModelSpec& spec,
                        ElementType type = ElementType::BFloat16);

/// Converts without verifying.
void convert_to(const std::filesystem::path& from, const std::filesystem::path& to,
                const ConvertOptions& options);

/// Type, shape and bytes of every tensor that a model's files hold, under our names.
struct StoredTensorBytes {
    checkpoint::TensorInfo info;
    std::vector<std::byte> bytes;
    bool operator==(const StoredTensorBytes&) const = default;
};
std::map<std::string, StoredTensorBytes> contents(const std::filesystem::path& path);

}  // namespace argosy::interop
