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

/// Reads a header. The root object holds tensors and "__metadata__". A tensor holds dtype, shape and
/// data_offsets; shape and data_offsets are lists.
class HeaderReader : public StrictJson {
  public:
    using StrictJson::StrictJson;
    std::vector<SafetensorsEntry> take() { return std::move(entries_); }

  private:
    static constexpr const char* kMetadata = "__metadata__";
    static constexpr size_t kMaxDims = 64;
    enum class In { Nothing, Root, Metadata, Tensor, List };

    std::string where() const override {
        if (in_ == In::Nothing || name_.empty()) return "the header";
        return (in_ == In::Metadata ? "" : "tensor ") + shown(name_) +
               (field_.empty() ? "" : ": " + shown(field_));
    }

    void enter_object() override {
        if (in_ == In::Nothing) {
            in_ = In::Root;
        } else if (in_ == In::Root) {
            in_ = name_ == kMetadata ? In::Metadata : In::Tensor;
            fields_.clear();
            field_.clear();
        } else {
            unexpected("an object");
        }
    }

    void leave_object() override {
        if (in_ == In::Tensor) finish_tensor();
        in_ = in_ == In::Root ? In::Nothing : In::Root;
        field_.clear();
        name_.clear();
    }

    void take_key(std::string& key) override {
        if (in_ == In::Root) {
            name_ = key;
            return;
        }
        fields_.insert(key);
        field_ = key;
        if (in_ == In::Tensor && key != "dtype" && key != "shape" && key != "data_offsets") {
            refuse("tensor " + shown(name_), "the key " + shown(key) + " is not a key of the format");
        }
    }

    bool string(std::string& value) override {
        if (in_ == In::Metadata) return true;
        if (in_ != In::Tensor || field_ != "dtype") unexpected(shown(value));
        const auto found =
            std::ranges::find_if(kTypes, [&](const TypeName& type) { return type.name == value; });
        if (found == kTypes.end()) {
            refuse(where(), fmt::format("elements of type {} are not supported; supported are {}",
                                        shown(value), "F64, F32, BF16, F16, I64, U32, U16 and U8"));
        }
        type_ = found->type;
        return true;
    }

    void enter_list() override {
        if (in_ != In::Tensor || field_ == "dtype") unexpected("a list");
        in_ = In::List;
        list_.clear();
    }

    void leave_list() override {
        in_ = In::Tensor;
        (field_ == "shape" ? shape_ : offsets_) = list_;
    }

    bool number_unsigned(uint64_t value) override {
        if (in_ != In::List) unexpected(std::to_string(value));
        if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
            refuse(where(), fmt::format("{} is too large", value));
        }
        if (list_.size() == kMaxDims) refuse(where(), fmt::format("more than {} numbers", kMaxDims));
        list_.push_back(static_cast<int64_t>(value));
        return true;
    }

    bool number_integer(int64_t value) override { refuse(where(), fmt::format("{} is negative", value)); }
    bool number_float(double, const std::string& text) override {
        refuse(where(), text + " is not a whole number, or too large");
    }

    void finish_tensor() {
        const std::string tensor = "tensor " + shown(name_);
        for (const char* field : {"dtype", "shape", "data_offsets"}) {
            if (!fields_.contains(field)) refuse(tensor, fmt::format("\"{}\" is missing", field));
        }
        if (offsets_.size() != 2)
            refuse(tensor, fmt::format("\"data_offsets\" are {} numbers, not 2", offsets_.size()));
        if (offsets_[0] > offsets_[1]) {
            refuse(tensor,
                   fmt::format("it begins at byte {}, after its end at byte {}", offsets_[0], offsets_[1]));
        }
        const int64_t expected = num_bytes(tensor), found = offsets_[1] - offsets_[0];
        if (expected != found) {
            refuse(tensor, fmt::format("elements {} of shape [{}] are {} bytes, but its offsets leave {}",
                                       h5::name(type_), fmt::join(shape_, ", "), expected, found));
        }
        entries_.push_back({{name_, type_, shape_}, offsets_[0]});
    }

    int64_t num_bytes(const std::string& tensor) const {
        std::optional<int64_t> bytes = size_bytes(type_);
        for (const int64_t extent : shape_) {
            bytes = product(*bytes, extent);
            if (!bytes)
                refuse(tensor, fmt::format("its shape [{}] has too many elements", fmt::join(shape_, ", ")));
        }
        return *bytes;
    }

    In in_ = In::Nothing;
    std::string name_, field_;
    std::set<std::string> fields_;
    ElementType type_ = ElementType::Float32;
    std::vector<int64_t> list_, shape_, offsets_;
    std::vector<SafetensorsEntry> entries_;
};

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
    HeaderReader reader(place);
    reader.read(text);
    std::vector<SafetensorsEntry> entries = reader.take();
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
