// The conversion target for a Hugging Face folder: config.json, the weights in one safetensors file or in
// several with an index, and the tokenizer's files.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "checkpoint/partial_folder.h"
#include "interop/names.h"
#include "interop/safetensors.h"
#include "interop/target.h"

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
ElementType main_type(const std::vector<Transfer>& transfers) {
    std::map<ElementType, int64_t, h5::FileOrder> elements;
    for (const Transfer& transfer : transfers) elements[transfer.to.type] += transfer.to.num_elements();
    return std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; })->first;
}

/// Returns config.json with this program's keys, and with the source's own keys that the architecture does
/// not determine: those in `open`, and those that this program does not know.
std::string config_text(const TargetOptions& options) {
    const char* type = torch_type(main_type(options.transfers));
    const std::string place = options.source.path.string();
    json config = parse_json(model::hugging_face_config(options.source.spec, type), place);
    const auto original = parse_json(options.source.config_json, place);
    const auto open = {"attention_dropout", "initializer_range", "use_cache", "bos_token_id", "eos_token_id"};
    for (const auto& [key, value] : original.items()) {
        const bool ours = config.contains(key) && std::ranges::find(open, key) == open.end();
        if (!ours) config[key] = value;
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

class HuggingFaceTarget : public Target {
  public:
    explicit HuggingFaceTarget(const TargetOptions& options) : folder_(options.partial) {
        std::vector<TensorInfo> tensors;
        for (const Transfer& transfer : options.transfers) {
            TensorInfo& tensor = tensors.emplace_back(transfer.to);
            tensor.name = hugging_face_name(tensor.name.substr(std::string(kModelPrefix).size()));
        }
        checkpoint::make_folders(folder_);
        write_text(folder_ / "config.json", config_text(options));
        write_assets(options.source);
        start_files(tensors, split(tensors, options.max_file_bytes));
    }

    void append(size_t transfer, std::span<const std::byte> bytes) override {
        Tensor& tensor = tensors_[transfer];
        files_[tensor.file].write(tensor.index, tensor.done_bytes, bytes);
        tensor.done_bytes += std::ssize(bytes);
    }

    fs::path finish() override {
        for (SafetensorsWriter& file : files_) file.finish();
        sync_folder(folder_);
        return folder_;
    }

  private:
    struct Tensor {
        size_t file, index;  // index among the file's tensors
        int64_t done_bytes = 0;
    };

    void write_assets(const ModelSource& source) const {
        for (const checkpoint::Asset& asset : read_assets(source)) {
            if (is_asset(asset.name)) {
                write_text(folder_ / asset.name, asset.bytes);
            } else {
                spdlog::warn("{} is left out: no file of that name belongs to a Hugging Face model",
                             shown(asset.name));
            }
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

std::unique_ptr<Target> make_hugging_face_target(const TargetOptions& options) {
    return std::make_unique<HuggingFaceTarget>(options);
}

}  // namespace argosy::interop
