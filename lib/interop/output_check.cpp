#include "interop/output_check.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/raw_file.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/step_folder.h"
#include "interop/conversion_folder.h"

namespace argosy::interop {
namespace {

namespace fs = std::filesystem;

bool is_taken(const fs::path& path) {
    std::error_code failed;
    const fs::file_type type = fs::symlink_status(path, failed).type();
    if (type == fs::file_type::none) throw UserError("cannot write {}: {}", path.string(), failed.message());
    return type != fs::file_type::not_found;
}

bool lies_in(const fs::path& inner, const fs::path& outer) {
    return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

}  // namespace

void refuse_inside(const fs::path& path, const fs::path& source) {
    if (!lies_in(fs::weakly_canonical(path), fs::weakly_canonical(source))) return;
    throw UserError("{} lies inside the source {}, which stays as it is; write beside it", path.string(),
                    source.string());
}

void check_output(const fs::path& path, Form form, checkpoint::Replace replace, const fs::path& source) {
    if (path.empty()) throw UserError("the path to write to is empty");
    const fs::path folder = folder_of(path);
    std::error_code failed;
    if (!fs::is_directory(folder, failed)) {
        throw UserError("cannot write {}: the folder {} {}", path.string(), folder.string(),
                        is_taken(folder) ? "is none" : "does not exist; make it first");
    }
    for (const fs::path& taken : {checkpoint::partial_path(path), checkpoint::replaced_path(path)}) {
        if (!is_taken(taken) || !lies_in(fs::weakly_canonical(source), fs::weakly_canonical(taken))) continue;
        throw UserError("{} cannot be written: the source {} lies where it is made; rename the source",
                        path.string(), source.string());
    }
    const fs::path place = fs::weakly_canonical(path), origin = fs::weakly_canonical(source);
    if (place != origin) refuse_inside(path, source);
    if (!is_taken(path)) return;
    if (lies_in(origin, place)) {
        throw UserError("{} cannot be replaced: the source {} lies there", path.string(), source.string());
    }
    if (replace == checkpoint::Replace::No) {
        throw UserError("{} exists; with --force it would be replaced", path.string());
    }
    if (fs::is_symlink(path)) {
        throw UserError("{} is a symbolic link, which is not replaced; name what it leads to, {}",
                        path.string(), fs::read_symlink(path).string());
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
    throw UserError("{} is the name of another step than {}, which this is; name it {}, or anything else",
                    name, step, expected);
}

}  // namespace argosy::interop
