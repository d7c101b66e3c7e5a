#include "checkpoint/tensor_source.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "h5/element_type.h"

namespace argosy::checkpoint {
namespace {

/// "12 tensors: a, b, c, ...", for messages.
std::string listing(const std::vector<TensorInfo>& tensors) {
    constexpr size_t kShown = 4;
    std::vector<std::string> names;
    for (const TensorInfo& tensor : tensors) {
        if (names.size() == kShown)
            return fmt::format("{} tensors: {}, ...", tensors.size(), fmt::join(names, ", "));
        names.push_back(tensor.name);
    }
    return fmt::format("{} tensors: {}", tensors.size(), fmt::join(names, ", "));
}

}  // namespace

const char* TensorInfo::type_name() const { return h5::name(type); }

const TensorInfo* TensorSource::find(const std::string& name) const {
    const std::vector<TensorInfo>& all = tensors();
    const auto found = std::ranges::find(all, name, &TensorInfo::name);
    return found == all.end() ? nullptr : &*found;
}

const TensorInfo& TensorSource::at(const std::string& name) const {
    if (const TensorInfo* found = find(name)) return *found;
    throw UserError("{} has no tensor '{}'; it holds {}", place(), name, listing(tensors()));
}

}  // namespace argosy::checkpoint
