#include "interop/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "interop/conversion.h"
#include "interop/names.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;

struct Size {
    int64_t elements = 0, bytes = 0;
};

Size size_of(const ModelSource& source, bool weights) {
    Size size;
    for (const TensorInfo& tensor : source.tensors->tensors()) {
        if (tensor.name.starts_with(kModelPrefix) != weights) continue;
        size.elements += tensor.num_elements();
        size.bytes += tensor.num_bytes();
    }
    return size;
}

/// The check of a tensor, or the number of its slabs. Empty if the source is no checkpoint, or if a shard
/// cannot be read; the faults name such a shard.
std::string check_text(const ModelSource& source, const TensorInfo& tensor) {
    if (!source.checkpoint) return "";
    if (const int64_t count = source.checkpoint->num_slabs(tensor); count != 1)
        return fmt::format("{} slabs", count);
    try {
        return source.checkpoint->slabs(tensor).front().hash.hex();
    } catch (const Error&) {
        return "";
    }
}

std::string line(const char* what, const std::string& text) { return fmt::format("{:<12} {}\n", what, text); }

std::string experts_text(const model::ModelSpec& spec) {
    if (!spec.experts) return "";
    const ops::Router& router = spec.experts->router;
    const int64_t shared = spec.experts->shared_hidden_dim;
    return fmt::format(", {} of {} experts with hidden {}{}", router.top_k, router.num_experts,
                       spec.experts->hidden_dim,
                       shared > 0 ? fmt::format(", one with {} for all tokens", shared) : "");
}

std::string heading(const ModelSource& source) {
    const Size weights = size_of(source, true), state = size_of(source, false);
    std::string text = line("form", name(source.form)) + line("path", source.path.string());
    if (source.description) {
        text += line("step", fmt::format("{}", source.description->step));
        text += line("mesh", source.description->mesh.empty() ? "none" : source.description->mesh);
        text += line("written by", source.description->program);
    }
    const model::ModelSpec& spec = source.spec;
    text += line(
        "model",
        fmt::format("{}: {} layers, {} wide, {} heads ({} key/value) of {}, hidden {}, vocabulary {}{}{}",
                    spec.name, spec.num_layers, spec.dim, spec.num_heads, spec.num_kv_heads, spec.head_dim,
                    spec.hidden_dim, spec.vocab_size, spec.tied_embeddings ? ", tied embeddings" : "",
                    experts_text(spec)));
    text += line("context", fmt::format("{} tokens (max_position_embeddings)", spec.max_context));
    text += line("weights", fmt::format("{} elements, {}", weights.elements, bytes_text(weights.bytes)));
    text += line("optimizer", state.elements == 0
                                  ? "none"
                                  : fmt::format("{} elements, {}", state.elements, bytes_text(state.bytes)));
    return text;
}

std::string file_lines(const ModelSource& source) {
    std::string text;
    if (!source.checkpoint) return text;
    for (const auto& file : source.checkpoint->manifest().files) {
        text +=
            line("file", fmt::format("{}  {} bytes  check {}", file.name, file.num_bytes, file.check.hex()));
    }
    for (const auto& asset : source.checkpoint->manifest().assets) {
        text += line("asset",
                     fmt::format("{}  {} bytes  check {}", asset.name, asset.num_bytes, asset.hash.hex()));
    }
    return text;
}

std::string fault_lines(const Inspection& inspection) {
    if (!inspection.faults) return "";
    if (!inspection.source.checkpoint) return line("checks", "none in this form");
    if (inspection.faults->empty()) return line("checks", "every byte is as it was saved");
    return line("checks", fmt::format("{} fault{}", inspection.faults->size(),
                                      inspection.faults->size() == 1 ? "" : "s")) +
           fmt::format("{}\n", fmt::join(*inspection.faults, "\n"));
}

}  // namespace

std::string inspection_text(const Inspection& inspection) {
    const ModelSource& source = inspection.source;
    std::string text = heading(source) + file_lines(source) + fault_lines(inspection);
    for (const TensorInfo& tensor : source.tensors->tensors()) {
        text += fmt::format("{:<60} {:>4} {:<16} {:>14} {}\n", tensor.name, tensor.type_name(),
                            fmt::format("[{}]", fmt::join(tensor.shape, ", ")), tensor.num_bytes(),
                            check_text(source, tensor));
    }
    return text;
}

}  // namespace argosy::interop
