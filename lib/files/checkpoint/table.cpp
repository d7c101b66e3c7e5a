// The text of tables. Each record has one function fields(), which names its keys in the order of the text,
// for the Printer as for the Reader. Hashes have a fixed width, so the length of a table does not depend on
// them. Unknown keys are ignored, because newer programs may add keys.
#include "checkpoint/table.h"

#include <fmt/format.h>

#include <concepts>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/json_field.h"
#include "base/strict_json.h"
#include "h5/element_type.h"

namespace argosy::checkpoint {
namespace {

using nlohmann::ordered_json;

constexpr const char* kOwnLines = "\n";  // before each item of a list
constexpr const char* kOneLine = "";

/// Prints the fields of objects. UserError if a text is not UTF-8, or not the JSON object that it should be.
class Printer {
  public:
    void operator()(const char* key, const auto& value) {
        begin(key);
        text_ += printed(value);
    }
    void object(const char* key, const std::string& text) {
        const ordered_json value = parse_json(text, "the description of a checkpoint");
        if (!value.is_object())
            throw UserError("a checkpoint holds a JSON object here, but this is not: {}", text);
        (*this)(key, value);
    }
    void list(const char* key, const auto& items, const char* line, auto print_fields) {
        begin(key);
        const char* separator = "[";
        for (const auto& item : items) {
            text_.append(separator).append(line).append("{");
            separator_ = "";
            print_fields(*this, item);
            separator = "},";
        }
        text_ += items.empty() ? "[]" : "}]";
        separator_ = ",";
    }
    void new_line() { separator_ = ",\n"; }
    std::string whole_text() const { return "{" + text_ + "}"; }

  private:
    void begin(const char* key) {
        fmt::format_to(std::back_inserter(text_), "{}\"{}\":", separator_, key);
        separator_ = ",";
    }
    static std::string printed(const auto& value) {
        try {
            return ordered_json(value).dump();
        } catch (const ordered_json::exception&) {
            throw UserError("a checkpoint holds only text in UTF-8, but this is not: {}",
                            ordered_json(value).dump(-1, ' ', true, ordered_json::error_handler_t::replace));
        }
    }
    static std::string printed(const Hash& hash) { return printed(hash.hex()); }
    static std::string printed(ElementType type) { return printed(h5::name(type)); }
    static std::string printed(const std::vector<GridCut>& cuts) {
        std::vector<ordered_json> lists;
        for (const GridCut& cut : cuts) {
            lists.push_back({cut.dim, cut.parts, cut.first});
            if (!cut.axes.empty()) lists.back().push_back(cut.axes);
        }
        return printed(lists);
    }

    std::string text_;
    const char* separator_ = "";
};

/// Reads the fields of one JSON object.
class Reader {
  public:
    explicit Reader(JsonField object) : object_(std::move(object)) { object_.members(); }

    bool has(const char* key) const { return object_.contains(key); }

    void operator()(const char* key, std::string& text) const { text = object_[key].string(); }
    void operator()(const char* key, bool& flag) const { flag = object_[key].boolean(); }
    void operator()(const char* key, int64_t& number) const { number = count<int64_t>(object_[key]); }
    /// A file's number. The only negative number is kThisFile.
    void operator()(const char* key, int& file) const {
        file = object_[key].whole<int>(StoredSlab::kThisFile, std::numeric_limits<int>::max());
    }
    void operator()(const char* key, std::vector<int64_t>& numbers) const { read(object_[key], numbers); }
    void operator()(const char* key, std::vector<int>& degrees) const { read(object_[key], degrees); }
    void operator()(const char* key, std::vector<GridCut>& cuts) const {
        for (const JsonField& each : object_[key].list()) {
            const std::vector<JsonField> items = each.list();
            if (items.size() != 3 && items.size() != 4)
                each.refuse("is not a list of [dim, parts, first] or [dim, parts, first, axes]");
            GridCut& cut =
                cuts.emplace_back(GridCut{count<int>(items[0]), count<int>(items[1]), count<int>(items[2])});
            if (items.size() == 4) read(items[3], cut.axes);
            if (items.size() == 4 && cut.axes.empty()) items[3].refuse("is empty");
        }
    }
    void operator()(const char* key, Hash& hash) const {
        hash = known(key, parse_hash(object_[key].string()), "32 lower-case hexadecimal digits");
    }
    void operator()(const char* key, ElementType& type) const {
        type = known(key, h5::element_type_named(object_[key].string()), "a known element type");
    }
    void object(const char* key, std::string& text) const {
        object_[key].members();
        text = object_[key].value().dump();
    }
    void list(const char* key, auto& items, const char*, auto read_fields) const {
        for (const JsonField& each : object_[key].list()) read_fields(Reader(each), items.emplace_back());
    }
    void new_line() const {}

  private:
    template <class T>
    static T count(const JsonField& field) {
        return field.whole<T>(0, std::numeric_limits<T>::max());
    }
    template <class T>
    static void read(const JsonField& list, std::vector<T>& numbers) {
        for (const JsonField& each : list.list()) numbers.push_back(count<T>(each));
    }
    template <class T>
    T known(const char* key, const std::optional<T>& value, const char* expected) const {
        if (!value) object_[key].refuse(fmt::format("is {}, not {}", object_[key].shown(), expected));
        return *value;
    }

    JsonField object_;
};

/// A record that a Printer takes as const, and a Reader not.
template <class T, class Record>
concept Of = std::same_as<std::remove_const_t<T>, Record>;

void fields(auto&& visit, Of<Description> auto& description) {
    visit("step", description.step);
    visit("program", description.program);
    visit("mesh", description.mesh);
    visit("model_only", description.model_only);
    visit.new_line();
    visit.object("model", description.model);
    visit.new_line();
    visit("config", description.config);
    visit.new_line();
    visit.object("state", description.state);
}

void fields(auto&& visit, Of<StoredFile> auto& file) {
    visit("bytes", file.num_bytes);
    visit("check", file.check);
}

void fields(auto&& visit, Of<StoredAsset> auto& asset) {
    visit("name", asset.name);
    visit("at", asset.at);
    visit("bytes", asset.num_bytes);
    visit("hash", asset.hash);
}

void fields(auto&& visit, Of<TensorInfo> auto& info, const char* name_key = "name") {
    visit(name_key, info.name);
    visit("type", info.type);
    visit("shape", info.shape);
}

void fields(auto&& visit, Of<CutTensor> auto& tensor) {
    fields(visit, tensor.info);
    visit("cuts", tensor.cuts);
}

void fields(auto&& visit, Of<StoredSlab> auto& stored) {
    visit("offset", stored.slab.offset);
    visit("size", stored.slab.size);
    visit("at", stored.at);
    visit("hash", stored.hash);
}

void fields(auto&& visit, Of<StoredTensor> auto& tensor) {
    fields(visit, tensor.info);
    visit.list("slabs", tensor.slabs, kOneLine, [](auto&& visit_slab, auto& slab) {
        visit_slab("file", slab.file);
        fields(visit_slab, slab);
    });
}

/// Prints the fields of an item of a list.
constexpr auto kAllFields = [](Printer& print, const auto& item) { fields(print, item); };

/// Parses a table. Each entry of its lists goes to `take`, because a manifest may have hundreds of thousands.
ordered_json parse_table(std::string_view text, const std::string& place, const JsonEntries& entries) {
    ordered_json rest = parse_json(text, place, entries);
    const JsonField root(rest, place);
    for (const std::string& key : entries.lists) {
        const std::vector<JsonField> left = root[key].list();
        if (!left.empty()) root[key].refuse("holds " + left[0].shown() + ", which is not an object");
    }
    return rest;
}

void take_item(Manifest& manifest, const std::string& key, const Reader& reader) {
    if (key == "tensors" && reader.has("cuts")) return fields(reader, manifest.plan.tensors.emplace_back());
    if (key == "tensors") return fields(reader, manifest.tensors.emplace_back());
    if (key == "assets") return fields(reader, manifest.assets.emplace_back());
    fields(reader, manifest.files.emplace_back());
}

}  // namespace

std::string to_json(const ShardTable& table) {
    Printer print;
    print("set", table.set);
    print.new_line();
    print.list("slabs", table.tensors, kOwnLines, [](Printer& item, const StoredTensor& tensor) {
        fields(item, tensor.info, "tensor");
        if (!tensor.slabs.empty()) fields(item, tensor.slabs.front());
    });
    return print.whole_text();
}

std::string to_json(const Manifest& manifest) {
    Printer print;
    print("set", manifest.set);
    fields(print, manifest.description);
    if (!manifest.is_full()) {
        print.new_line();
        print("grid", manifest.plan.grid);
    }
    print.new_line();
    print.list("files", manifest.files, kOwnLines, kAllFields);
    print.new_line();
    print.list("assets", manifest.assets, kOwnLines, kAllFields);
    print.new_line();
    if (manifest.is_full()) {
        print.list("tensors", manifest.tensors, kOwnLines, kAllFields);
    } else {
        print.list("tensors", manifest.plan.tensors, kOwnLines, kAllFields);
    }
    return print.whole_text();
}

std::string to_json(const SavePlan& plan) {
    Printer print;
    print("grid", plan.grid);
    print.new_line();
    print.list("tensors", plan.tensors, kOwnLines, kAllFields);
    return print.whole_text();
}

ShardTable parse_shard_table(std::string_view text, const std::string& place, const TableFile& file) {
    ShardTable table;
    const auto take = [&](const std::string&, const ordered_json& item) {
        const Reader reader(JsonField(item, place));
        StoredTensor& tensor = table.tensors.emplace_back();
        fields(reader, tensor.info, "tensor");
        if (reader.has("at")) fields(reader, tensor.slabs.emplace_back());
    };
    const ordered_json rest = parse_table(text, place, {{"slabs"}, take});
    Reader(JsonField(rest, place))("set", table.set);
    check_table(table, place, file);
    return table;
}

Manifest parse_manifest(std::string_view text, const std::string& place, const TableFile& file) {
    Manifest manifest;
    const auto take = [&](const std::string& key, const ordered_json& item) {
        take_item(manifest, key, Reader(JsonField(item, place)));
    };
    const ordered_json rest = parse_table(text, place, {{"files", "assets", "tensors"}, take});
    const Reader reader(JsonField(rest, place));
    reader("set", manifest.set);
    fields(reader, manifest.description);
    if (reader.has("grid")) {
        reader("grid", manifest.plan.grid);
        if (manifest.plan.grid.empty()) throw UserError("{}: its \"grid\" is empty", place);
    }
    const auto num_files = static_cast<int>(manifest.files.size());
    for (int i = 0; i < num_files; ++i) manifest.files[i].name = shard_name(i, num_files);
    check_table(manifest, place, file);
    return manifest;
}

SavePlan parse_plan(std::string_view text, const std::string& place) {
    SavePlan plan;
    const auto take = [&](const std::string&, const ordered_json& item) {
        fields(Reader(JsonField(item, place)), plan.tensors.emplace_back());
        check_info(plan.tensors.back().info, place);
    };
    const ordered_json rest = parse_table(text, place, {{"tensors"}, take});
    Reader(JsonField(rest, place))("grid", plan.grid);
    check_plan(plan, place);
    return plan;
}

}  // namespace argosy::checkpoint
