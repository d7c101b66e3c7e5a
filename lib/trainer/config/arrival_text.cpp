// The texts of a translation for people: its table, the file that it writes, and the answer to an option with
// another program's word.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

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

/// A former name is applied until none fits: a key may have had several.
std::string newest_name(const ForeignTable& table, std::string key) {
    for (std::size_t round = 0; round < 3; ++round) {
        for (const FormerName& name : table.former_names) {
            const bool is_prefix = name.before.back() == '.' || name.before.back() == '_';
            if (is_prefix ? key.starts_with(name.before) : key == name.before) {
                key = std::string(name.now) + key.substr(name.before.size());
                break;
            }
        }
    }
    return key;
}

const ForeignKey* find_row(const ForeignTable& table, std::string_view key) {
    for (const ForeignKey& row : table.keys) {
        // A row for a whole section leaves out the keys of this program.
        if (row.key.ends_with('.') ? key.starts_with(row.key) && !find_field(key) : row.key == key)
            return &row;
    }
    return nullptr;
}

std::optional<Word> Rule::word_of(std::string_view theirs) const {
    const auto found = std::ranges::find_if(
        values, [&](const Word& word) { return word.is_any_other || word.theirs == theirs; });
    if (values.empty() || (found != values.end() && found->is_any_other)) return Word{theirs};
    return found == values.end() ? std::nullopt : std::optional(*found);
}

std::optional<std::pair<std::string, std::string>> our_option(const std::string& name,
                                                              const std::string& word) {
    const std::string key = newest_name(torchtitan_table(), name);
    const ForeignKey* row = find_row(torchtitan_table(), key);
    if (!row || row->rule.use != Rule::Use::ToKey || !row->second.empty()) return std::nullopt;
    const auto ours = row->rule.word_of(word);
    if (!ours || ours->ours.empty() || ours->ours == word) return std::nullopt;
    return std::pair{row->ours.empty() ? key : std::string(row->ours), std::string(ours->ours)};
}

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
    text += fmt::format("{} taken, {} equivalent, {} harmless, {} missing\n", arrival.count(Fate::Taken),
                        arrival.count(Fate::Equivalent), arrival.count(Fate::Harmless),
                        arrival.count(Fate::Missing));
    if (std::ranges::count(arrival.keys, kNoPreset, &ArrivedKey::key) > 0) return text;
    const bool has_data = arrival.given.contains("training.dataset_path");
    return text + fmt::format("start: mpirun -n N pretrain --config {}{}\n", shell_word(request.output),
                              has_data ? "" : " --training.dataset_path F.h5");
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

std::string foreign_answer(std::string_view key) {
    std::string word(key.substr(key.rfind('.') + 1));
    std::ranges::transform(word, word.begin(), [](char letter) {
        return letter == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    });
    const auto known = std::ranges::find(foreign_words(), word, &ForeignWord::word);
    if (known != foreign_words().end()) return std::string(known->answer);
    const ForeignTable& table = torchtitan_table();
    const std::string name = newest_name(table, std::string(key));
    if (name != key && find_field(name)) return fmt::format("its name is {}", name);
    const ForeignKey* row = find_row(table, name);
    const auto in_section = [&](const ForeignKey& other) { return other.key.starts_with(name + "."); };
    if (!row && std::ranges::none_of(table.keys, in_section)) return "";
    return fmt::format("it is TorchTitan's{}; pretrain --from-torchtitan F.toml translates a whole file",
                       row && row->sentence.size() ? fmt::format(" ({})", row->sentence) : "");
}

}  // namespace argosy::config
