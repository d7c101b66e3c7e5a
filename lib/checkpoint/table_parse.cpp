// Parses tables from JSON. Unknown keys are ignored, because newer minor versions may add keys.
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "checkpoint/table.h"
#include "checkpoint/table_check.h"
#include "h5/element_type.h"

namespace argosy::checkpoint {
namespace {

using nlohmann::ordered_json;

/// A value as messages show it: as text, cut after kShown characters.
std::string shown(const ordered_json& value) {
    constexpr size_t kShown = 80;
    const std::string text = value.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
    return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

/// Typed access to one JSON object. Every error names the table; an error about a key names the key.
class Reader {
  public:
    Reader(const ordered_json& object, const std::string& place) : object_(object), place_(place) {
        if (!object.is_object()) throw UserError("{}: {} is not an object", place, shown(object));
    }

    bool has(const char* key) const { return object_.contains(key); }

    const ordered_json& value(const char* key) const {
        const auto found = object_.find(key);
        if (found == object_.end()) throw UserError("{}: {} has no \"{}\"", place_, shown(object_), key);
        return *found;
    }
    std::string text(const char* key) const {
        if (!value(key).is_string()) fail(key, "a string");
        return value(key).get<std::string>();
    }
    bool flag(const char* key) const {
        if (!value(key).is_boolean()) fail(key, "true or false");
        return value(key).get<bool>();
    }
    int64_t number(const char* key) const {
        if (!is_count(value(key))) fail(key, "an integer in 0 .. 2^63 - 1");
        return value(key).get<int64_t>();
    }
    std::vector<int64_t> numbers(const char* key) const {
        std::vector<int64_t> result;
        for (const ordered_json& each : list(key)) {
            if (!is_count(each)) fail(key, "a list of integers in 0 .. 2^63 - 1");
            result.push_back(each.get<int64_t>());
        }
        return result;
    }
    /// The list under `key`. UserError if a number does not fit an int.
    std::vector<int> degrees(const char* key) const {
        std::vector<int> result;
        for (const int64_t each : numbers(key)) {
            if (each > std::numeric_limits<int>::max()) fail(key, "a list of counts below 2^31");
            result.push_back(static_cast<int>(each));
        }
        return result;
    }
    /// The list under `key`, of entries [dim, parts, first].
    std::vector<Cut> cuts(const char* key) const {
        std::vector<Cut> result;
        for (const ordered_json& each : list(key)) {
            const auto fits = [&](size_t i) {
                return is_count(each[i]) && each[i].get<int64_t>() <= std::numeric_limits<int>::max();
            };
            if (!each.is_array() || each.size() != 3 || !fits(0) || !fits(1) || !fits(2))
                fail(key, "a list of [dim, parts, first]");
            result.push_back({each[0].get<int>(), each[1].get<int>(), each[2].get<int>()});
        }
        return result;
    }
    Hash hash(const char* key) const {
        const std::optional<Hash> parsed = parse_hash(text(key));
        if (!parsed) fail(key, "32 lower-case hexadecimal digits");
        return *parsed;
    }
    /// A file's number. The only negative number is kThisFile.
    int file(const char* key) const {
        const ordered_json& number = value(key);
        if (number.is_number_integer() && number == StoredSlab::kThisFile) return StoredSlab::kThisFile;
        if (!is_count(number) || number.get<int64_t>() > std::numeric_limits<int>::max())
            fail(key, "a file's number");
        return number.get<int>();
    }
    const ordered_json& list(const char* key) const {
        if (!value(key).is_array()) fail(key, "a list");
        return value(key);
    }
    std::string object(const char* key) const {
        if (!value(key).is_object()) fail(key, "an object");
        return value(key).dump();
    }
    ElementType type(const char* key) const {
        const std::optional<ElementType> known = h5::element_type_named(text(key));
        if (!known) fail(key, "a known element type");
        return *known;
    }

  private:
    /// Whether a value is an integer from 0 to 2^63 - 1. The JSON library parses non-negative integers as
    /// unsigned and integers beyond 64 bits as floats, so no number wraps around.
    static bool is_count(const ordered_json& value) {
        return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
    }
    [[noreturn]] void fail(const char* key, const char* expected) const {
        throw UserError("{}: \"{}\" is {}, which is not {}", place_, key, shown(value(key)), expected);
    }

    const ordered_json& object_;
    const std::string& place_;
};

/// Parses a table. Each entry of its lists goes to `take`, because a manifest may have hundreds of thousands.
ordered_json parse_table(std::string_view text, const std::string& place, const JsonEntries& entries) {
    ordered_json rest = parse_json(text, place, entries);
    const Reader reader(rest, place);
    for (const std::string& key : entries.lists) {
        const ordered_json& left = reader.list(key.c_str());
        if (!left.empty())
            throw UserError("{}: \"{}\" holds {}, which is not an object", place, key, shown(left[0]));
    }
    return rest;
}

TensorInfo read_info(const Reader& reader, const char* name_key) {
    return {.name = reader.text(name_key), .type = reader.type("type"), .shape = reader.numbers("shape")};
}

CutTensor read_cut_tensor(const Reader& reader) {
    return {.info = read_info(reader, "name"), .cuts = reader.cuts("cuts")};
}

StoredSlab read_slab(const Reader& reader) {
    return {.slab = {.offset = reader.numbers("offset"), .size = reader.numbers("size")},
            .at = reader.number("at"),
            .hash = reader.hash("hash")};
}

StoredTensor read_tensor(const ordered_json& item, const std::string& place) {
    const Reader reader(item, place);
    StoredTensor tensor{.info = read_info(reader, "name")};
    for (const ordered_json& each : reader.list("slabs")) {
        const Reader slab(each, place);
        tensor.slabs.push_back(read_slab(slab));
        tensor.slabs.back().file = slab.file("file");
    }
    return tensor;
}

StoredTensor read_shard_slab(const ordered_json& item, const std::string& place) {
    const Reader reader(item, place);
    StoredTensor tensor{.info = read_info(reader, "tensor")};
    if (reader.has("at")) tensor.slabs.push_back(read_slab(reader));
    return tensor;
}

Description read_description(const Reader& reader) {
    return {.step = reader.number("step"),
            .program = reader.text("program"),
            .mesh = reader.text("mesh"),
            .model_only = reader.flag("model_only"),
            .model = reader.object("model"),
            .config = reader.text("config"),
            .state = reader.object("state")};
}

void take_item(Manifest& manifest, const std::string& key, const ordered_json& item,
               const std::string& place) {
    const Reader reader(item, place);
    if (key == "tensors" && reader.has("cuts")) {
        manifest.plan.tensors.push_back(read_cut_tensor(reader));
    } else if (key == "tensors") {
        manifest.tensors.push_back(read_tensor(item, place));
    } else if (key == "files") {
        manifest.files.push_back({reader.has("name") ? reader.text("name") : std::string(),
                                  reader.number("bytes"), reader.hash("check")});
    } else {
        manifest.assets.push_back(
            {reader.text("name"), reader.number("at"), reader.number("bytes"), reader.hash("hash")});
    }
}

/// In format 2 the name of a shard follows from its number.
void name_files(std::vector<StoredFile>& files, const std::string& place) {
    for (size_t i = 0; i < files.size(); ++i) {
        if (!files[i].name.empty())
            throw UserError("{}: file '{}' has a name of its own", place, files[i].name);
        files[i].name = shard_name(static_cast<int>(i), static_cast<int>(files.size()));
    }
}

}  // namespace

ShardTable parse_shard_table(std::string_view text, const std::string& place, const TableFile& file) {
    ShardTable table;
    const auto take = [&](const std::string&, const ordered_json& item) {
        table.tensors.push_back(read_shard_slab(item, place));
    };
    const ordered_json rest = parse_table(text, place, {{"slabs"}, take});
    table.set = Reader(rest, place).hash("set");
    check_table(table, place, file);
    return table;
}

Manifest parse_manifest(std::string_view text, const std::string& place, const TableFile& file) {
    Manifest manifest;
    const auto take = [&](const std::string& key, const ordered_json& item) {
        take_item(manifest, key, item, place);
    };
    const ordered_json rest = parse_table(text, place, {{"files", "assets", "tensors"}, take});
    const Reader reader(rest, place);
    manifest.set = reader.hash("set");
    manifest.description = read_description(reader);
    if (reader.has("grid")) {
        manifest.plan.grid = reader.degrees("grid");
        if (manifest.plan.grid.empty()) throw UserError("{}: its \"grid\" is empty", place);
        name_files(manifest.files, place);
    }
    check_table(manifest, place, file);
    return manifest;
}

Plan parse_plan(std::string_view text, const std::string& place) {
    Plan plan;
    const auto take = [&](const std::string&, const ordered_json& item) {
        plan.tensors.push_back(read_cut_tensor(Reader(item, place)));
        check_info(plan.tensors.back().info, place);
    };
    plan.grid = Reader(parse_table(text, place, {{"tensors"}, take}), place).degrees("grid");
    check_plan(plan, place);
    return plan;
}

}  // namespace argosy::checkpoint
