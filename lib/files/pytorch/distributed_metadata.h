// Private to this room: what `.metadata` of a distributed checkpoint lists.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layout/slab.h"
#include "pytorch/pickle_reader.h"

namespace argosy::pytorch {

struct StoredItem {
    size_t file = 0;  // of DistributedMetadata::files
    int64_t offset = 0, length = 0;
};

struct StoredChunk {
    layout::Slab slab;
    StoredItem item;
};

struct ChunkedTensor {
    std::string name;
    std::string type_name;  // "torch.float32"
    std::vector<int64_t> shape;
    std::vector<StoredChunk> chunks;  // those with elements, each once
};

struct DistributedMetadata {
    std::vector<std::string> files;  // names in the folder
    std::vector<ChunkedTensor> tensors;
    std::map<std::string, StoredItem> objects;
};

/// The input is not trusted. DamageError, beginning with `place`, if an entry lacks what it must have, or if
/// a tensor's chunks do not cover it exactly; UserError for items that are compressed or otherwise
/// transformed.
DistributedMetadata parse_metadata(const Pickle& pickle, const std::string& place);

/// DamageError unless the chunks lie inside the tensor, do not overlap, and have all of its elements.
void check_chunks(const ChunkedTensor& tensor, const std::string& place);

}  // namespace argosy::pytorch
