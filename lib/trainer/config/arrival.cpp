#include "config/arrival.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace argosy::config {

namespace {

using KeyNames = std::vector<std::string_view>;

bool is_on_command_line(const Setting& setting) { return setting.place == "on the command line"; }

/// The key of a setting by its newest name there. On the command line the keys of this program come first.
std::string key_of(const ForeignTable& table, const Setting& setting) {
    const bool is_ours = is_on_command_line(setting) && find_field(setting.key);
    return is_ours ? setting.key : newest_name(table, setting.key);
}

/// The keys of this program that take the value of `key`.
KeyNames our_keys(std::string_view key, const ForeignKey* row) {
    if (!row || row->ours.empty()) return {key};
    if (row->rule.use == Rule::Use::ToQuotient || row->second.empty()) return {row->ours};
    return {row->ours, row->second};
}

/// A value as the tables spell it: strings without quotes.
std::string spelled(const Value& value) {
    if (!is_set(value)) return "null";
    const auto* text = std::get_if<std::string>(&value);
    return text ? *text : toml_text(value);
}

/// The name of a model without the organisation before it, and without the words for what an architecture was
/// trained on.
std::string last_part(const std::string& name) {
    std::string part = name.substr(name.rfind('/') + 1);
    if (part.starts_with("Meta-")) part.erase(0, 5);
    for (const char* word : {"-hf", "-Instruct", "-Base", "-chat", "-Chat"}) {
        const std::size_t at = part.rfind(word);
        if (at != std::string::npos && at + std::string_view(word).size() == part.size()) part.erase(at);
    }
    return part.substr(0, part.find("-intermediate-step-"));
}

/// The condition that holds for a setting of the key; null if there is none.
const Need* find_need(const ForeignTable& table, std::string_view key, bool is_on_command_line) {
    for (const Need& need : table.needs) {
        if (need.key.ends_with('.') ? !key.starts_with(need.key) || !find_field(key) : need.key != key)
            continue;
        const bool counts = !need.sentence.empty() || find_row(table, key);
        return counts && (need.place == Need::Place::Anywhere || !is_on_command_line) ? &need : nullptr;
    }
    return nullptr;
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

/// Translates the keys of one configuration. A key may depend on others, so that some go first or last.
class Translation {
  public:
    explicit Translation(const ForeignTable& table) : table_(table) {}

    /// `settings`: each key once.
    Arrival translate(std::vector<Setting> settings, const std::string& torchtitan_date) {
        drop_overridden(settings);
        std::vector<ArrivedKey> rows(settings.size());
        for (std::size_t turn = kSeveral; turn <= kFirstNeed + table_.needs.size(); ++turn) {
            if (turn == kFirstNeed) add_implied(settings);
            for (std::size_t i = 0; i < settings.size(); ++i) {
                if (turn_of(settings[i]) == turn) rows[i] = arrive(settings[i]);
            }
        }
        check_sizes(settings, rows);
        arrival_.keys.insert(arrival_.keys.begin(), rows.begin(), rows.end());
        add_steps();
        if (&table_ == &torchtitan_table()) decide_by_date(settings, torchtitan_date, arrival_);
        std::ranges::stable_sort(arrival_.keys, {}, &ArrivedKey::fate);
        return std::move(arrival_);
    }

  private:
    /// Keys that set several of ours come first, so that those of one override them. Keys that read others
    /// come last: first those with a need, a turn for each row of the table, and then the shares.
    static constexpr std::size_t kSeveral = 0, kSingle = 1, kFirstNeed = 2;

    std::size_t turn_of(const Setting& setting) const {
        const std::string key = key_of(table_, setting);
        const ForeignKey* row = find_row(table_, key);
        if (row && row->rule.use == Rule::Use::ToQuotient) return kFirstNeed + table_.needs.size();
        if (const Need* need = find_need(table_, key, is_on_command_line(setting)))
            return kFirstNeed + static_cast<std::size_t>(need - table_.needs.data());
        return our_keys(key, row).size() > 1 ? kSeveral : kSingle;
    }

    /// The keys of this program that the setting may set.
    std::set<std::string> targets_of(const Setting& setting) const {
        const std::string key = key_of(table_, setting);
        const ForeignKey* row = find_row(table_, key);
        if (!is_set(setting.value) || (row && !row->rule.sets_a_key())) return {};
        const KeyNames ours = our_keys(key, row);
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
        } else if (!row || row->rule.sets_a_key()) {
            take(result, setting, key, row);
        } else if (!row->rule.word_of(spelled(setting.value))) {
            decide(result, Fate::Missing, fmt::format("nearest: {}", row->sentence));
        } else if (row->rule.use == Rule::Use::ToModel) {
            size(result, setting, *row);
        } else if (row->rule.use == Rule::Use::InWords) {
            decide(result, Fate::Equivalent, row->sentence);
        } else {
            decide(result, Fate::Harmless,
                   row->rule.values.empty() ? row->sentence : "the value asks for nothing more");
        }
        return result;
    }

    static void decide(ArrivedKey& result, Fate fate, std::string_view sentence) {
        result.fate = fate;
        result.sentence = sentence;
    }

    /// Gives the value to a key of a config.json.
    void size(ArrivedKey& result, const Setting& setting, const ForeignKey& row) {
        const std::string theirs = spelled(setting.value);
        const std::string_view ours = row.rule.word_of(theirs)->ours;
        if (row.ours.empty() || ours.empty()) return decide(result, Fate::Harmless, "it is so here");
        const Value value = ours == theirs ? setting.value : yaml_scalar(ours);
        arrival_.sizes.push_back({std::string(row.ours), value, toml_text(value), setting.place});
        decide(result, Fate::Equivalent, fmt::format("{} = {} of a config.json", row.ours, toml_text(value)));
    }

    /// The sizes of a model are all known, or none counts. A name without a preset then needs none.
    void check_sizes(const std::vector<Setting>& settings, std::vector<ArrivedKey>& rows) {
        if (arrival_.sizes.empty()) return;
        const std::string_view section =
            arrival_.sizes[0].key == "tie_word_embeddings" ? "" : table_.model_section;
        const auto is_given = [&](const ForeignKey& row) {
            return std::ranges::any_of(settings,
                                       [&](const Setting& setting) { return setting.key == row.key; });
        };
        for (const ForeignKey& row : table_.keys) {
            if (row.rule.use != Rule::Use::ToModel || !row.ours.empty() || section.empty() || is_given(row))
                continue;
            rows.push_back(
                {Fate::Missing, std::string(row.key), "null", fmt::format("nearest: {}", row.sentence)});
        }
        const auto is_wrong = [&](const ArrivedKey& row) {
            return row.fate == Fate::Missing && !section.empty() &&
                   newest_name(table_, row.key).starts_with(section);
        };
        if (std::ranges::any_of(rows, is_wrong)) return arrival_.sizes.clear();
        for (std::size_t i = 0; i < settings.size() && !section.empty(); ++i) {
            const std::set<std::string> targets = targets_of(settings[i]);
            if (rows[i].fate == Fate::Missing &&
                (targets.contains("model.flavor") || targets.contains("model.name")))
                decide(rows[i], Fate::Equivalent, "the file has the sizes of the model");
        }
    }

    /// Gives the value to our key, or to our keys.
    void take(ArrivedKey& result, const Setting& setting, const std::string& key, const ForeignKey* row) {
        KeyNames ours = our_keys(key, row);
        if (!find_field(ours[0])) {
            const std::string meant = nearest(key, keys());
            return decide(result, Fate::Missing,
                          fmt::format("unknown to {} and here{}", table_.name,
                                      meant.empty() ? "" : "; did you mean " + meant + "?"));
        }
        if (const Need* need = unmet_need(key, setting))
            return decide(result, need->fate, sentence_of(*need, row));
        const auto values = our_values(setting.value, row, ours.size());
        if (values.empty()) return decide(result, Fate::Harmless, row->sentence);
        try {
            // A name without our spelling goes to the last key: the run then stops and lists the known ones.
            const std::size_t num_keys = ours.size();
            ours.erase(ours.begin(), ours.end() - std::min(values.size(), num_keys));
            for (std::size_t i = 0; i < ours.size(); ++i) set(std::string(ours[i]), values[i], setting.place);
            const std::string text = spelled(setting.value);
            const bool fits = values.size() == num_keys || (row && !row->rule.values.empty());
            if (!fits || (row && !row->rule.word_of(num_keys == 1 ? text : last_part(text))))
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
    void describe(ArrivedKey& result, const KeyNames& ours, const ForeignKey* row) {
        std::vector<std::string> now;
        for (const std::string_view key : ours) {
            const std::string value = toml_text(find_field(key)->get(arrival_.config));
            if (ours.size() == 1 && key == result.key && value == result.value) {
                return decide(result, Fate::Taken, "the same key here");
            }
            now.push_back(fmt::format("{} = {}", key, value));
        }
        const bool explained = row && row->rule.use == Rule::Use::ToKey && !row->sentence.empty() &&
                               !row->ours.empty() && row->rule.values.empty();
        decide(result, Fate::Equivalent,
               fmt::format("{}{}{}", fmt::join(now, ", "), explained ? ": " : "",
                           explained ? row->sentence : ""));
    }

    /// The values for `count` keys of ours: fewer if there is no spelling for each, none if the value changes
    /// nothing here.
    std::vector<Value> our_values(const Value& theirs, const ForeignKey* row, std::size_t count) const {
        if (row && row->rule.use == Rule::Use::ToFolder) return {folder_of(theirs)};
        if (row && row->rule.use == Rule::Use::ToQuotient) return {divided(theirs, row->second)};
        if (!row || row->rule.values.empty()) return spread(theirs, count);
        if (const auto* names = std::get_if<std::vector<std::string>>(&theirs)) {
            std::vector<std::string> ours;
            for (const std::string& name : *names)
                ours.emplace_back(row->rule.word_of(name).value_or(Word{name}).ours);
            return {ours};
        }
        const std::string text = count == 1 ? spelled(theirs) : last_part(spelled(theirs));
        const auto ours = row->rule.word_of(text);
        if (!ours || ours->ours == text) return {theirs};
        if (ours->ours.empty()) return {};
        std::vector<Value> values = {std::string(ours->ours)};
        if (!ours->second.empty()) values.emplace_back(std::string(ours->second));
        return values;
    }

    /// The folder of a path that has the extension of a file; other values as they are.
    static Value folder_of(const Value& path) {
        const std::filesystem::path file(spelled(path));
        return file.extension() == ".model" || file.extension() == ".json"
                   ? Value(file.parent_path().string())
                   : path;
    }

    static std::vector<Value> spread(const Value& theirs, std::size_t count) {
        const auto* list = std::get_if<std::vector<std::string>>(&theirs);
        if (count == 1 || !list) return {theirs};
        return {list->begin(), list->end()};
    }

    /// A rate as a share of another one.
    Value divided(const Value& theirs, std::string_view key) const {
        const auto number = [](const Value& value) {
            const Value found = as_type(ValueType::Number, value_as(ValueType::Number, value));
            return std::holds_alternative<double>(found) ? std::get<double>(found) : -1;
        };
        const double numerator = number(theirs), denominator = number(find_field(key)->get(arrival_.config));
        return numerator >= 0 && denominator > 0 ? Value(numerator / denominator) : theirs;
    }

    void set(const std::string& key, const Value& value, const std::string& place) {
        const Value ours = as_type(find_field(key)->type, value);
        apply({key, is_set(ours) ? ours : value, spelled(value), place}, arrival_.config);
        arrival_.given.insert(key);
    }

    /// The condition that the keys so far do not meet; null if there is none.
    const Need* unmet_need(const std::string& key, const Setting& setting) const {
        const Need* need = find_need(table_, key, is_on_command_line(setting));
        return need && !need->is_met(arrival_.config, spelled(setting.value)) ? need : nullptr;
    }

    static std::string sentence_of(const Need& need, const ForeignKey* row) {
        const std::string_view sentence = need.sentence.empty() ? row->sentence : need.sentence;
        return fmt::format("{}{}", need.fate == Fate::Missing ? "nearest: " : "", sentence);
    }

    /// Adds the habits that no setting contradicts; late ones are still to come.
    void add_implied(const std::vector<Setting>& settings) {
        std::set<std::string> decided;
        for (const Setting& setting : settings) {
            if (turn_of(setting) >= kFirstNeed) decided.merge(targets_of(setting));
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
                const Value value = yaml_scalar(implied.value);
                if (unmet_need(key, {key, value, "", ""}) || exceeds(value, implied.max)) continue;
                set(key, implied.divisor.empty() ? value : divided(value, implied.divisor), "");
                row.sentence = fmt::format(
                    "{} = {}: {}", key, toml_text(find_field(key)->get(arrival_.config)), implied.sentence);
            }
            arrival_.keys.push_back(std::move(row));
        }
    }

    bool exceeds(const Value& value, std::string_view max_key) const {
        return !max_key.empty() &&
               std::get<int64_t>(value) > std::get<int64_t>(find_field(max_key)->get(arrival_.config));
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

Arrival translate(ForeignProgram program, const std::vector<Setting>& settings,
                  const std::string& torchtitan_date) {
    const ForeignTable& table = table_of(program);
    std::vector<Setting> last;
    for (const Setting& setting : settings) {
        const std::string key = key_of(table, setting);
        std::erase_if(last, [&](const Setting& earlier) { return key_of(table, earlier) == key; });
        last.push_back(setting);
    }
    return Translation(table).translate(last, torchtitan_date);
}

}  // namespace argosy::config
