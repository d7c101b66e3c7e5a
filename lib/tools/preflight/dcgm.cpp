// Asks NVIDIA's DCGM about the GPUs of a node, where it is installed: for the incidents that its health
// watches have kept, and for the quick tests of its diagnosis. DCGM promises no stable form of these answers.
// This file knows those of DCGM 2.4 to 4.6, as their public source writes them (dcgmi/Diag.cpp,
// dcgmi/Health.cpp, dcgmlib/dcgm_errors.h), and shows what it does not know instead of judging it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/strict_json.h"
#include "preflight/read_facts.h"

namespace argosy::preflight {
namespace {

using Json = nlohmann::ordered_json;

/// DCGM's severities of errors that stop work on a GPU: isolate it, or drain and reset it.
constexpr int64_t kIsolate = 2, kReset = 6;

/// Null if `value` is no object or has no such key.
const Json& member(const Json& value, const std::string& key) {
    static const Json none;
    const auto found = value.is_object() ? value.find(key) : value.end();
    return found == value.end() ? none : *found;
}

/// A string or a number as one line of limited length; empty for other values.
std::string text_of(const Json& value) {
    if (value.is_number()) return value.dump();
    return value.is_string() ? shortened(value.get_ref<const std::string&>()) : "";
}

void show(const std::string& text, DcgmAnswer& answer) {
    answer.not_judged += (answer.not_judged.empty() ? "" : "; ") + text;
}

/// " of GPU 3". DCGM 4 names any entity, older versions only GPUs.
std::string entity_of(const Json& result) {
    const std::string group = text_of(member(result, "entity_group")),
                      gpu = text_of(member(result, "gpu_id"));
    if (!group.empty()) return fmt::format(" of {} {}", group, text_of(member(result, "entity_id")));
    return gpu.empty() ? "" : " of GPU " + gpu;
}

/// Reads a result of a test. The errors are one text (before DCGM 3.3), or a list of objects whose text is
/// called "warnings" (software tests of 3.3) or "warning", with a severity.
void read_result(const std::string& test, const Json& result, DcgmAnswer& answer) {
    const std::string status = text_of(member(result, "status"));
    if (status == "Pass" || status == "Skip" || status == "Not Run") return;
    const std::string what = test + entity_of(result);
    if (status != "Fail" && status != "Warn")
        return show(fmt::format("{}: the status '{}' is not known", what, status), answer);
    DcgmAnswer::Fault fault{.what = what + ": "};
    const Json& errors = member(result, "warnings");
    std::string texts;
    for (const Json& error : errors.is_array() ? errors : Json::array({errors})) {
        const Json& severity = member(error, "error_severity");
        fault.severe |= severity == kIsolate || severity == kReset;
        for (const Json& text : {error, member(error, "warning"), member(error, "warnings")}) {
            if (!text_of(text).empty()) texts += (texts.empty() ? "" : "; ") + text_of(text);
        }
    }
    fault.what += texts.empty() ? status : texts;
    answer.faults.push_back(std::move(fault));
}

/// Reads the answer of `dcgmi diag`. The summary of a test (DCGM 4) repeats the errors of its results, and
/// has others only if no result has any.
void read_diagnosis(const Json& whole, DcgmAnswer& answer) {
    const Json& newer = member(whole, "DCGM Diagnostic");
    const Json& root = newer.is_null() ? member(whole, "DCGM GPU Diagnostic") : newer;
    const std::string failure = text_of(member(root, "runtime_error"));
    if (!failure.empty()) return show(failure, answer);
    const Json& categories = member(root, "test_categories");
    if (!categories.is_array()) return show("its answer has no test_categories", answer);
    for (const Json& category : categories) {
        for (const Json& test : member(category, "tests")) {
            const std::string name = text_of(member(test, "name"));
            const size_t num_before = answer.faults.size();
            for (const Json& result : member(test, "results")) read_result(name, result, answer);
            const Json& summary = member(test, "test_summary");
            if (answer.faults.size() == num_before && !summary.is_null()) read_result(name, summary, answer);
        }
    }
}

/// Reads one box of the answer of `dcgmi health`, and the boxes in it. Only the innermost boxes, one for each
/// system of a GPU, have the texts of incidents.
void read_box(const std::string& name, const Json& box, DcgmAnswer& answer) {
    const Json& boxes = member(box, "children");
    for (const auto& [key, inner] : boxes.items())
        read_box(key == "Errors" ? name : name + " " + key, inner, answer);
    if (!boxes.empty()) return;
    const std::string word = text_of(member(box, "value"));
    if (word == "Healthy") return;
    std::string texts;
    for (const Json& text : member(box, "overflow")) texts += (texts.empty() ? "" : " ") + text_of(text);
    const std::string what = fmt::format("{}: {}", name, texts.empty() ? word : shortened(texts));
    if (word != "Warning" && word != "Failure")
        return show(fmt::format("{} (the word '{}' is not known)", what, word), answer);
    answer.faults.push_back({.what = what, .severe = word == "Failure"});
}

void read_health(const Json& whole, DcgmAnswer& answer) {
    constexpr const char* kOverall = "Overall Health";
    const Json& body = member(whole, "body");
    if (member(body, kOverall).is_null()) return show("its answer has no 'Overall Health'", answer);
    for (const auto& [name, box] : body.items()) {
        if (name != kOverall) read_box(name, box, answer);
    }
    if (answer.faults.empty()) read_box(kOverall, member(body, kOverall), answer);
}

struct Command {
    std::vector<std::string> words;
    void (*read)(const Json&, DcgmAnswer&);
};
const Command kHealth = {{"health", "-c", "-j"}, read_health};
const Command kDiagnosis = {{"diag", "-r", "1", "-j"}, read_diagnosis};

DcgmAnswer ask(const Command& command, const Sources& sources, Calls& calls) {
    std::vector<std::string> words = {sources.dcgmi};
    words.insert(words.end(), command.words.begin(), command.words.end());
    DcgmAnswer answer{.command = "dcgmi " + command.words.front()};
    const CommandResult result = calls.run(words, std::numeric_limits<double>::infinity());
    if (result.end == CommandResult::End::NotFound)
        return {.command = "dcgmi", .not_judged = "it is not in PATH"};
    if (result.end == CommandResult::End::Hung) {
        show(fmt::format("it did not end in the {:.0f} s that all calls have together", sources.gpu_seconds),
             answer);
        return answer;
    }
    // Errors are printed as plain text, alone or before the object.
    const std::string_view output = result.output;
    const size_t start = output.find('{'), end = output.rfind('}');
    if (start == output.npos || end == output.npos || end < start) {
        show(fmt::format("it exits with {}: {}", result.status, shortened(output)), answer);
        return answer;
    }
    try {
        command.read(parse_json(output.substr(start, end + 1 - start), answer.command), answer);
    } catch (const std::exception& error) {
        show(fmt::format("its answer cannot be read: {}", shortened(error.what())), answer);
    }
    return answer;
}

}  // namespace

std::vector<DcgmAnswer> ask_dcgm(Dcgm questions, const Sources& sources, Calls& calls) {
    std::vector<DcgmAnswer> answers;
    if (questions == Dcgm::NotAsked) return answers;
    answers.push_back(ask(kHealth, sources, calls));
    const bool is_installed = answers.front().command != "dcgmi";
    if (questions == Dcgm::HealthAndDiagnosis && is_installed)
        answers.push_back(ask(kDiagnosis, sources, calls));
    return answers;
}

}  // namespace argosy::preflight
