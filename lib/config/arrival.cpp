#include "config/arrival.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"

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

bool is_on_command_line(const Setting& setting) { return setting.place == "on the command line"; }

/// The key of a setting by its newest name there. On the command line the keys of this program come first.
std::string key_of(const ForeignTable& table, const Setting& setting) {
    const bool is_ours = is_on_command_line(setting) && find_field(setting.key);
    return is_ours ? setting.key : newest_name(table, setting.key);
}

const ForeignKey* find_row(const ForeignTable& table, std::string_view key) {
    for (const ForeignKey& row : table.keys) {
        // A row for a whole section leaves out the keys of this program.
        if (row.key.ends_with('.') ? key.starts_with(row.key) && !find_field(key) : row.key == key)
            return &row;
    }
    return nullptr;
}

/// The keys of this program that take the value of `key`.
Words our_keys(std::string_view key, const ForeignKey* row) {
    return row && !row->ours.empty() ? split_at(row->ours, ' ') : Words{key};
}

/// A value as the tables spell it: strings without quotes.
std::string spelled(const Value& value) {
    if (!is_set(value)) return "null";
    const auto* text = std::get_if<std::string>(&value);
    return text ? *text : toml_text(value);
}

/// The name without the folder or the organisation before it.
std::string last_part(const std::string& name) { return name.substr(name.rfind('/') + 1); }

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
    Arrival translate(std::vector<Setting> settings) {
        drop_overridden(settings);
        std::vector<ArrivedKey> rows(settings.size());
        for (const Turn turn : {Turn::Several, Turn::Single, Turn::Late}) {
            if (turn == Turn::Late) add_implied(settings);
            for (std::size_t i = 0; i < settings.size(); ++i) {
                if (turn_of(settings[i]) == turn) rows[i] = arrive(settings[i]);
            }
        }
        arrival_.keys.insert(arrival_.keys.begin(), rows.begin(), rows.end());
        add_steps();
        std::ranges::stable_sort(arrival_.keys, {}, &ArrivedKey::fate);
        return std::move(arrival_);
    }

  private:
    /// Keys that set several of ours come first, so that those of one override them. Late keys read others.
    enum class Turn { Several, Single, Late };

    Turn turn_of(const Setting& setting) const {
        const std::string key = key_of(table_, setting);
        const ForeignKey* row = find_row(table_, key);
        const Words ours = our_keys(key, row);
        if (ours.size() > 1 || ours[0] == "model.converters") return Turn::Several;
        const bool late = key == "checkpoint.export_dtype" || key == "checkpoint.initial_load_path" ||
                          key == "validation.enable" || (row && row->values.starts_with('/'));
        return late ? Turn::Late : Turn::Single;
    }

    /// The keys of this program that the setting may set.
    std::set<std::string> targets_of(const Setting& setting) const {
        const std::string key = key_of(table_, setting);
        const ForeignKey* row = find_row(table_, key);
        if (!is_set(setting.value) || (row && row->use != ForeignKey::Use::ToKey)) return {};
        const Words ours = our_keys(key, row);
        return {ours.begin(), ours.end()};
    }

    /// Removes the settings of the file all of whose keys here the command line sets.
    void drop_overridden(std::vector<Setting>& settings) const {
        std::set<std::string> overridden;
        for (const Setting& setting : settings) {
            if (is_on_command_line(setting)) overridden.merge(targets_of(setting));
        }
        std::erase_if(settings, [&](const Setting& setting) {
            const std::set<std::string> targets = targets_of(setting);
            return !is_on_command_line(setting) && !targets.empty() &&
                   std::ranges::includes(overridden, targets);
        });
    }

    ArrivedKey arrive(const Setting& setting) {
        const std::string key = key_of(table_, setting);
        const bool is_null = !is_set(setting.value) && setting.found == "null";
        ArrivedKey result{Fate::Missing, setting.key, is_null ? "null" : setting.found, ""};
        if (is_set(setting.value)) result.value = toml_text(setting.value);
        const ForeignKey* row = find_row(table_, key);
        if (is_null) {
            decide(result, Fate::Harmless, "it is unset there");
        } else if (!row || row->use == ForeignKey::Use::ToKey) {
            take(result, setting, key, row);
        } else if (row->use == ForeignKey::Use::InWords &&
                   (row->values.empty() || lists(row->values, spelled(setting.value)))) {
            decide(result, Fate::Equivalent, row->sentence);
        } else if (row->use == ForeignKey::Use::Nothing && lists(row->values, spelled(setting.value))) {
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
        Words ours = our_keys(key, row);
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
            const std::size_t num_keys = ours.size();
            ours.erase(ours.begin(), ours.end() - std::min(values.size(), num_keys));
            for (std::size_t i = 0; i < ours.size(); ++i) set(std::string(ours[i]), values[i], setting.place);
            const std::string text = spelled(setting.value);
            const bool fits = values.size() == num_keys || (row && !row->values.empty());
            if (!fits || (row && !is_listed(row->values, num_keys == 1 ? text : last_part(text))))
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
        const std::string text = count == 1 ? spelled(theirs) : last_part(spelled(theirs));
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
        if (!row) return {};  // not a key of theirs
        const bool is_ours = is_on_command_line(setting);
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

    /// Adds the habits that no setting contradicts; late ones are still to come.
    void add_implied(const std::vector<Setting>& settings) {
        std::set<std::string> decided;
        for (const Setting& setting : settings) {
            if (turn_of(setting) == Turn::Late) decided.merge(targets_of(setting));
        }
        for (const Implied& implied : table_.implied) {
            const std::string key(implied.ours);
            ArrivedKey row{Fate::Equivalent, std::string(implied.what), "", ""};
            if (key.empty()) {
                row.sentence = implied.sentence;
            } else if (arrival_.given.contains(key) || decided.contains(key)) {
                continue;
            } else if (implied.value.empty()) {
                decide(row, Fate::Missing, implied.sentence);
            } else {
                const Words parts = split_at(implied.value, '/');
                const Value value = yaml_scalar(parts[0]);
                if (!without_effect(key, {key, value, "", ""}).second.empty()) continue;
                // Longer samples than those of training would be refused.
                if (key == "validation.seq_len" &&
                    std::get<int64_t>(value) > arrival_.config.training.seq_len)
                    continue;
                set(key, parts.size() == 1 ? value : divided(value, parts[1]), "");
                row.sentence = fmt::format(
                    "{} = {}: {}", key, toml_text(find_field(key)->get(arrival_.config)), implied.sentence);
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
        const int64_t steps = std::max<int64_t>(1, *training.max_tokens / training.seq_len / batch);
        set("training.steps", steps, "");
        arrival_.keys.push_back({Fate::Equivalent, "(steps)", "",
                                 fmt::format("training.steps = {}: the whole steps of max_tokens", steps)});
    }

    const ForeignTable& table_;
    Arrival arrival_;
};

}  // namespace

Arrival translate(ForeignProgram program, const std::vector<Setting>& settings) {
    const ForeignTable& table = table_of(program);
    std::vector<Setting> last;
    for (const Setting& setting : settings) {
        std::erase_if(
            last, [&](const Setting& earlier) { return key_of(table, earlier) == key_of(table, setting); });
        last.push_back(setting);
    }
    return Translation(table).translate(last);
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
