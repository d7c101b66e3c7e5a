// The conversion target for a Hugging Face folder: config.json, the weights in one safetensors file or in
// several with an index, and the tokenizer's files.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "checkpoint/partial_folder.h"
#include "interop/names.h"
#include "interop/safetensors.h"
#include "interop/target.h"
#include "model/units.h"

namespace argosy::interop {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorInfo;
using nlohmann::json;

const char* torch_type(ElementType type) {
    switch (type) {
        case ElementType::Float64:
            return "float64";
        case ElementType::BFloat16:
            return "bfloat16";
        case ElementType::Float16:
            return "float16";
        default:
            return "float32";
    }
}

/// The type with the largest number of elements.
ElementType main_type(const std::vector<TensorConversion>& conversions) {
    std::map<ElementType, int64_t, h5::FileOrder> elements;
    for (const TensorConversion& conversion : conversions)
        elements[conversion.to.type] += conversion.to.num_elements();
    return std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; })->first;
}

constexpr const char *kEndKey = "eos_token_id", *kGeneration = "generation_config.json",
                     *kTokenizerConfig = "tokenizer_config.json";

/// The value of `key` in a JSON object: null if the text or the key is missing.
json value_of(const std::string* text, const char* key, const std::string& place) {
    if (!text) return nullptr;
    const json object = parse_json(*text, place);
    if (!object.is_object()) throw UserError("{}: the JSON that has {} is not an object", place, key);
    return object.value(key, json());
}

const std::string* text_of(const std::vector<checkpoint::Asset>& assets, const char* name) {
    const auto found = std::ranges::find(assets, name, &checkpoint::Asset::name);
    return found == assets.end() ? nullptr : &found->bytes;
}

/// Sets `key` of the JSON file `name` among the assets, which gets that file if it is not there.
void set_in(std::vector<checkpoint::Asset>& assets, const char* name, const char* key, const json& value) {
    auto found = std::ranges::find(assets, name, &checkpoint::Asset::name);
    if (found == assets.end()) found = assets.insert(assets.end(), {name, "{}"});
    nlohmann::ordered_json object = parse_json(found->bytes, name);
    object[key] = value;
    found->bytes = object.dump(2) + "\n";
}

/// The end of text by the tokenizer's files: null if there is none, and then `reason` says why.
json tokenizer_end(const ModelSource& source, std::string& reason) {
    try {
        const auto tokenizer = open_tokenizer(source);
        if (tokenizer && tokenizer->info().end_of_text) return *tokenizer->info().end_of_text;
        reason = tokenizer ? "has a tokenizer that names no eos_token" : "has no tokenizer";
    } catch (const UserError& error) {
        reason = fmt::format("has a tokenizer that cannot be read ({})", error.what());
    }
    return nullptr;
}

/// The value of eos_token_id, a number or a list: what the model's files say, or else its tokenizer. Null if
/// there is none, and then `reason` says why.
json end_of_text(const ModelSource& source, std::string& reason) {
    const std::vector<checkpoint::Asset> assets = read_assets(source);
    const std::string place = source.path.string();
    for (const std::string* text : {text_of(assets, kGeneration), &source.config_json}) {
        if (json end = value_of(text, kEndKey, place); !end.is_null()) return end;
    }
    return tokenizer_end(source, reason);
}

/// Returns config.json with this program's keys, and with the source's own keys that the architecture does
/// not determine: those in `open`, and those that this program does not know.
std::string config_text(const TargetOptions& options) {
    const char* type = torch_type(main_type(options.conversions));
    const std::string place = options.source.path.string();
    json config = parse_json(model::hugging_face_config(options.source.spec, type), place);
    const auto original = parse_json(options.source.config_json, place);
    const auto open = {"attention_dropout", "initializer_range", "use_cache",
                       "bos_token_id",      "eos_token_id",      "pad_token_id"};
    for (const auto& [key, value] : original.items()) {
        const bool ours = config.contains(key) && std::ranges::find(open, key) == open.end();
        if (!ours) config[key] = value;
    }
    std::string reason;
    if (config[kEndKey].is_null()) config[kEndKey] = end_of_text(options.source, reason);
    if (config[kEndKey].is_null()) {
        spdlog::warn(
            "{} {}, so the export has no end of text, and generate() of transformers goes on to its "
            "limit; add eos_token_id to its generation_config.json",
            place, reason);
    }
    return config.dump(2) + "\n";
}

/// Distributes the tensors over files in order. Returns the number of tensors of each file.
std::vector<size_t> split(const std::vector<TensorInfo>& tensors, int64_t max_file_bytes) {
    std::vector<size_t> counts;
    int64_t file_bytes = 0;
    for (const TensorInfo& tensor : tensors) {
        if (counts.empty() || file_bytes + tensor.num_bytes() > max_file_bytes) {
            counts.push_back(0);
            file_bytes = 0;
        }
        ++counts.back();
        file_bytes += tensor.num_bytes();
    }
    return counts;
}

std::string file_name(size_t file, size_t num_files) {
    if (num_files == 1) return kSafetensorsName;
    return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, num_files);
}

class HuggingFaceTarget : public MappedTarget {
  public:
    explicit HuggingFaceTarget(const TargetOptions& options)
        : MappedTarget(hugging_face_map(options.source.spec), options.conversions), folder_(options.partial) {
        std::vector<TensorInfo> tensors = converted();
        const size_t num_converted = tensors.size();
        add_missing_biases(tensors);
        make_folders(folder_);
        write_text(folder_ / "config.json", config_text(options));
        write_assets(options.source);
        start_files(tensors, split(tensors, options.max_file_bytes));
        for (size_t i = num_converted; i < tensors.size(); ++i) {
            const std::vector<std::byte> zeros(tensors[i].num_bytes());
            write(i, 0, zeros);
        }
    }

    fs::path finish() override {
        for (SafetensorsWriter& file : files_) file.finish();
        sync_folder(folder_);
        return folder_;
    }

  private:
    struct Tensor {
        size_t file, index;  // index among the file's tensors
    };

    void write(size_t number, int64_t from, std::span<const std::byte> bytes) override {
        files_[tensors_[number].file].write(tensors_[number].index, from, bytes);
    }

    /// Adds the biases of experts that the model's files have and the source has not: they are zero.
    void add_missing_biases(std::vector<TensorInfo>& tensors) const {
        for (const MappedTensor& ours : map().ours) {
            const std::string& theirs = ours.pieces[0].tensor;
            if (!ours.optional || is_converted(theirs)) continue;
            tensors.push_back({theirs, ElementType::Float32, ours.shape});
        }
    }

    void write_assets(const ModelSource& source) const {
        for (const checkpoint::Asset& asset : exported_assets(source))
            write_text(folder_ / asset.name, asset.bytes);
        for (const checkpoint::Asset& asset : read_assets(source)) {
            if (is_asset(asset.name)) continue;
            spdlog::warn("{} is left out: no file of that name belongs to a Hugging Face model",
                         shown(asset.name));
        }
    }

    void start_files(const std::vector<TensorInfo>& tensors, const std::vector<size_t>& counts) {
        std::map<std::string, std::string> file_of_tensor;
        int64_t total_bytes = 0;
        auto next = tensors.begin();
        for (size_t file = 0; file < counts.size(); ++file) {
            const std::vector<TensorInfo> part(next, next + static_cast<std::ptrdiff_t>(counts[file]));
            next += static_cast<std::ptrdiff_t>(counts[file]);
            const std::string name = file_name(file, counts.size());
            files_.emplace_back(folder_ / name, part);
            for (size_t index = 0; index < part.size(); ++index) {
                tensors_.push_back({file, index});
                file_of_tensor[part[index].name] = name;
                total_bytes += part[index].num_bytes();
            }
        }
        if (counts.size() > 1) {
            write_text(folder_ / kSafetensorsIndexName, safetensors_index_json(file_of_tensor, total_bytes));
        }
    }

    fs::path folder_;
    std::vector<SafetensorsWriter> files_;
    std::vector<Tensor> tensors_;
};

}  // namespace

std::vector<checkpoint::Asset> exported_assets(const ModelSource& source) {
    std::vector<checkpoint::Asset> assets = read_assets(source);
    std::erase_if(assets, [](const checkpoint::Asset& asset) { return !is_asset(asset.name); });
    const std::string place = source.path.string();
    std::string reason;  // config_text() has said it
    const json end = end_of_text(source, reason);
    if (!end.is_null() && value_of(text_of(assets, kGeneration), kEndKey, place).is_null())
        set_in(assets, kGeneration, kEndKey, end);
    const json name = value_of(text_of(assets, "special_tokens_map.json"), "eos_token", place);
    if (name.is_null() || !value_of(text_of(assets, kTokenizerConfig), "eos_token", place).is_null())
        return assets;
    const bool has_class = text_of(assets, kTokenizerConfig) || !text_of(assets, "tokenizer.json");
    if (!has_class) set_in(assets, kTokenizerConfig, "tokenizer_class", "PreTrainedTokenizerFast");
    set_in(assets, kTokenizerConfig, "eos_token", name.is_object() ? name.value("content", json()) : name);
    return assets;
}

std::unique_ptr<Target> make_hugging_face_target(const TargetOptions& options) {
    return std::make_unique<HuggingFaceTarget>(options);
}

}  // namespace argosy::interop
