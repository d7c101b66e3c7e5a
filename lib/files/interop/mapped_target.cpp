#include <utility>

#include "base/error.h"
#include "interop/target.h"

namespace argosy::interop {

using checkpoint::TensorInfo;

MappedTarget::MappedTarget(TensorMap map, const std::vector<TensorConversion>& conversions)
    : map_(std::move(map)) {
    std::map<std::string, const std::vector<int64_t>*> shapes;
    for (const TensorMap::Theirs& theirs : map_.theirs) shapes.emplace(theirs.name, &theirs.shape);
    for (const auto& [from, to] : conversions) {
        ours_.push_back(&map_.at(to.name));
        for (const Piece& piece : ours_.back()->pieces) {
            const auto [entry, is_new] = numbers_.emplace(piece.tensor, converted_.size());
            if (is_new) converted_.push_back({piece.tensor, to.type, *shapes.at(piece.tensor)});
            const TensorInfo& theirs = converted_[entry->second];
            if (theirs.type == to.type) continue;
            throw UserError("{} gets parts in {} and in {}; choose one type with --dtype", theirs.name,
                            theirs.type_name(), to.type_name());
        }
    }
}

void MappedTarget::append(size_t conversion, const layout::Slab& slab, std::span<const std::byte> bytes) {
    const int64_t width = std::ssize(bytes) / slab.num_elements();
    for_each_part(*ours_[conversion], slab, [&](const Part& part) {
        const size_t number = numbers_.find(part.piece->tensor)->second;
        for_each_run(part, converted_[number].shape, [&](const layout::Run& run) {
            write(number, run.in_a * width, bytes.subspan(run.in_b * width, run.length * width));
        });
    });
}

}  // namespace argosy::interop
