#include "train/export.h"

#include <regex>
#include <string>

#include "base/error.h"
#include "checkpoint/partial_folder.h"
#include "interop/convert.h"
#include "interop/model_source.h"
#include "train/element_types.h"

namespace argosy::train {
namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 4;  // reading, converting and writing overlap; nothing else runs by then

/// config.json, the weights in one file or several, and the tokenizer's files.
bool is_of_an_export(const std::string& name) {
    static const std::regex weights(
        R"(model(-\d{5,}-of-\d{5,})?\.safetensors|model\.safetensors\.index\.json)");
    return name == "config.json" || interop::is_asset(name) || std::regex_match(name, weights);
}

}  // namespace

void require_replaceable(const fs::path& place) {
    const fs::file_type type = fs::symlink_status(place).type();
    if (type == fs::file_type::not_found) return;
    if (type != fs::file_type::directory) {
        throw UserError("{} is in the way of checkpoint.last_save_in_hf: it is no folder; move it elsewhere",
                        place.string());
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(place)) {
        const std::string name = entry.path().filename().string();
        if (entry.is_regular_file() && is_of_an_export(name)) continue;
        throw UserError(
            "{} is in the way of checkpoint.last_save_in_hf: it holds '{}', which no export does; move it "
            "elsewhere",
            place.string(), name);
    }
}

void write_hugging_face(const std::filesystem::path& step, const std::filesystem::path& place,
                        std::optional<config::Precision> type) {
    require_replaceable(place);
    const interop::ModelSource source = interop::open_model(step);
    interop::ConvertOptions options{.to = interop::Form::HuggingFace, .content = interop::Content::ModelOnly};
    if (type) options.type = element_type(scalar_type(*type));
    checkpoint::PartialFolder partial(place);
    interop::convert(source, interop::plan(source, options), options, partial.path(),
                     {.num_threads = kThreads});
    partial.commit(checkpoint::Replace::Yes);
}

}  // namespace argosy::train
