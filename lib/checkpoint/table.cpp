// Prints tables as JSON. Hashes have a fixed width, so the length of a table does not depend on them.
#include "checkpoint/table.h"

#include <fmt/ranges.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::checkpoint {
namespace {

using nlohmann::ordered_json;

/// The text as a JSON string. UserError if the text is not UTF-8.
std::string quoted(const std::string& text) {
    try {
        return ordered_json(text).dump();
    } catch (const ordered_json::exception&) {
        throw UserError("a checkpoint holds only text in UTF-8, but this is not: {}",
                        ordered_json(text).dump(-1, ' ', true, ordered_json::error_handler_t::replace));
    }
}

/// A JSON object, given as text, printed on one line. UserError if the text is not a JSON object.
std::string compact(const std::string& text) {
    const ordered_json value = parse_json(text, "the description of a checkpoint");
    if (!value.is_object())
        throw UserError("a checkpoint holds a JSON object here, but this is not: {}", text);
    return value.dump();
}

std::string numbers(const std::vector<int64_t>& values) {
    return fmt::format("[{}]", fmt::join(values, ","));
}

std::string info_fields(const char* key, const TensorInfo& info) {
    return fmt::format(R"("{}":{},"type":"{}","shape":{})", key, quoted(info.name), info.type_name(),
                       numbers(info.shape));
}

std::string slab_fields(const StoredSlab& stored) {
    return fmt::format(R"("offset":{},"size":{},"at":{},"hash":"{}")", numbers(stored.slab.offset),
                       numbers(stored.slab.size), stored.at, stored.hash.hex());
}

/// `"key":[` and the printed items, one per line.
template <class Items, class Print>
std::string list(const char* key, const Items& items, Print print) {
    std::string text = fmt::format("\"{}\":[", key);
    const char* separator = "\n";
    for (const auto& item : items) {
        text += separator;
        text += print(item);
        separator = ",\n";
    }
    return text + "]";
}

std::string print_tensor(const StoredTensor& tensor) {
    std::string slabs;
    for (const StoredSlab& slab : tensor.slabs) {
        fmt::format_to(std::back_inserter(slabs), R"({}{{"file":{},{}}})", slabs.empty() ? "" : ",",
                       slab.file, slab_fields(slab));
    }
    return fmt::format(R"({{{},"slabs":[{}]}})", info_fields("name", tensor.info), slabs);
}

std::string print_cut_tensor(const CutTensor& tensor) {
    std::string cuts;
    for (const Cut& cut : tensor.cuts)
        cuts += fmt::format("{}[{},{},{}]", cuts.empty() ? "" : ",", cut.dim, cut.parts, cut.first);
    return fmt::format(R"({{{},"cuts":[{}]}})", info_fields("name", tensor.info), cuts);
}

std::string grid_field(const Plan& plan) { return fmt::format("\"grid\":[{}]", fmt::join(plan.grid, ",")); }

std::string print_description(const Description& description) {
    return fmt::format(
        "\"step\":{},\"program\":{},\"mesh\":{},\"model_only\":{},\n\"model\":{},\n\"config\":{},\n\"state\":"
        "{}",
        description.step, quoted(description.program), quoted(description.mesh), description.model_only,
        compact(description.model), quoted(description.config), compact(description.state));
}

}  // namespace

std::string to_json(const ShardTable& table) {
    const auto print_slab = [](const StoredTensor& tensor) {
        return fmt::format("{{{}{}{}}}", info_fields("tensor", tensor.info), tensor.slabs.empty() ? "" : ",",
                           tensor.slabs.empty() ? "" : slab_fields(tensor.slabs.front()));
    };
    return fmt::format("{{\"set\":\"{}\",\n{}}}", table.set.hex(), list("slabs", table.tensors, print_slab));
}

std::string to_json(const Manifest& manifest) {
    const auto print_file = [&](const StoredFile& file) {
        const std::string name =
            manifest.lists_slabs() ? fmt::format("\"name\":{},", quoted(file.name)) : std::string();
        return fmt::format(R"({{{}"bytes":{},"check":"{}"}})", name, file.num_bytes, file.check.hex());
    };
    const auto print_asset = [](const StoredAsset& asset) {
        return fmt::format(R"({{"name":{},"at":{},"bytes":{},"hash":"{}"}})", quoted(asset.name), asset.at,
                           asset.num_bytes, asset.hash.hex());
    };
    const std::string grid = manifest.lists_slabs() ? "" : grid_field(manifest.plan) + ",\n";
    return fmt::format(
        "{{\"set\":\"{}\",{},\n{}{},\n{},\n{}}}", manifest.set.hex(), print_description(manifest.description),
        grid, list("files", manifest.files, print_file), list("assets", manifest.assets, print_asset),
        manifest.lists_slabs() ? list("tensors", manifest.tensors, print_tensor)
                               : list("tensors", manifest.plan.tensors, print_cut_tensor));
}

std::string to_json(const Plan& plan) {
    return fmt::format("{{{},\n{}}}", grid_field(plan), list("tensors", plan.tensors, print_cut_tensor));
}

}  // namespace argosy::checkpoint
