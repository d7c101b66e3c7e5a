#include "pytorch/archive.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::pytorch {
namespace {

constexpr int64_t kMaxPickleBytes = int64_t{1} << 28;

struct NamedType {
    std::string_view name, storage;
    TypeOfTorch type;
};
constexpr auto kTypes = std::to_array<NamedType>({
    {"torch.float32", "torch.FloatStorage", {4, ElementType::Float32}},
    {"torch.bfloat16", "torch.BFloat16Storage", {2, ElementType::BFloat16}},
    {"torch.float16", "torch.HalfStorage", {2, ElementType::Float16}},
    {"torch.float64", "torch.DoubleStorage", {8, ElementType::Float64}},
    {"torch.int64", "torch.LongStorage", {8, ElementType::Int64}},
    {"torch.int32", "torch.IntStorage", {4, ElementType::Int32}},
    {"torch.int16", "torch.ShortStorage", {2, {}}},
    {"torch.int8", "torch.CharStorage", {1, ElementType::Int8}},
    {"torch.uint8", "torch.ByteStorage", {1, ElementType::UInt8}},
    {"torch.bool", "torch.BoolStorage", {1, ElementType::UInt8}},
    {"torch.complex64", "torch.ComplexFloatStorage", {8, {}}},
    {"torch.complex128", "torch.ComplexDoubleStorage", {16, {}}},
    // Types without a storage of their own
    {"torch.uint16", "", {2, ElementType::UInt16}},
    {"torch.uint32", "", {4, ElementType::UInt32}},
    {"torch.uint64", "", {8, ElementType::UInt64}},
    {"torch.float8_e4m3fn", "", {1, ElementType::Float8E4M3}},
    {"torch.float8_e5m2", "", {1, ElementType::Float8E5M2}},
    {"torch.float8_e4m3fnuz", "", {1, {}}},
    {"torch.float8_e5m2fnuz", "", {1, {}}},
    {"torch.float8_e8m0fnu", "", {1, {}}},
});

const NamedType* type_of_storage(std::string_view storage) {
    const auto found = std::ranges::find(kTypes, storage, &NamedType::storage);
    return storage.empty() || found == kTypes.end() ? nullptr : &*found;
}

/// The function that rebuilds a tensor, and its arguments.
struct Rebuild {
    std::string_view function;
    std::span<const Value> arguments;
};

/// Looks through parameters, and through tensors with attributes. The function is empty if the value is no
/// tensor.
Rebuild rebuild_of(Value value) {
    if (value.class_name() == "torch._utils._rebuild_parameter" && !value.arguments().empty()) {
        value = value.arguments().front();
    }
    Rebuild rebuild{value.class_name(), value.arguments()};
    if (rebuild.function == "torch._tensor._rebuild_from_type_v2" && rebuild.arguments.size() >= 3) {
        rebuild = {rebuild.arguments[0].class_name(), rebuild.arguments[2].items()};
    }
    const bool rebuilds =
        value.kind() == Value::Kind::Object && rebuild.function.starts_with("torch._utils._rebuild_tensor");
    return rebuilds ? rebuild : Rebuild{};
}

bool is_empty(const StoredTensor& tensor) { return std::ranges::find(tensor.shape, 0) != tensor.shape.end(); }

/// Whether the elements lie within `num_elements` of a storage, and can be counted.
bool fits(const StoredTensor& tensor, int64_t first, int64_t num_elements) {
    int64_t count = 1, last = first;
    for (const int64_t size : tensor.shape) {
        if (size > kMaxElements / count) return false;
        count *= std::max<int64_t>(size, 1);
    }
    if (is_empty(tensor)) return true;
    for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
        const int64_t more = tensor.shape[dim] - 1, stride = tensor.strides[dim];
        if (last >= num_elements || (stride > 0 && more > (num_elements - 1 - last) / stride)) return false;
        last += more * stride;
    }
    return last < num_elements;
}

}  // namespace

std::optional<TypeOfTorch> type_of_torch(std::string_view name) {
    const auto found = std::ranges::find(kTypes, name, &NamedType::name);
    return found == kTypes.end() ? std::nullopt : std::optional(found->type);
}

std::string_view name_of_torch(ElementType type) {
    return std::ranges::find(kTypes, type, [](const NamedType& each) { return each.type.type; })->name;
}

std::string_view storage_of_torch(ElementType type) {
    return std::ranges::find(kTypes, type, [](const NamedType& each) { return each.type.type; })->storage;
}

Archive::Archive(std::shared_ptr<const RawFile> file, int64_t offset, int64_t length, std::string place,
                 KnownClasses more_classes)
    : file_(std::move(file)), place_(std::move(place)), entries_(read_zip(*file_, offset, length, place_)) {
    constexpr std::string_view kPickle = "/data.pkl";
    const auto found = std::ranges::find_if(entries_, [&](const auto& entry) {
        return entry.first.ends_with(kPickle) && entry.first.find('/') == entry.first.size() - kPickle.size();
    });
    if (found == entries_.end())
        throw UserError("{} is a zip, but torch.save did not write it: it has no data.pkl", place_);
    folder_ = found->first.substr(0, found->first.size() - kPickle.size() + 1);
    if (const auto order = entries_.find(folder_ + "byteorder"); order != entries_.end()) {
        std::string text(std::min<int64_t>(order->second.num_bytes, 16), '\0');
        file_->read_at(order->second.at, std::as_writable_bytes(std::span(text)));
        if (text != "little") {
            throw UserError(
                "{}: its bytes are in the order {}, and only 'little' is read; load and save it on a "
                "little-endian machine",
                place_, shown(text));
        }
    }
    const ZipEntry& pickle = found->second;
    if (pickle.num_bytes > kMaxPickleBytes) {
        throw UserError("{}: its pickle has {} bytes; at most {} are read", place_, pickle.num_bytes,
                        kMaxPickleBytes);
    }
    std::vector<std::byte> bytes(pickle.num_bytes);
    file_->read_at(pickle.at, bytes);
    pickle_.emplace(bytes, place_, more_classes);
}

std::optional<StoredTensor> Archive::tensor_of(Value value) const {
    const Rebuild rebuild = rebuild_of(value);
    if (rebuild.function.empty()) return std::nullopt;
    const auto fail = [&](const char* fault) {
        throw DamageError("{} is damaged: its pickle describes a tensor by {}", place_, fault);
    };
    const bool has_type = rebuild.function.ends_with("_v3");
    const std::span<const Value> arguments = rebuild.arguments;
    if (arguments.size() < (has_type ? 7 : 4)) fail("too few arguments");
    const size_t flags = has_type ? 7 : 6;
    if (arguments.size() > flags && !arguments[flags].entries().empty()) {
        throw UserError("{}: it has a tensor that is a conjugate or negative view; save its clone()", place_);
    }
    const Value id = arguments[0].persistent_id();
    const std::span<const Value> storage = id.items();
    if (storage.size() != 5 || !storage[2].text() || !storage[4].integer()) fail("no storage");
    const NamedType* type_of_class = type_of_storage(storage[1].class_name());
    StoredTensor tensor;
    tensor.type_name = has_type ? arguments[6].class_name() : type_of_class ? type_of_class->name : "";
    const std::optional<TypeOfTorch> type = type_of_torch(tensor.type_name);
    if (!type) fail("an unknown type");
    tensor.type = *type;
    const std::optional<int64_t> first = arguments[1].integer();
    const auto shape = arguments[2].sizes(), strides = arguments[3].sizes();
    if (!first || *first < 0 || !shape || !strides || shape->size() != strides->size())
        fail("an offset, sizes and strides that do not belong together");
    tensor.shape = *shape;
    tensor.strides = *strides;
    const auto entry = entries_.find(folder_ + "data/" + *storage[2].text());
    if (entry == entries_.end()) fail("a storage that is not in the file");
    const int64_t item_bytes = type_of_class ? type_of_class->type.num_bytes : 1,
                  num_items = *storage[4].integer();
    if (num_items < 0 || num_items > entry->second.num_bytes ||
        num_items * item_bytes != entry->second.num_bytes)
        fail("a storage of another size");
    if (!fits(tensor, *first, entry->second.num_bytes / type->num_bytes))
        fail("elements outside its storage");
    // A slice without elements may begin anywhere.
    tensor.at = entry->second.at + (is_empty(tensor) ? 0 : *first * type->num_bytes);
    return tensor;
}

}  // namespace argosy::pytorch
