// Configurations of other programs become ours: what becomes of each key of a TorchTitan TOML or a Lit-GPT
// YAML, and the TOML that `pretrain --config` takes. The meanings of the keys here are data: one row per key
// in torchtitan_keys.cpp and litgpt_keys.cpp, which only arrival.cpp applies.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/parse.h"
#include "config/schema.h"

namespace argosy::config {

/// Taken: the same key and value. Equivalent: another key or value does the same, or the sentence says which
/// settings do. Harmless: nothing changes without it. Missing: this program has no such thing, or not at this
/// value; the sentence says what is nearest.
enum class Fate { Taken, Equivalent, Harmless, Missing };
std::string_view fate_name(Fate fate);

/// One key of the other program with its value, and a sentence that says what becomes of it.
struct ArrivedKey {
    Fate fate;
    std::string key;
    std::string value;  // TOML's spelling, or "null"
    std::string sentence;
};

/// The key of a model that no preset has, which a run refuses.
inline constexpr const char* kNoPreset = "(preset)";

struct Arrival {
    std::vector<ArrivedKey> keys;  // by fate, then in the order of their file
    JobConfig config;
    std::set<std::string> given;  // the keys of this program that follow from theirs
    std::vector<Setting> sizes;   // keys of a config.json of Hugging Face, if the file has the model's sizes
    std::vector<std::string> warnings = {};
    int count(Fate fate) const;
};

/// Translates the settings of the other program's file, and of the command line after it. If a key is given
/// twice, the later value counts. A key without a row of its own is taken if this program has one of its
/// name. `torchtitan_date`: see ArrivalRequest.
Arrival translate(ForeignProgram program, const std::vector<Setting>& settings,
                  const std::string& torchtitan_date = "");

/// Reads the request's file and translates it with the options of its command line. UserError if the file
/// cannot be read, or if its model is none that this program trains.
Arrival translate(const ArrivalRequest& request);

/// The table for people: a line for each key, the counts, and the command that starts the run.
std::string arrival_text(const Arrival& arrival, const ArrivalRequest& request);

/// How the files of arrival_toml() begin.
constexpr const char* kArrivalMark = "# Made by pretrain --from-";

/// The given keys as a configuration file. UserError if they contradict each other.
std::string arrival_toml(const Arrival& arrival, const ArrivalRequest& request);

/// The rest is for arrival.cpp and the tables.

/// A value of the other program, without quotes, and its word here: empty if it changes nothing here, and two
/// words for a row that sets two keys.
struct Word {
    std::string_view theirs, ours = theirs, second = {};
    bool is_any_other = false;  // stands for every value that is not listed before it, which is the same here
};
constexpr Word kAnyOther{.theirs = "", .is_any_other = true};

/// What becomes of a key at the values that the rule lists. At other values the key is missing, and a rule
/// without values holds at all of them.
struct Rule {
    enum class Use {
        ToKey,       // `ours` takes the value
        ToFolder,    // `ours` takes the folder of a path that is a file's, or the path
        ToQuotient,  // `ours` takes the value divided by that of our key `second`
        ToModel,     // `ours`, a key of a config.json, takes the value; empty: the value must be given
        InWords,     // equivalent: the sentence says how to get the same
        Nothing      // harmless
    };
    Use use;
    std::vector<Word> values;
    Rule(Use how, auto... words) : use(how), values{Word{words}...} {}

    bool sets_a_key() const { return use <= Use::ToQuotient; }
    /// The word here of their value, which `theirs` must outlive: none if the rule does not hold at it.
    std::optional<Word> word_of(std::string_view theirs) const;
};

/// A row: one key of the other program. Names that end with a dot stand for all keys that begin so.
struct ForeignKey {
    std::string_view key;
    Rule rule;
    std::string_view sentence;
    std::string_view ours = {};    // empty: the key of the same name
    std::string_view second = {};  // for ToKey: the key that takes the second word, or the second of a list
};

/// A condition for a key to have its effect, which depends on the other keys. While it is not met, nothing is
/// set, and the key has this fate. Keys with needs are translated after the others, in the order of these
/// rows. A section, with a final dot, stands for the keys of this program in it.
struct Need {
    enum class Place { Anywhere, File };  // File: the same key on the command line is that of this program
    std::string_view key;
    bool (*is_met)(const JobConfig& config, std::string_view value);  // `value` as the tables spell it
    Fate fate;
    std::string_view sentence;  // empty: that of the key's row, and no need if the program has no such row
    Place place = Place::Anywhere;
};

/// An older name of a key, or with a final dot of a section.
struct FormerName {
    std::string_view before, now;
};

/// A habit or a default: the other program has it without a key, and this one only if `ours` has `value`, a
/// scalar of YAML, divided by the value of our key `divisor` if there is one. Without a value it is missing
/// unless a key of theirs sets `ours`; without `ours` the sentence is for people. If the value is greater
/// than the value of our key `max`, our default stays.
struct Implied {
    std::string_view what, ours, value, sentence, max = {}, divisor = {};
};

struct ForeignTable {
    std::string_view name;           // "TorchTitan"
    std::string_view option;         // "from-torchtitan"
    std::string_view model_section;  // begins the keys of a model's sizes
    std::span<const ForeignKey> keys;
    std::span<const FormerName> former_names;
    std::span<const Implied> implied;
    std::span<const Need> needs;
};
const ForeignTable& torchtitan_table();
const ForeignTable& litgpt_table();
const ForeignTable& table_of(ForeignProgram program);

inline constexpr const char* kUnsaidCasts =
    "this JSON does not say whether products cast to float8: give the text of torchtitan.config.manager, or "
    "set model.converters";

/// Decides what a file of TorchTitan leaves to its time; `date` says it. Without one, a file that may be old
/// gets a warning. Without filter_fqns, float8 left out the layer `output` from 19 July 2024 (pull request
/// 469) to 7 April 2025 (1063). The frequencies of llama3 are scaled since 8 October 2025 (1839).
void decide_by_date(const std::vector<Setting>& settings, const std::string& date, Arrival& arrival);

/// The keys of a YAML file as far as configurations use it: nested maps of scalars and of flat lists. The key
/// of a nested value is its path with dots. UserError with the line for anything else.
std::vector<Setting> read_yaml(const std::string& text, const std::string& path);

/// The keys of a configuration as TorchTitan prints it (printed_python.cpp). UserError with the line if the
/// text is not one.
std::vector<Setting> read_printed_python(const std::string& text, const std::string& path);
bool is_printed_python(const std::string& text);
/// The same settings under the names of TorchTitan's TOML files.
std::vector<Setting> named_python(std::vector<Setting> printed);

/// A scalar by YAML's rules: null (an unset value), boolean, integer, number or string, quoted or plain.
Value yaml_scalar(std::string_view word);

/// For an unknown key or option that is a word of another program: what it is called here. Empty for others.
/// The words are those of arrival_text.cpp and the keys of TorchTitan.
std::string foreign_answer(std::string_view key);

/// The key and the value here of an option in the words of TorchTitan, if a row of its table spells that
/// value otherwise here, as interleave_1f1b.
std::optional<std::pair<std::string, std::string>> our_option(const std::string& name,
                                                              const std::string& word);

/// The row for a key by its newest name; null if there is none.
const ForeignKey* find_row(const ForeignTable& table, std::string_view key);
std::string newest_name(const ForeignTable& table, std::string key);

/// A word of another program, in lower case with underscores, and the keys here.
struct ForeignWord {
    std::string_view word, answer;
};
std::span<const ForeignWord> foreign_words();

}  // namespace argosy::config
