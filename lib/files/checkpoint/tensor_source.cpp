#include "checkpoint/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "base/error.h"
#include "base/text.h"

namespace argosy::checkpoint {
namespace {

/// "12 tensors: a, b, c, d and 8 more", for messages.
std::string listing(const std::vector<TensorInfo>& tensors) {
    constexpr size_t kShown = 4;
    return fmt::format("{} tensors: {}", tensors.size(),
                       listed(tensors | std::views::transform(&TensorInfo::name), kShown));
}

}  // namespace

const char* TensorInfo::type_name() const {
    // In the order of ElementType. Other programs' files have types that checkpoints do not.
    constexpr const char* kNames[] = {"i8",  "u8",  "i32",  "u32",     "i64",     "u64", "f16",
                                      "f32", "f64", "bf16", "f8_e4m3", "f8_e5m2", "u16"};
    return kNames[static_cast<int>(type)];
}

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
