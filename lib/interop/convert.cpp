#include "interop/convert.h"

#include "base/log.h"
#include "interop/conversion_folder.h"

namespace argosy::interop {
namespace {

std::unique_ptr<Target> make_target(Form form, const TargetRequest& request) {
    switch (form) {
        case Form::Sharded:
            return make_sharded_target(request);
        case Form::Full:
            return make_full_target(request);
        default:
            return make_hugging_face_target(request);
    }
}

int num_shards(const ModelSource& source, const ConvertOptions& options) {
    if (options.num_shards > 0) return options.num_shards;
    return source.form == Form::Sharded ? static_cast<int>(source.checkpoint->manifest().files.size()) : 1;
}

}  // namespace

std::vector<Transfer> plan(const ModelSource& source, const ConvertOptions& options) {
    const bool model_only = options.to == Form::HuggingFace || options.content == Content::ModelOnly;
    return plan_transfers(source, model_only ? Content::ModelOnly : Content::Everything, options.type);
}

std::filesystem::path convert(const ModelSource& source, const std::vector<Transfer>& transfers,
                              const ConvertOptions& options, const std::filesystem::path& partial,
                              const TransferOptions& transfer_options) {
    const auto target = make_target(options.to, {.source = source,
                                                 .transfers = transfers,
                                                 .content = options.content,
                                                 .partial = partial,
                                                 .num_shards = num_shards(source, options),
                                                 .most_file_bytes = options.most_file_bytes});
    const auto remarks =
        run_transfers(source, transfers, transfer_options,
                      [&](size_t transfer, const layout::Slab&, std::span<const std::byte> bytes) {
                          target->append(transfer, bytes);
                      });
    for (const std::string& remark : remarks) spdlog::warn("{}", remark);
    std::filesystem::path made = target->finish();
    if (std::filesystem::is_directory(made)) list_conversion(made);
    return made;
}

}  // namespace argosy::interop
