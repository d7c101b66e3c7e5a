#include "interop/conversion_folder.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/output.h"
#include "base/program.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/step_folder.h"

namespace argosy::interop {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kListName = "conversion.json";
constexpr int64_t kMaxListBytes = 16 << 20;

constexpr const char* kListFormat = "argosy conversion";

/// The names of the files that the conversion wrote, including the list. Empty if there is no list.
std::set<std::string> listed_files(const fs::path& folder) {
    if (!fs::is_regular_file(folder / kListName)) return {};
    const fs::path path = folder / kListName;
    const auto list = parse_json(read_text(path, kMaxListBytes), path.string());
    const bool is_ours = list.is_object() && list.contains("format") && list["format"] == kListFormat;
    if (!is_ours || !list.contains("files") || !list["files"].is_array()) return {};
    std::set<std::string> names = {kListName};
    for (const auto& name : list["files"]) {
        if (name.is_string()) names.insert(name.get<std::string>());
    }
    return names;
}

std::vector<fs::path> other_files(const fs::path& folder) {
    const std::set<std::string> listed = listed_files(folder);
    std::vector<fs::path> others;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        if (!listed.contains(entry.path().filename().string())) others.push_back(entry.path());
    }
    return others;
}

/// UserError if the folder at `path` holds files that no conversion wrote. A file cannot replace such a
/// folder.
void refuse_other_files(const fs::path& path) {
    if (!fs::is_directory(path)) return;
    const std::vector<fs::path> others = other_files(path);
    if (others.empty()) return;
    throw UserError(
        "{} cannot be replaced by a file: it holds '{}', which no conversion wrote; move that elsewhere",
        path.string(), others.front().filename().string());
}

/// Links a file, or all files of a folder, to a second name; the first name stays valid. Copies where the
/// file system has no hard links.
void add_name(const fs::path& from, const fs::path& to) {
    constexpr auto kTree = fs::copy_options::recursive | fs::copy_options::copy_symlinks;
    std::error_code failed;
    fs::copy(from, to, kTree | fs::copy_options::create_hard_links, failed);
    if (!failed) return;
    fs::remove_all(to, failed);
    fs::copy(from, to, kTree, failed);
    if (failed) throw RunError("cannot keep {}: {}", from.string(), failed.message());
}

/// Links the files of `place` that no conversion wrote into `result`. Repeats until a pass finds no new file,
/// so that files that appear meanwhile are kept too.
void keep_other_files(const fs::path& place, const fs::path& result) {
    std::set<fs::path> kept;
    for (bool found_more = true; found_more;) {
        found_more = false;
        for (const fs::path& file : other_files(place)) {
            if (!kept.insert(file).second) continue;
            throw_if_stop_requested();
            const fs::path name = result / file.filename();
            if (fs::exists(fs::symlink_status(name))) {
                throw UserError("{} would be replaced, but no conversion wrote it; move it elsewhere",
                                file.string());
            }
            add_name(file, name);
            if (!fs::is_symlink(name)) checkpoint::sync_tree(name);
            found_more = true;
        }
    }
    sync_folder(result);
}

bool is_taken(const fs::path& path) {
    std::error_code failed;
    const fs::file_type type = fs::symlink_status(path, failed).type();
    if (type == fs::file_type::none) throw UserError("cannot write {}: {}", path.string(), failed.message());
    return type != fs::file_type::not_found;
}

bool lies_in(const fs::path& inner, const fs::path& outer) {
    return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

/// Refuses a full file whose name ends as files of other forms do.
void refuse_name_of_another_form(const fs::path& path) {
    constexpr std::array<std::string_view, 6> kEndings = {".pt",   ".pth",         ".bin",
                                                          ".ckpt", ".safetensors", ".gguf"};
    if (std::ranges::find(kEndings, path.extension().string()) == kEndings.end()) return;
    throw UserError(
        "cannot write {}: a full file is HDF5, and other programs would take it for what its name says; name "
        "it {}",
        path.string(), fs::path(path).replace_extension(".h5").string());
}

}  // namespace

void list_conversion(const fs::path& folder) {
    json files = json::array();
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        files.push_back(entry.path().filename().string());
    }
    std::sort(files.begin(), files.end());
    const json list = {{"format", kListFormat}, {"files", files}, {"program_version", version()}};
    write_text(folder / kListName, json_text(list, 2) + "\n");
    sync_folder(folder);
}

bool is_conversion(const fs::path& path) {
    if (fs::is_directory(path)) return fs::is_empty(path) || !listed_files(path).empty();
    // Only conversions write full files; the kind is the second line of every checkpoint file.
    const std::string start = first_bytes(path, 64);
    return start.starts_with("argosy checkpoint ") && start.find("\nkind full\n") != start.npos;
}

void publish_conversion(const fs::path& result, const fs::path& place, checkpoint::Replace replace) {
    const bool replaces = replace == checkpoint::Replace::Yes && fs::exists(fs::symlink_status(place));
    if (replaces && !is_conversion(place)) {  // `place` appeared during the conversion
        throw UserError("{} exists, and no conversion wrote it; it is not replaced", place.string());
    }
    if (replaces && fs::is_directory(place)) {
        fs::is_directory(result) ? keep_other_files(place, result) : refuse_other_files(place);
    }
    checkpoint::publish(result, place, replace);
}

void refuse_inside(const fs::path& path, const fs::path& source) {
    if (!lies_in(fs::weakly_canonical(path), fs::weakly_canonical(source))) return;
    throw UserError("{} lies inside the source {}, which stays as it is; write beside it", path.string(),
                    source.string());
}

void check_output(const fs::path& path, Form form, checkpoint::Replace replace, const fs::path& source) {
    if (path.empty()) throw UserError("the path to write to is empty");
    if (is_standard_stream(path))
        throw UserError("a model is a file or folder with a name, so it is not written to stdout (-)");
    if (form == Form::Full) refuse_name_of_another_form(path);
    const fs::path folder = folder_of(path);
    std::error_code failed;
    if (!fs::is_directory(folder, failed)) {
        if (is_taken(folder)) {
            throw UserError("cannot write {}: {} is not a folder", path.string(), folder.string());
        }
        throw UserError("cannot write {}: the folder {} does not exist; make it first", path.string(),
                        folder.string());
    }
    if (fs::is_symlink(path, failed)) {
        throw UserError("{} is a symbolic link, which is not replaced; give the path that it leads to, {}",
                        path.string(), fs::read_symlink(path).string());
    }
    for (const fs::path& taken : {checkpoint::partial_path(path), checkpoint::replaced_path(path)}) {
        if (!is_taken(taken) || !lies_in(fs::weakly_canonical(source), fs::weakly_canonical(taken))) continue;
        throw UserError("cannot write {}: it is first made at {}, where the source lies; rename the source",
                        path.string(), taken.string());
    }
    const fs::path place = fs::weakly_canonical(path), origin = fs::weakly_canonical(source);
    if (place != origin) refuse_inside(path, source);
    if (!is_taken(path)) return;
    if (lies_in(origin, place)) {
        throw UserError("{} cannot be replaced: the source {} lies there", path.string(), source.string());
    }
    if (replace == checkpoint::Replace::No) {
        throw UserError("{} exists; --force replaces it", path.string());
    }
    if (!is_conversion(path)) {
        throw UserError(
            "{} exists and is no checkpoint or model that a conversion wrote; it is not replaced, even with "
            "--force",
            path.string());
    }
    if (form == Form::Full) refuse_other_files(path);
}

void check_step_name(const fs::path& path, int64_t step) {
    const std::string prefix = "step-", name = path.filename().string(),
                      expected = checkpoint::step_name(step);
    const bool numbered = name.starts_with(prefix) && name.size() > prefix.size() &&
                          name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
    if (!numbered || name == expected) return;
    throw UserError("{} is not the name of step {}; name the folder {}, or choose a name other than a step's",
                    name, step, expected);
}

}  // namespace argosy::interop
