#include "pytorch/distributed_metadata.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "base/strict_json.h"
#include "checkpoint/table.h"
#include "pytorch/archive.h"

namespace argosy::pytorch {
namespace {

using Numbers = std::vector<int64_t>;

class MetadataReader {
  public:
    MetadataReader(const Pickle& pickle, const std::string& place)
        : place_(place), parts_left_((1 << 20) + 16 * pickle.num_bytes()) {}

    DistributedMetadata read(Value root) {
        const Value listed = field(root, "state_dict_metadata", "the metadata");
        read_items(field(root, "storage_data", "the metadata"));
        if (listed.kind() != Value::Kind::Dict) fail("the metadata", "state_dict_metadata is no dict");
        std::set<std::string> names;
        for (const Value::Entry& entry : listed.entries()) {
            const std::string* name = text(entry.key);
            if (!name) fail("the metadata", fmt::format("{} is no key of an item", entry.key.shown()));
            if (!names.insert(*name).second) fail("item " + shown(*name), "it is listed twice");
            if (entry.value.class_name().ends_with(".BytesStorageMetadata")) {
                result_.objects.emplace(*name, item_of(*name, {}));
            } else {
                result_.tensors.push_back(tensor_of(*name, entry.value));
            }
        }
        return std::move(result_);
    }

  private:
    struct Located {
        Numbers offset;  // empty for an object
        StoredItem item;
        bool operator<(const Located& other) const { return offset < other.offset; }
    };

    [[noreturn]] void fail(std::string_view what, std::string_view fault) const {
        throw DamageError("{} is damaged: {}: {}. Copy it again, or use another step", place_, what, fault);
    }

    /// Keeps time and memory in proportion to the pickle, though many places may share a value.
    void spend(size_t num_parts) {
        if (num_parts >= parts_left_) fail("the metadata", "its values refer to each other too often");
        parts_left_ -= num_parts;
    }

    const Value* find(Value object, const char* name) {
        if (object.kind() != Value::Kind::Object) return nullptr;
        spend(object.state().entries().size());
        return object.find(name);
    }

    const std::string* text(Value value) {
        if (value.text()) spend(value.text()->size());
        return value.text();
    }

    Value field(Value object, const char* name, const std::string& what) {
        const Value* found = find(object, name);
        if (!found) fail(what, fmt::format("{} has no {}", object.shown(), name));
        return *found;
    }

    Numbers numbers(Value tuple, const std::string& what) {
        spend(tuple.items().size());
        if (const std::optional<Numbers> found = tuple.sizes()) return *found;
        fail(what, fmt::format("{} is no torch.Size", tuple.shown()));
    }

    /// Reads the place of each chunk and object.
    void read_items(Value listed) {
        if (listed.kind() != Value::Kind::Dict) fail("the metadata", "storage_data is no dict");
        for (const Value::Entry& entry : listed.entries()) {
            const Value key = field(entry.key, "fqn", "storage_data");
            const std::string* name = text(key);
            if (!name) fail("storage_data", fmt::format("{} is no key of an item", key.shown()));
            const std::string what = "item " + shown(*name);
            const Value* offset = find(entry.key, "offset");
            Located located;
            if (offset && !offset->is_none()) located.offset = numbers(*offset, what);
            located.item = stored_item(entry.value, what);
            items_[*name].push_back(std::move(located));
        }
        for (auto& [name, list] : items_) std::ranges::sort(list, {}, &Located::offset);
    }

    StoredItem stored_item(Value info, const std::string& what) {
        const std::string* path = text(field(info, "relative_path", what));
        const std::optional<int64_t> offset = field(info, "offset", what).integer(),
                                     length = field(info, "length", what).integer();
        if (!path || !offset || !length || *offset < 0 || *length < 0)
            fail(what, "its file, offset or length is invalid");
        const Value* transforms = find(info, "transform_descriptors");
        const bool is_plain = !transforms || transforms->is_none() ||
                              (transforms->kind() == Value::Kind::List && transforms->items().empty());
        if (!is_plain) {
            throw UserError(
                "{}: {} was written through an extension ({}); only plain items are read. Load it with "
                "torch.distributed.checkpoint and save it without extensions",
                place_, what,
                transforms->items().empty() ? transforms->shown() : transforms->items().front().shown());
        }
        const auto [known, is_new] = files_.emplace(*path, result_.files.size());
        if (is_new) {
            checkpoint::check_file_name(*path, place_);
            result_.files.push_back(*path);
        }
        return {known->second, *offset, *length};
    }

    const StoredItem& item_of(const std::string& name, const Numbers& offset) const {
        if (const auto list = items_.find(name); list != items_.end()) {
            const auto found = std::ranges::lower_bound(list->second, offset, {}, &Located::offset);
            if (found != list->second.end() && found->offset == offset) return found->item;
        }
        fail("item " + shown(name), fmt::format("storage_data has no place of {}", offset));
    }

    ChunkedTensor tensor_of(const std::string& name, Value listed) {
        const std::string what = "tensor " + shown(name);
        ChunkedTensor tensor{
            .name = name, .type_name = {}, .shape = numbers(field(listed, "size", what), what), .chunks = {}};
        const Value properties = field(listed, "properties", what);
        const Value* type = find(properties, "dtype");
        const std::span<const Value> state = properties.state().items();
        if (!type && !state.empty()) type = &state.front();
        if (type) tensor.type_name = type->class_name();
        if (tensor.type_name.empty()) fail(what, "its type is missing");
        const Value chunks = field(listed, "chunks", what);
        for (const Value& chunk : chunks.items()) {
            const layout::Slab slab{numbers(field(chunk, "offsets", what), what),
                                    numbers(field(chunk, "sizes", what), what)};
            if (std::ranges::find(slab.size, 0) == slab.size.end())
                tensor.chunks.push_back({slab, item_of(name, slab.offset)});
        }
        drop_replicas(tensor.chunks);
        check_chunks(tensor, place_);
        return tensor;
    }

    /// Leaves each chunk once: replicas are listed as often as there are ranks that have them.
    static void drop_replicas(std::vector<StoredChunk>& chunks) {
        const auto key = [](const StoredChunk& chunk) {
            return std::tie(chunk.slab.offset, chunk.slab.size);
        };
        std::ranges::sort(chunks, {}, key);
        const auto rest = std::ranges::unique(chunks, {}, key);
        chunks.erase(rest.begin(), rest.end());
    }

    const std::string& place_;
    size_t parts_left_;
    DistributedMetadata result_;
    std::unordered_map<std::string, size_t> files_;
    std::unordered_map<std::string, std::vector<Located>> items_;
};

std::string text_of(const layout::Slab& slab) { return fmt::format("{} of {}", slab.offset, slab.size); }

bool is_inside(const layout::Slab& slab, const Numbers& shape) {
    bool inside = slab.offset.size() == shape.size() && slab.size.size() == shape.size();
    for (size_t dim = 0; inside && dim < shape.size(); ++dim)
        inside = slab.size[dim] <= shape[dim] && slab.offset[dim] <= shape[dim] - slab.size[dim];
    return inside;
}

/// The dim in which the most chunks begin at different places: in a sweep along it few chunks meet.
size_t sweep_dim(const ChunkedTensor& tensor) {
    size_t best = 0, most = 0;
    for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
        std::set<int64_t> begins;
        for (const StoredChunk& chunk : tensor.chunks) begins.insert(chunk.slab.offset[dim]);
        if (begins.size() > most) {
            most = begins.size();
            best = dim;
        }
    }
    return best;
}

}  // namespace

DistributedMetadata parse_metadata(const Pickle& pickle, const std::string& place) {
    return MetadataReader(pickle, place).read(pickle.root());
}

void check_chunks(const ChunkedTensor& tensor, const std::string& place) {
    const auto fail = [&](const std::string& fault) {
        throw DamageError("{} is damaged: tensor {} {}: {}. Copy it again, or use another step", place,
                          shown(tensor.name), tensor.shape, fault);
    };
    int64_t expected = 1, found = 0;
    for (const int64_t size : tensor.shape) {
        if (size > kMaxElements / std::max<int64_t>(expected, 1)) fail("its shape is too large");
        expected *= size;
    }
    for (const StoredChunk& chunk : tensor.chunks) {
        if (!is_inside(chunk.slab, tensor.shape))
            fail(fmt::format("its chunk at {} lies outside", text_of(chunk.slab)));
    }
    std::vector<const layout::Slab*> slabs, met;
    for (const StoredChunk& chunk : tensor.chunks) slabs.push_back(&chunk.slab);
    const size_t dim = sweep_dim(tensor);
    std::ranges::sort(slabs, {},
                      [&](const layout::Slab* slab) { return slab->offset.empty() ? 0 : slab->offset[dim]; });
    for (const layout::Slab* slab : slabs) {
        std::erase_if(met, [&](const layout::Slab* other) {
            return !slab->offset.empty() && other->offset[dim] + other->size[dim] <= slab->offset[dim];
        });
        for (const layout::Slab* other : met) {
            if (layout::intersection(*slab, *other))
                fail(fmt::format("its chunks at {} and at {} overlap", text_of(*other), text_of(*slab)));
        }
        met.push_back(slab);
        found += slab->num_elements();
    }
    if (found != expected) {
        fail(fmt::format("its {} chunks, the last at {}, have {} of {} elements", tensor.chunks.size(),
                         tensor.chunks.empty() ? "none" : text_of(tensor.chunks.back().slab), found,
                         expected));
    }
}

}  // namespace argosy::pytorch
