#include "interop/slab_checks.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/slab_bytes.h"

namespace argosy::interop {

using checkpoint::StoredSlab;

SlabChecks::SlabChecks(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& tensor)
    : checkpoint_(checkpoint), tensor_(tensor), slabs_(checkpoint.slabs(tensor)), hashers_(slabs_.size()) {}

void SlabChecks::add(const layout::Slab& slab, std::span<const std::byte> bytes) {
    const int64_t size_bytes = h5::size_bytes(tensor_.type);
    for (size_t i = 0; i < hashers_.size(); ++i) {
        const layout::Slab& stored = slabs_[i].slab;
        const auto common = layout::intersection(stored, slab);
        if (!common) continue;
        layout::for_each_run(*common, stored, slab, [&](const layout::Run& run) {
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

}  // namespace argosy::interop
