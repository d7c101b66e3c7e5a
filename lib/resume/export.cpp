#include "resume/export.h"

#include "base/error.h"
#include "checkpoint/partial_folder.h"
#include "interop/conversion_folder.h"
#include "interop/convert.h"
#include "interop/model_source.h"
#include "setup/element_types.h"

namespace argosy::resume {
namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 4;  // reading, converting and writing overlap; training has ended by then

}  // namespace

void require_export_place(const fs::path& place) {
    const fs::file_type type = fs::symlink_status(place).type();
    if (type == fs::file_type::not_found) return;
    if (type == fs::file_type::directory && interop::is_conversion(place)) return;
    throw UserError(
        "{} is in the way of checkpoint.last_save_in_hf: {}, and no export wrote it; move it elsewhere",
        place.string(),
        type == fs::file_type::directory
            ? fmt::format("it holds '{}'", fs::directory_iterator(place)->path().filename().string())
            : "it is no folder");
}

void write_hugging_face(const std::filesystem::path& step, const std::filesystem::path& place,
                        std::optional<config::Precision> type) {
    require_export_place(place);
    const interop::ModelSource source = interop::open_model(step);
    interop::ConvertOptions options{.to = interop::Form::HuggingFace, .content = interop::Content::ModelOnly};
    if (type) options.type = setup::element_type(setup::scalar_type(*type));
    checkpoint::PartialFolder partial(place);
    const fs::path made = interop::convert(source, interop::plan(source, options), options, partial.path(),
                                           {.num_threads = kThreads});
    interop::publish_conversion(made, place, checkpoint::Replace::Yes);
}

}  // namespace argosy::resume
