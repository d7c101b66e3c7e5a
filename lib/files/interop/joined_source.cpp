#include "interop/joined_source.h"

#include <utility>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::interop {

JoinedSource::JoinedSource(std::vector<Member> members, std::string place)
    : members_(std::move(members)), place_(std::move(place)) {
    for (const auto& [prefix, source] : members_) {
        for (const checkpoint::TensorInfo& tensor : source->tensors()) {
            tensors_.push_back({prefix + tensor.name, tensor.type, tensor.shape});
            const Location location{source.get(), &tensor};
            const auto [known, is_new] = locations_.emplace(tensors_.back().name, location);
            if (is_new) continue;
            throw UserError("tensor {} is in two files: {} and {}", shown(tensors_.back().name),
                            known->second.source->place(), source->place());
        }
    }
}

void JoinedSource::read(const checkpoint::TensorInfo& tensor, const layout::Slab& slab,
                        std::span<std::byte> out) const {
    const Location& location = locations_.find(tensor.name)->second;
    location.source->read(*location.tensor, slab, out);
}

}  // namespace argosy::interop
