#include "train/export.h"

#include "checkpoint/partial_folder.h"
#include "interop/convert.h"
#include "interop/model_source.h"
#include "train/element_types.h"

namespace argosy::train {
namespace {

constexpr int kThreads = 4;  // reading, converting and writing overlap; nothing else runs by then

}  // namespace

void write_hugging_face(const std::filesystem::path& step, const std::filesystem::path& place,
                        std::optional<config::Precision> type) {
    const interop::ModelSource source = interop::open_model(step);
    interop::ConvertOptions options{.to = interop::Form::HuggingFace, .content = interop::Content::ModelOnly};
    if (type) options.type = element_type(scalar_type(*type));
    checkpoint::PartialFolder partial(place);
    interop::convert(source, interop::plan(source, options), options, partial.path(),
                     {.num_threads = kThreads});
    partial.commit(checkpoint::Replace::Yes);
}

}  // namespace argosy::train
