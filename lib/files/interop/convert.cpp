#include "interop/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "h5/dataset.h"
#include "interop/conversion_folder.h"
#include "interop/names.h"
#include "interop/target.h"
#include "model/units.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;

std::unique_ptr<Target> make_target(Form form, const TargetOptions& options) {
    switch (form) {
        case Form::Sharded:
            return make_sharded_target(options);
        case Form::Full:
            return make_full_target(options);
        case Form::Distributed:
            return make_distributed_target(options);
        default:
            return make_hugging_face_target(options);
    }
}

int num_shards(const ModelSource& source, const ConvertOptions& options) {
    if (options.num_shards > 0) return options.num_shards;
    return source.form == Form::Sharded ? static_cast<int>(source.checkpoint->manifest().files.size()) : 1;
}

/// Compares one tensor of the result with the source. Only one thread at a time uses a Comparison.
class Comparison {
  public:
    Comparison(const ModelSource& result, const TensorInfo& expected)
        : result_(result), tensor_(result.tensors->find(expected.name)) {
        if (!tensor_) {
            fault_ = expected.name + " is missing";
        } else if (*tensor_ != expected) {
            fault_ = fmt::format("{}: expected {} [{}], found {} [{}]", expected.name, expected.type_name(),
                                 fmt::join(expected.shape, ", "), tensor_->type_name(),
                                 fmt::join(tensor_->shape, ", "));
        }
    }

    /// Compares a slab with its expected bytes.
    void add(const layout::Slab& slab, std::span<const std::byte> expected) {
        if (!fault_.empty()) return;
        std::vector<std::byte> found(expected.size());
        result_.tensors->read(*tensor_, slab, found);
        if (std::memcmp(expected.data(), found.data(), expected.size()) == 0) return;
        const auto width = static_cast<size_t>(size_bytes(tensor_->type));
        for (size_t at = 0; at < expected.size(); at += width)
            num_different_ += std::memcmp(&expected[at], &found[at], width) != 0;
    }

    /// Empty if nothing differs.
    std::string fault() const {
        if (num_different_ == 0) return fault_;
        return fmt::format("{}: {} of {} elements differ", tensor_->name, num_different_,
                           tensor_->num_elements());
    }

  private:
    const ModelSource& result_;
    const TensorInfo* tensor_;
    std::string fault_;
    int64_t num_different_ = 0;
};

/// Tensors that no conversion wrote.
std::vector<std::string> superfluous_tensors(const ModelSource& result,
                                             const std::vector<TensorConversion>& conversions) {
    std::set<std::string> expected;
    for (const TensorConversion& conversion : conversions) expected.insert(conversion.to.name);
    std::vector<std::string> found;
    for (const TensorInfo& tensor : result.tensors->tensors()) {
        const bool is_zero_bias = result.form == Form::Distributed && model::is_router_bias(tensor.name);
        if (!expected.contains(tensor.name) && !is_zero_bias)
            found.push_back(tensor.name + " should not be there");
    }
    return found;
}

std::vector<std::string> element_differences(const ModelSource& source, const ModelSource& result,
                                             const std::vector<TensorConversion>& conversions,
                                             const StreamOptions& stream_options) {
    std::vector<Comparison> comparisons;
    for (const TensorConversion& conversion : conversions) comparisons.emplace_back(result, conversion.to);
    const auto not_finite =
        run_conversions(source, conversions, stream_options,
                        [&](size_t conversion, const layout::Slab& slab, std::span<const std::byte> bytes) {
                            comparisons[conversion].add(slab, bytes);
                        });
    std::vector<std::string> found = superfluous_tensors(result, conversions);
    for (size_t i = 0; i < conversions.size(); ++i) {
        if (const std::string fault = comparisons[i].fault(); !fault.empty()) found.push_back(fault);
        const bool is_weight = conversions[i].to.name.starts_with(kModelPrefix);
        if (is_weight && not_finite[i].in_source > 0) found.push_back(not_finite[i].text(conversions[i]));
    }
    return found;
}

std::vector<std::string> description_differences(const ModelSource& source, const ModelSource& result) {
    std::vector<std::string> found = model::differences(source.spec, result.spec);
    const auto compare = [&](const char* what, const auto& expected, const auto& there) {
        if (expected != there)
            found.push_back(fmt::format("{}: expected {}, found {}", what, expected, there));
    };
    compare("max_position_embeddings", source.spec.max_context, result.spec.max_context);
    if (source.description && result.description) {
        compare("step", source.description->step, result.description->step);
    }
    if (result.form == Form::Distributed) return found;  // TorchTitan has its configuration and tokenizer
    if (source.description && result.description) {
        compare("mesh", source.description->mesh, result.description->mesh);
        compare("configuration", source.description->config, result.description->config);
        compare("state", source.description->state, result.description->state);
    }
    const bool exported = result.form == Form::HuggingFace;
    const auto expected = exported ? exported_assets(source) : read_assets(source);
    const auto there = read_assets(result);
    for (const checkpoint::Asset& asset : expected) {
        const auto found_asset = std::ranges::find(there, asset.name, &checkpoint::Asset::name);
        if (found_asset != there.end() && found_asset->bytes == asset.bytes) continue;
        found.push_back(
            fmt::format("{} {}", asset.name, found_asset == there.end() ? "is missing" : "differs"));
    }
    return found;
}

std::vector<std::byte> bytes_of(const ModelSource& source, const TensorInfo& tensor) {
    std::vector<std::byte> bytes(tensor.num_bytes());
    source.tensors->read(tensor, layout::whole(tensor.shape), bytes);
    return bytes;
}

bool is_bias(const TensorInfo& tensor) {
    return model::is_router_bias(tensor.name) && tensor.name.starts_with(kModelPrefix);
}

/// Whether transformers may choose other experts: it takes 0 for the experts of groups that are left out, so
/// that they come before experts whose score with a negative bias is below 0.
bool may_choose_others(const ModelSource& source) {
    const ops::Router& router = source.spec.experts->router;
    if (router.top_groups == router.num_groups) return false;
    return std::ranges::any_of(source.tensors->tensors(), [&](const TensorInfo& tensor) {
        if (!is_bias(tensor)) return false;
        const std::vector<std::byte> bytes = bytes_of(source, tensor);
        const size_t size = size_bytes(tensor.type);
        for (size_t last = size - 1; last < bytes.size(); last += size)  // with the sign
            if ((bytes[last] & std::byte{0x80}) != std::byte{0}) return true;
        return false;
    });
}

/// Throws UserError if an expert has a bias: Hugging Face's model would choose others.
void refuse_router_biases(const ModelSource& source) {
    for (const TensorInfo& tensor : source.tensors->tensors()) {
        if (!is_bias(tensor)) continue;
        if (std::ranges::all_of(bytes_of(source, tensor),
                                [](std::byte byte) { return byte == std::byte{0}; }))
            continue;
        throw UserError(
            "{}: {} has biases in the choice of experts (moe.bias_update_rate; load_balance_coeff of "
            "TorchTitan, 1e-3 by default), for which {} has no place in Hugging Face's format: the export "
            "would be another model. Keep it in this program's formats, which eval reads",
            source.path.string(), tensor.name, source.spec.name);
    }
}

/// Leaves the tensors that TorchTitan has.
void keep_torchtitan_tensors(const ModelSource& source, std::vector<TensorConversion>& conversions) {
    const TensorMap map =
        torchtitan_tensors(source.spec, TorchTitanNames::Current, [](const std::string&) { return true; });
    std::set<std::string> known;
    for (const MappedTensor& ours : map.ours) known.insert(ours.name);
    std::erase_if(conversions, [&](const TensorConversion& each) {
        const bool unknown = !known.contains(each.to.name);
        if (unknown) spdlog::warn("{} is left out: TorchTitan has no such tensor", each.to.name);
        return unknown;
    });
}

}  // namespace

void require_torchtitan_model(const ModelSource& source) {
    if (has_torchtitan_names(source.spec)) return;
    const bool biases = source.spec.qkv_bias || source.spec.output_bias || source.spec.mlp_bias;
    throw UserError(
        "{}: TorchTitan has no model like this one ({}{}); it has Llama 3 and Qwen3. Most programs read "
        "--to hf",
        source.path.string(), source.spec.name, biases ? " with biases" : "");
}

bool unties_head(const model::ModelSpec& spec) { return spec.name == "llama3" && spec.tied_embeddings; }

bool has_optimizer(const ModelSource& source) {
    return source.description && !source.description->model_only &&
           std::ranges::any_of(source.tensors->tensors(), [](const TensorInfo& tensor) {
               return !tensor.name.starts_with(kModelPrefix);
           });
}

std::vector<TensorConversion> plan(const ModelSource& source, const ConvertOptions& options) {
    const bool exports = options.to == Form::HuggingFace;
    const bool to_torch = options.to == Form::Distributed;
    const bool model_only =
        exports || options.content == Content::ModelOnly || (to_torch && !options.optimizer);
    std::vector<TensorConversion> conversions =
        plan_conversions(source, model_only ? Content::ModelOnly : Content::Everything, options.type);
    if (to_torch) keep_torchtitan_tensors(source, conversions);
    if (!exports) return conversions;
    if (has_router_biases(source.spec)) {
        if (may_choose_others(source)) {
            spdlog::warn(
                "{}: transformers may choose other experts: some biases are negative, and it takes 0 for the "
                "scores of experts in groups that are left out; this program, DeepSeek and Megatron leave "
                "them out",
                source.path.string());
        }
        return conversions;
    }
    refuse_router_biases(source);
    std::erase_if(conversions,
                  [](const TensorConversion& each) { return model::is_router_bias(each.to.name); });
    return conversions;
}

std::filesystem::path convert(const ModelSource& source, const std::vector<TensorConversion>& conversions,
                              const ConvertOptions& options, const std::filesystem::path& partial,
                              const StreamOptions& stream_options) {
    const auto target =
        make_target(options.to, {.source = source,
                                 .conversions = conversions,
                                 .content = options.content,
                                 .partial = partial,
                                 .num_shards = num_shards(source, options),
                                 .max_file_bytes = options.max_file_bytes,
                                 .names = options.names,
                                 .optimizer = options.optimizer ? &*options.optimizer : nullptr});
    const auto not_finite =
        run_conversions(source, conversions, stream_options,
                        [&](size_t conversion, const layout::Slab& slab, std::span<const std::byte> bytes) {
                            target->append(conversion, slab, bytes);
                        });
    for (size_t i = 0; i < conversions.size(); ++i) {
        const std::string warning = not_finite[i].text(conversions[i]);
        if (!warning.empty()) spdlog::warn("{}", warning);
    }
    std::filesystem::path result = target->finish();
    if (std::filesystem::is_directory(result)) list_conversion(result);
    return result;
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

std::vector<std::string> differences(const ModelSource& source, const ModelSource& result,
                                     const std::vector<TensorConversion>& conversions,
                                     const StreamOptions& stream_options) {
    std::vector<std::string> found = description_differences(source, result);
    const auto add = [&](const std::vector<std::string>& more) {
        found.insert(found.end(), more.begin(), more.end());
    };
    add(element_differences(source, result, conversions, stream_options));
    if (result.checkpoint) add(faults(*result.checkpoint, stream_options.num_threads));
    return found;
}

}  // namespace argosy::interop
