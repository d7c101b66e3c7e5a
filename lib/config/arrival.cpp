#include "config/arrival.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/program.h"

namespace argosy::config {
namespace {

using Words = std::vector<std::string_view>;

Words split_at(std::string_view text, char separator) {
    Words parts;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(separator), text.size());
        parts.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

/// The key by its newest name: that of kFormerNames, also for older names of sections, applied until none
/// fits.
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

/// A value as the tables spell it: strings without quotes.
std::string spelled(const Value& value) {
    if (!is_set(value)) return "null";
    const auto* text = std::get_if<std::string>(&value);
    return text ? *text : toml_text(value);
}

bool lists(std::string_view values, const std::string& value) {
    if (values == "*" || (values.empty() && value.empty())) return true;
    return std::ranges::count(split_at(values, '|'), value) > 0;
}

/// Our spelling of their value: none if it changes nothing here, the same one if `values` does not name it.
std::optional<std::string> our_spelling(std::string_view values, const std::string& theirs) {
    for (const std::string_view pair : split_at(values, '|')) {
        const std::size_t equals = std::min(pair.rfind('='), pair.size());
        if (pair.substr(0, equals) != theirs || equals == pair.size()) continue;
        if (equals + 1 == pair.size()) return std::nullopt;
        return std::string(pair.substr(equals + 1));
    }
    return theirs;
}

/// Whether `values` has this spelling of theirs, if it ends with "|!", which closes the list.
bool is_listed(std::string_view values, const std::string& theirs) {
    return !values.ends_with("|!") || std::ranges::any_of(split_at(values, '|'), [&](std::string_view pair) {
        return pair.substr(0, pair.rfind('=')) == theirs;
    });
}

/// A value for a key of `type`: words of a command line and of YAML become what they stand for.
Value as_type(ValueType type, const Value& value) {
    const bool is_text = type == ValueType::String || type == ValueType::Choice;
    if (const auto* text = std::get_if<std::string>(&value); text && !is_text)
        return value_from_word(type, *text);
    if (const auto* number = std::get_if<int64_t>(&value)) {
        if (type == ValueType::IntegerList) return std::vector<int64_t>{*number};
        if (is_text) return std::to_string(*number);
    }
    const auto* number = std::get_if<double>(&value);  // as max_tokens = 3e12
    if (number && type == ValueType::Integer && std::floor(*number) == *number && std::fabs(*number) < 9e18)
        return static_cast<int64_t>(*number);
    return value;
}

bool is_token_file(const Value& value) {
    const auto* path = std::get_if<std::string>(&value);
    return path && (path->ends_with(".h5") || path->ends_with(".bin"));
}

/// Translates the keys of one configuration. A key may depend on others, so that some go first or last.
class Translation {
  public:
    explicit Translation(const ForeignTable& table) : table_(table) {}

    /// `settings`: each key once.
    Arrival translate(const std::vector<Setting>& settings) {
        std::vector<ArrivedKey> rows(settings.size());
        for (const int turn : {0, 1, 2}) {
            for (std::size_t i = 0; i < settings.size(); ++i) {
                if (turn_of(settings[i].key) == turn) rows[i] = arrive(settings[i]);
            }
        }
        arrival_.keys = std::move(rows);
        add_implied();
        add_steps();
        std::ranges::stable_sort(arrival_.keys, {}, &ArrivedKey::fate);
        return std::move(arrival_);
    }

  private:
    int turn_of(const std::string& theirs) const {
        const std::string key = newest_name(table_, theirs);
        const ForeignKey* row = find_row(table_, key);
        if (key == "model.converters" || (row && row->ours == "model.converters")) return 0;
        if (row && row->ours.find(' ') != std::string_view::npos)
            return 0;  // explicit keys override its parts
        const bool late = key == "checkpoint.export_dtype" || key == "checkpoint.initial_load_path" ||
                          key == "validation.enable" || (row && row->values.starts_with('/'));
        return late ? 2 : 1;
    }

    ArrivedKey arrive(const Setting& setting) {
        const std::string key = newest_name(table_, setting.key);
        const bool is_null = !is_set(setting.value) && setting.found == "null";
        ArrivedKey result{Fate::Missing, setting.key, is_null ? "null" : setting.found, ""};
        if (is_set(setting.value)) result.value = toml_text(setting.value);
        const ForeignKey* row = find_row(table_, key);
        if (is_null) {
            decide(result, Fate::Harmless, "it is unset there");
        } else if (!row || row->use == ForeignKey::Use::ToKey) {
            take(result, setting, key, row);
        } else if (row->use == ForeignKey::Use::InWords) {
            decide(result, Fate::Equivalent, row->sentence);
        } else if (lists(row->values, spelled(setting.value))) {
            decide(result, Fate::Harmless,
                   row->values == "*" ? std::string(row->sentence) : "the value asks for nothing more");
        } else {
            decide(result, Fate::Missing, fmt::format("nearest: {}", row->sentence));
        }
        return result;
    }

    static void decide(ArrivedKey& result, Fate fate, std::string_view sentence) {
        result.fate = fate;
        result.sentence = sentence;
    }

    /// Gives the value to our key, or to our keys.
    void take(ArrivedKey& result, const Setting& setting, const std::string& key, const ForeignKey* row) {
        const Words ours = row && !row->ours.empty() ? split_at(row->ours, ' ') : Words{key};
        if (!find_field(ours[0])) {
            const std::string meant = nearest(key, keys());
            return decide(result, Fate::Missing,
                          fmt::format("unknown to {} and here{}", table_.name,
                                      meant.empty() ? "" : "; did you mean " + meant + "?"));
        }
        if (const auto [fate, why] = without_effect(key, setting); !why.empty())
            return decide(result, fate, why);
        const auto values = our_values(setting.value, row, ours.size());
        if (values.empty()) return decide(result, Fate::Harmless, row->sentence);
        try {
            // A name without our spelling goes to the last key: the run then stops and lists the known ones.
            const std::size_t first = ours.size() - values.size();
            for (std::size_t i = 0; i < values.size(); ++i)
                set(std::string(ours[first + i]), values[i], setting.place);
            if (first > 0 || (row && !is_listed(row->values, spelled(setting.value))))
                throw UserError("{} is not known here", result.value);
        } catch (const UserError& error) {
            return decide(result, Fate::Missing,
                          row && !row->sentence.empty()
                              ? fmt::format("{}; nearest: {}", error.what(), row->sentence)
                              : error.what());
        }
        describe(result, ours, row);
    }

    /// Says what our keys are now.
    void describe(ArrivedKey& result, const Words& ours, const ForeignKey* row) {
        std::vector<std::string> now;
        for (const std::string_view key : ours) {
            const std::string value = toml_text(find_field(key)->get(arrival_.config));
            if (ours.size() == 1 && key == result.key && value == result.value) {
                return decide(result, Fate::Taken, "the same key here");
            }
            now.push_back(fmt::format("{} = {}", key, value));
        }
        const bool explained = row && !row->sentence.empty() && !row->ours.empty() && row->values.empty();
        decide(result, Fate::Equivalent,
               fmt::format("{}{}{}", fmt::join(now, ", "), explained ? ": " : "",
                           explained ? row->sentence : ""));
    }

    /// The values for `count` keys of ours: fewer if there is no spelling for each, none if the value changes
    /// nothing here.
    std::vector<Value> our_values(const Value& theirs, const ForeignKey* row, std::size_t count) const {
        if (!row || row->values.empty()) return spread(theirs, count);
        if (row->values.starts_with('/')) return {divided(theirs, row->values.substr(1))};
        if (const auto* names = std::get_if<std::vector<std::string>>(&theirs)) {
            std::vector<std::string> ours;
            for (const std::string& name : *names)
                ours.push_back(our_spelling(row->values, name).value_or(name));
            return {ours};
        }
        const std::string text =
            count == 1 ? spelled(theirs) : spelled(theirs).substr(spelled(theirs).rfind('/') + 1);
        const auto ours = our_spelling(row->values, text);
        if (!ours) return {};
        if (*ours == text) return {theirs};
        std::vector<Value> values;
        for (const std::string_view word : count == 1 ? Words{*ours} : split_at(*ours, ' ')) {
            values.emplace_back(std::string(word));
        }
        return values;
    }

    static std::vector<Value> spread(const Value& theirs, std::size_t count) {
        const auto* list = std::get_if<std::vector<std::string>>(&theirs);
        if (count == 1 || !list) return {theirs};
        return {list->begin(), list->end()};
    }

    /// A rate as a share of another one.
    Value divided(const Value& theirs, std::string_view key) const {
        const Value number = as_type(ValueType::Number, value_as(ValueType::Number, theirs));
        const Value by = find_field(key)->get(arrival_.config);
        const auto* numerator = std::get_if<double>(&number);
        const auto* denominator = std::get_if<double>(&by);
        return numerator && denominator && *denominator > 0 ? Value(*numerator / *denominator) : theirs;
    }

    void set(const std::string& key, const Value& value, const std::string& place) {
        const Value ours = as_type(find_field(key)->type, value);
        apply({key, is_set(ours) ? ours : value, spelled(value), place}, arrival_.config);
        arrival_.given.insert(key);
    }

    /// Why a key that this program has does nothing, or cannot be taken, beside the other keys.
    std::pair<Fate, std::string> without_effect(const std::string& key, const Setting& setting) const {
        const JobConfig& config = arrival_.config;
        const auto& converters = config.model.converters;
        for (const Converter converter : {Converter::Float8, Converter::Mx}) {
            const std::string section = std::string(name_of(converter)) + ".";
            if (key.starts_with(section) && key != section + "enable" &&
                std::ranges::count(converters, converter) == 0)
                return {Fate::Harmless, fmt::format("model.converters has no {}", name_of(converter))};
        }
        const Checkpoint& checkpoint = config.checkpoint;
        if (key == "checkpoint.export_dtype" && !checkpoint.last_save_model_only &&
            !checkpoint.last_save_in_hf)
            return {Fate::Harmless, "the last step is saved as it is trained"};
        const ForeignKey* row = find_row(table_, key);
        const bool is_ours = setting.place == "on the command line";
        if (key.ends_with(".dataset_path") && !is_ours && !is_token_file(setting.value))
            return {Fate::Equivalent, std::string(row->sentence) + key};
        const bool unreadable =
            key == "checkpoint.initial_load_path" && !checkpoint.initial_load_in_hf && !is_ours;
        const bool no_texts = key == "validation.enable" && spelled(setting.value) == "true" &&
                              config.validation.dataset_path.empty();
        if ((unreadable && spelled(setting.value) != "") || no_texts)
            return {Fate::Missing, fmt::format("nearest: {}", row->sentence)};
        return {};
    }

    void add_implied() {
        for (const Implied& implied : table_.implied) {
            ArrivedKey row{Fate::Equivalent, std::string(implied.what), "", ""};
            if (implied.ours.empty()) {
                row.sentence = implied.sentence;
            } else if (arrival_.given.contains(std::string(implied.ours))) {
                continue;
            } else if (implied.value.empty()) {
                decide(row, Fate::Missing, implied.sentence);
            } else {
                set(std::string(implied.ours), std::string(implied.value), "");
                row.sentence = fmt::format("{} = {}: {}", implied.ours, implied.value, implied.sentence);
            }
            arrival_.keys.push_back(std::move(row));
        }
    }

    /// A limit of tokens is one of steps, because training.steps has a default that may end the run earlier.
    void add_steps() {
        const Training& training = arrival_.config.training;
        if (!training.max_tokens || arrival_.given.contains("training.steps")) return;
        const int64_t batch =
            training.global_batch_size > 0 ? training.global_batch_size : training.local_batch_size;
        const int64_t tokens = batch * training.seq_len;
        const int64_t steps = (*training.max_tokens + tokens - 1) / tokens;
        set("training.steps", steps, "");
        arrival_.keys.push_back({Fate::Equivalent, "(steps)", "",
                                 fmt::format("training.steps = {}: the steps of max_tokens", steps)});
    }

    const ForeignTable& table_;
    Arrival arrival_;
};

std::string key_and_value(const ArrivedKey& key) {
    return on_one_line(key.value.empty() ? key.key : fmt::format("{} = {}", key.key, key.value));
}

const ForeignTable& table_of(ForeignProgram program) {
    return program == ForeignProgram::TorchTitan ? torchtitan_table() : litgpt_table();
}

}  // namespace

std::string_view fate_name(Fate fate) {
    constexpr std::string_view kNames[] = {"taken", "equivalent", "harmless", "missing"};
    return kNames[static_cast<std::size_t>(fate)];
}

int Arrival::count(Fate fate) const {
    return static_cast<int>(std::ranges::count(keys, fate, &ArrivedKey::fate));
}

Arrival translate(ForeignProgram program, const std::vector<Setting>& settings) {
    const ForeignTable& table = table_of(program);
    std::vector<Setting> last;
    for (const Setting& setting : settings) {
        std::erase_if(last, [&](const Setting& earlier) {
            return newest_name(table, earlier.key) == newest_name(table, setting.key);
        });
        last.push_back(setting);
    }
    return Translation(table).translate(last);
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
                      arrival.count(Fate::Harmless), arrival.count(Fate::Missing), request.output,
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
