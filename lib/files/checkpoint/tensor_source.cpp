#include "checkpoint/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "base/error.h"
#include "base/text.h"
#include "h5/element_type.h"

namespace argosy::checkpoint {
namespace {

/// "12 tensors: a, b, c, d and 8 more", for messages.
std::string listing(const std::vector<TensorInfo>& tensors) {
    constexpr size_t kShown = 4;
    return fmt::format("{} tensors: {}", tensors.size(),
                       listed(tensors | std::views::transform(&TensorInfo::name), kShown));
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
