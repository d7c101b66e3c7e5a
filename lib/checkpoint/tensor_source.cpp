#include "checkpoint/tensor_source.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

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

int64_t TensorInfo::num_elements() const { return layout::whole(shape).num_elements(); }

const TensorInfo* TensorSource::find(const std::string& name) const {
    const std::vector<TensorInfo>& all = tensors();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const TensorInfo& each) { return each.name == name; });
    return found == all.end() ? nullptr : &*found;
}

const TensorInfo& TensorSource::at(const std::string& name) const {
    if (const TensorInfo* found = find(name)) return *found;
    throw UserError("{} has no tensor '{}'; it holds {}", place(), name, listing(tensors()));
}

}  // namespace argosy::checkpoint
