// The text that a translation prints, and the file that it writes.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/program.h"
#include "config/arrival.h"

namespace argosy::config {
namespace {

std::string key_and_value(const ArrivedKey& key) {
    return on_one_line(key.value.empty() ? key.key : fmt::format("{} = {}", key.key, key.value));
}

/// A word of a command of the shell.
std::string shell_word(const std::string& word) {
    const auto is_plain = [](unsigned char letter) {
        return std::isalnum(letter) ||
               std::string_view("/._-+=:,@%").find(static_cast<char>(letter)) != std::string_view::npos;
    };
    if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
    std::string quoted = "'";
    for (const char letter : word) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    return quoted + "'";
}

}  // namespace

const ForeignTable& table_of(ForeignProgram program) {
    return program == ForeignProgram::TorchTitan ? torchtitan_table() : litgpt_table();
}

std::string_view fate_name(Fate fate) {
    constexpr std::string_view kNames[] = {"taken", "equivalent", "harmless", "missing"};
    return kNames[static_cast<std::size_t>(fate)];
}

int Arrival::count(Fate fate) const {
    return static_cast<int>(std::ranges::count(keys, fate, &ArrivedKey::fate));
}

std::string arrival_text(const Arrival& arrival, const ArrivalRequest& request) {
    std::size_t width = 0;
    constexpr std::size_t kMaxWidth = 64;
    for (const ArrivedKey& key : arrival.keys) width = std::max(width, key_and_value(key).size());
    width = std::min(width, kMaxWidth);
    std::string text;
    for (const ArrivedKey& key : arrival.keys) {
        text +=
            fmt::format("{:<10}  {:<{}}  {}\n", fate_name(key.fate), key_and_value(key), width, key.sentence);
    }
    return text + fmt::format(
                      "{} taken, {} equivalent, {} harmless, {} missing\n"
                      "start: mpirun -n N pretrain --config {}{}\n",
                      arrival.count(Fate::Taken), arrival.count(Fate::Equivalent),
                      arrival.count(Fate::Harmless), arrival.count(Fate::Missing), shell_word(request.output),
                      arrival.given.contains("training.dataset_path") ? "" : " --training.dataset_path F.h5");
}

std::string arrival_toml(const Arrival& arrival, const ArrivalRequest& request) {
    try {
        check_consistency(arrival.config);
    } catch (const UserError& error) {
        throw UserError("the keys that follow from {} contradict each other: {}", request.path, error.what());
    }
    std::string text = fmt::format("{}{} {}\n", kArrivalMark,
                                   table_of(request.program).option.substr(std::string_view("from-").size()),
                                   on_one_line(request.path));
    for (const ArrivedKey& key : arrival.keys) {
        if (key.fate == Fate::Missing) text += fmt::format("# missing: {}\n", key_and_value(key));
    }
    for (const Section& section : schema()) {
        std::string lines;
        for (const Field& field : section.fields) {
            if (!arrival.given.contains(field.key)) continue;
            lines += fmt::format("{} = {}\n", field.name, toml_text(field.get(arrival.config)));
        }
        if (!lines.empty()) text += fmt::format("\n[{}]\n{}", section.name, lines);
    }
    return text;
}

}  // namespace argosy::config
