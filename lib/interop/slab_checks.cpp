#include "interop/slab_checks.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/slab_bytes.h"

namespace argosy::interop {

using checkpoint::StoredSlab;

SlabChecks::SlabChecks(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& tensor)
    : checkpoint_(checkpoint), tensor_(tensor), slabs_(checkpoint.slabs(tensor)), hashers_(slabs_.size()) {}

void SlabChecks::add(const layout::Slab& block, std::span<const std::byte> bytes) {
    const int64_t size_bytes = h5::size_bytes(tensor_.type);
    for (size_t i = 0; i < hashers_.size(); ++i) {
        const layout::Slab& stored = slabs_[i].slab;
        const auto common = checkpoint::intersection(stored, block);
        if (!common) continue;
        checkpoint::for_each_run(*common, stored, block, [&](const checkpoint::Run& run) {
            hashers_[i].add(bytes.subspan(run.in_b * size_bytes, run.length * size_bytes));
        });
    }
}

void SlabChecks::finish() const {
    for (size_t i = 0; i < hashers_.size(); ++i) {
        const StoredSlab& stored = slabs_[i];
        const checkpoint::Hash found = hashers_[i].value();
        if (found == stored.hash) continue;
        const std::string file =
            stored.file == StoredSlab::kThisFile ? "" : "/" + checkpoint_.manifest().files[stored.file].name;
        throw UserError(
            "{}{}: tensor '{}' is torn: its slab at [{}] of [{}] gives the check {}, and {} was expected",
            checkpoint_.place(), file, tensor_.name, fmt::join(stored.slab.offset, ", "),
            fmt::join(stored.slab.size, ", "), found.hex(), stored.hash.hex());
    }
}

using layout::Slab;

std::vector<Slab> consecutive_blocks(const std::vector<int64_t>& shape, int64_t most_elements) {
    const Slab whole{std::vector<int64_t>(shape.size(), 0), shape};
    if (whole.num_elements() == 0) return {};
    // `cut` is the dim that is cut: the dims after it fit into a block together, those before it have one row
    // each.
    size_t cut = shape.size();
    int64_t inner = 1;
    while (cut > 0 && inner * shape[cut - 1] <= most_elements) inner *= shape[--cut];
    if (cut == 0) return {whole};
    --cut;

    const int64_t rows = most_elements / inner;
    std::vector<Slab> blocks;
    Slab block = whole;
    std::fill_n(block.size.begin(), cut, 1);
    while (true) {
        for (int64_t begin = 0; begin < shape[cut]; begin += rows) {
            block.offset[cut] = begin;
            block.size[cut] = std::min(rows, shape[cut] - begin);
            blocks.push_back(block);
        }
        size_t dim = cut;
        while (dim > 0 && ++block.offset[dim - 1] == shape[dim - 1]) block.offset[--dim] = 0;
        if (dim == 0) return blocks;
    }
}

}  // namespace argosy::interop
