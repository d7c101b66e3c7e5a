#include "interop/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "base/log.h"
#include "interop/conversion_folder.h"
#include "interop/transfer.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;

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

/// The bits of an element as a hexadecimal number.
std::string hex(std::span<const std::byte> element) {
    std::string digits = "0x";
    for (size_t i = element.size(); i-- > 0;) digits += fmt::format("{:02x}", static_cast<int>(element[i]));
    return digits;
}

/// Compares one tensor of the result with the source. Only one thread at a time uses a Comparison.
class Comparison {
  public:
    Comparison(const ModelSource& made, const TensorInfo& expected)
        : made_(made), tensor_(made.tensors->find(expected.name)) {
        if (!tensor_) {
            fault_ = expected.name + " is missing";
        } else if (*tensor_ != expected) {
            fault_ = fmt::format("{}: expected {} [{}], found {} [{}]", expected.name,
                                 h5::name(expected.type), fmt::join(expected.shape, ", "),
                                 h5::name(tensor_->type), fmt::join(tensor_->shape, ", "));
        }
    }

    /// Compares a block with its expected bytes.
    void add(const layout::Slab& block, std::span<const std::byte> expected) {
        if (!fault_.empty()) return;
        std::vector<std::byte> found(expected.size());
        made_.tensors->read(*tensor_, block, found);
        if (std::memcmp(expected.data(), found.data(), expected.size()) != 0) count(block, expected, found);
    }

    /// Empty if nothing differs.
    std::string fault() const {
        if (num_different_ == 0) return fault_;
        return fmt::format("{}: {} of {} elements differ, {}", tensor_->name, num_different_,
                           tensor_->num_elements(), first_);
    }

  private:
    void count(const layout::Slab& block, std::span<const std::byte> expected,
               std::span<const std::byte> found) {
        const auto width = static_cast<size_t>(size_bytes(tensor_->type));
        for (size_t at = 0; at < expected.size(); at += width) {
            const auto wanted = expected.subspan(at, width), got = found.subspan(at, width);
            if (std::memcmp(wanted.data(), got.data(), width) == 0) continue;
            if (num_different_++ > 0) continue;
            first_ = fmt::format("first element {} of the block at [{}]: expected {}, found {}", at / width,
                                 fmt::join(block.offset, ", "), hex(wanted), hex(got));
        }
    }

    const ModelSource& made_;
    const TensorInfo* tensor_;
    std::string fault_, first_;
    int64_t num_different_ = 0;
};

/// Tensors that no transfer wrote.
std::vector<std::string> superfluous_tensors(const ModelSource& made,
                                             const std::vector<Transfer>& transfers) {
    std::set<std::string> expected;
    for (const Transfer& transfer : transfers) expected.insert(transfer.to.name);
    std::vector<std::string> found;
    for (const TensorInfo& tensor : made.tensors->tensors()) {
        if (!expected.contains(tensor.name)) found.push_back(tensor.name + " should not be there");
    }
    return found;
}

std::vector<std::string> element_differences(const ModelSource& source, const ModelSource& made,
                                             const std::vector<Transfer>& transfers,
                                             const TransferOptions& transfer_options) {
    std::vector<Comparison> comparisons;
    for (const Transfer& transfer : transfers) comparisons.emplace_back(made, transfer.to);
    run_transfers(source, transfers, transfer_options,
                  [&](size_t transfer, const layout::Slab& block, std::span<const std::byte> bytes) {
                      comparisons[transfer].add(block, bytes);
                  });
    std::vector<std::string> found = superfluous_tensors(made, transfers);
    for (const Comparison& comparison : comparisons) {
        if (const std::string fault = comparison.fault(); !fault.empty()) found.push_back(fault);
    }
    return found;
}

std::vector<std::string> description_differences(const ModelSource& source, const ModelSource& made) {
    std::vector<std::string> found = model::differences(source.spec, made.spec);
    const auto compare = [&](const char* what, const auto& expected, const auto& there) {
        if (expected != there)
            found.push_back(fmt::format("{}: expected {}, found {}", what, expected, there));
    };
    compare("max_position_embeddings", source.spec.max_context, made.spec.max_context);
    if (source.description && made.description) {
        compare("step", source.description->step, made.description->step);
        compare("mesh", source.description->mesh, made.description->mesh);
        compare("configuration", source.description->config, made.description->config);
        compare("state", source.description->state, made.description->state);
    }
    const auto expected = read_assets(source), there = read_assets(made);
    for (const checkpoint::Asset& asset : expected) {
        const auto found_asset = std::ranges::find(there, asset.name, &checkpoint::Asset::name);
        const bool left_out = made.form == Form::HuggingFace && !is_asset(asset.name);
        if (left_out || (found_asset != there.end() && found_asset->bytes == asset.bytes)) continue;
        found.push_back(
            fmt::format("{} {}", asset.name, found_asset == there.end() ? "is missing" : "differs"));
    }
    return found;
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

std::vector<std::string> faults(const checkpoint::Checkpoint& checkpoint, int num_threads) {
    std::mutex mutex;
    std::vector<std::string> found;
    run_in_threads(num_threads, num_threads, [&](size_t part, size_t) {
        const std::vector<std::string> some = checkpoint.faults(static_cast<int>(part), num_threads);
        const std::lock_guard lock(mutex);
        found.insert(found.end(), some.begin(), some.end());
    });
    return found;
}

std::vector<std::string> differences(const ModelSource& source, const ModelSource& made,
                                     const std::vector<Transfer>& transfers,
                                     const TransferOptions& transfer_options) {
    std::vector<std::string> found = description_differences(source, made);
    for (auto&& some : {element_differences(source, made, transfers, transfer_options),
                        made.checkpoint ? faults(*made.checkpoint, transfer_options.num_threads)
                                        : std::vector<std::string>()}) {
        found.insert(found.end(), some.begin(), some.end());
    }
    return found;
}

}  // namespace argosy::interop
