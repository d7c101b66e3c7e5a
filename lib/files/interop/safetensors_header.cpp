#include "interop/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/strict_json.h"
#include "h5/element_type.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;
using nlohmann::ordered_json;

struct TypeName {
    const char* name;
    ElementType type;
};
// The types are in the order of the safetensors package. A file begins with the tensors of the last type.
constexpr std::array kTypes = {
    TypeName{"U8", ElementType::UInt8},    TypeName{"U16", ElementType::UInt16},
    TypeName{"F16", ElementType::Float16}, TypeName{"BF16", ElementType::BFloat16},
    TypeName{"U32", ElementType::UInt32},  TypeName{"F32", ElementType::Float32},
    TypeName{"F64", ElementType::Float64}, TypeName{"I64", ElementType::Int64},
};

int rank_of(ElementType type) {
    return static_cast<int>(std::ranges::find(kTypes, type, &TypeName::type) - kTypes.begin());
}

std::optional<int64_t> product(int64_t a, int64_t b) {
    int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

[[noreturn]] void refuse_value(const std::string& where, const ordered_json& value) {
    throw UserError("{}: {} does not belong there", where, shown_value(value));
}

ElementType read_type(const ordered_json& value, const std::string& where) {
    if (!value.is_string()) refuse_value(where, value);
    const auto& name = value.get_ref<const std::string&>();
    const auto found = std::ranges::find_if(kTypes, [&](const TypeName& type) { return type.name == name; });
    if (found == kTypes.end()) {
        throw UserError("{}: elements of type {} are not supported; supported are {}", where, shown(name),
                        "F64, F32, BF16, F16, I64, U32, U16 and U8");
    }
    return found->type;
}

std::vector<int64_t> read_numbers(const ordered_json& list, const std::string& where) {
    constexpr size_t kMaxDims = 64;
    if (!list.is_array()) refuse_value(where, list);
    if (list.size() > kMaxDims) throw UserError("{}: more than {} numbers", where, kMaxDims);
    for (const ordered_json& number : list) {
        if (!number.is_number()) refuse_value(where, number);
        if (number.is_number_float())
            throw UserError("{}: {} is not a whole number, or too large", where, number.dump());
        if (!number.is_number_unsigned()) throw UserError("{}: {} is negative", where, number.dump());
        if (number.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
            throw UserError("{}: {} is too large", where, number.dump());
    }
    return list.get<std::vector<int64_t>>();
}

int64_t num_bytes(const TensorInfo& tensor, const std::string& where) {
    std::optional<int64_t> bytes = size_bytes(tensor.type);
    for (const int64_t extent : tensor.shape) {
        bytes = product(*bytes, extent);
        if (!bytes)
            throw UserError("{}: its shape [{}] has too many elements", where, fmt::join(tensor.shape, ", "));
    }
    return *bytes;
}

/// `where` names the file and the tensor.
SafetensorsEntry read_entry(const std::string& name, const ordered_json& tensor, const std::string& where) {
    if (!tensor.is_object()) refuse_value(where, tensor);
    for (const auto& [key, value] : tensor.items()) {
        if (key != "dtype" && key != "shape" && key != "data_offsets")
            throw UserError("{}: the key {} is not a key of the format", where, shown(key));
    }
    const auto read = [&](const char* key, auto* read_value) {
        if (!tensor.contains(key)) throw UserError("{}: \"{}\" is missing", where, key);
        return read_value(tensor[key], fmt::format("{}: \"{}\"", where, key));
    };
    const TensorInfo info{name, read("dtype", read_type), read("shape", read_numbers)};
    const std::vector<int64_t> offsets = read("data_offsets", read_numbers);
    if (offsets.size() != 2)
        throw UserError("{}: \"data_offsets\" are {} numbers, not 2", where, offsets.size());
    if (offsets[0] > offsets[1]) {
        throw UserError("{}: it begins at byte {}, after its end at byte {}", where, offsets[0], offsets[1]);
    }
    const int64_t expected = num_bytes(info, where), found = offsets[1] - offsets[0];
    if (expected != found) {
        throw UserError("{}: elements {} of shape [{}] are {} bytes, but its offsets leave {}", where,
                        h5::name(info.type), fmt::join(info.shape, ", "), expected, found);
    }
    return {info, offsets[0]};
}

void check_metadata(const ordered_json& metadata, const std::string& where) {
    if (!metadata.is_object()) refuse_value(where, metadata);
    for (const auto& [key, value] : metadata.items())
        if (!value.is_string()) refuse_value(where + ": " + shown(key), value);
}

/// Sorts by offset, and requires that the tensors cover the data without gap or overlap.
void check_coverage(std::vector<SafetensorsEntry>& entries, int64_t data_bytes, const std::string& place) {
    const auto end = [](const SafetensorsEntry& entry) { return entry.at + entry.info.num_bytes(); };
    std::ranges::sort(entries, {}, [&](const SafetensorsEntry& entry) {
        return std::tuple(entry.at, end(entry), entry.info.name);
    });
    int64_t reached = 0;
    for (const SafetensorsEntry& entry : entries) {
        if (end(entry) > data_bytes) {
            throw DamageError(
                "{} is truncated: tensor {} ends at byte {} of the data, beyond the file, which has {}. Copy "
                "it again",
                place, shown(entry.info.name), end(entry), data_bytes);
        }
        if (entry.at != reached) {
            throw UserError("{}: tensor {}: it begins at byte {} of the data, but {}", place,
                            shown(entry.info.name), entry.at,
                            entry.at < reached
                                ? fmt::format("the tensor before it ends at byte {}: they overlap", reached)
                                : fmt::format("bytes from {} on belong to no tensor", reached));
        }
        reached = end(entry);
    }
    if (reached != data_bytes) {
        throw DamageError(
            "{}: the tensors end at byte {} of the data, and {} bytes follow that belong to no tensor", place,
            reached, data_bytes - reached);
    }
}

std::string json_entry(const TensorInfo& tensor, int64_t begin) {
    return fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                       nlohmann::json(tensor.name).dump(), kTypes.at(rank_of(tensor.type)).name,
                       fmt::join(tensor.shape, ","), begin, begin + tensor.num_bytes());
}

std::string little_endian(uint64_t value) {
    std::string bytes;
    for (int i = 0; i < kSafetensorsLengthBytes; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
    return bytes;
}

}  // namespace

std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view text, int64_t data_bytes,
                                                       const std::string& place) {
    if (!text.starts_with('{')) {
        throw UserError("{}: the header begins with {}, not with an opening brace", place,
                        shown(text.substr(0, 1)));
    }
    constexpr const char* kMetadata = "__metadata__";
    std::vector<SafetensorsEntry> entries;
    const ordered_json header = parse_json(text, place);
    for (const auto& [name, value] : header.items()) {
        if (name == kMetadata) {
            check_metadata(value, place + ": " + shown(name));
        } else {
            entries.push_back(read_entry(name, value, place + ": tensor " + shown(name)));
        }
    }
    check_coverage(entries, data_bytes, place);
    return entries;
}

SafetensorsLayout lay_out_safetensors(const std::vector<TensorInfo>& tensors) {
    std::vector<size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {},
                      [&](size_t i) { return std::pair(-rank_of(tensors[i].type), tensors[i].name); });

    SafetensorsLayout layout{.at = std::vector<int64_t>(tensors.size())};
    std::string header = R"({"__metadata__":{"format":"pt"})";
    int64_t end = 0;
    for (const size_t i : order) {
        header += json_entry(tensors[i], end);
        layout.at[i] = end;
        end += tensors[i].num_bytes();
    }
    header += '}';
    header.resize((header.size() + 7) / 8 * 8, ' ');
    ARGOSY_CHECK(std::ssize(header) <= kMaxSafetensorsHeaderBytes, "{} tensors in one file", tensors.size());
    layout.start = little_endian(header.size()) + header;
    for (int64_t& at : layout.at) at += std::ssize(layout.start);
    return layout;
}

}  // namespace argosy::interop
