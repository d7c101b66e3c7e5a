#include "config/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/program.h"
#include "base/text.h"
#include "config/schema.h"

namespace argosy::config {
namespace {

/// The accepted values: "integer >= 1", "linear|cosine|sqrt".
std::string accepted(const Field& field) {
    const auto& choices = field.limits.choices;
    if (choices.empty() || field.type == ValueType::Switch)
        return form_of_words(field.type, range_text(field.limits.range));
    return fmt::format("{}", fmt::join(choices, field.type == ValueType::ChoiceList ? "," : "|"));
}

std::string default_text(const Field& field) {
    const Value value = field.get(JobConfig{});
    return is_set(value) ? toml_text(value) : field.when_unset;
}

/// Longer lists of choices have a line of their own.
constexpr std::size_t kMaxAccepted = 32;

struct Widths {
    std::size_t key = 0;
    std::size_t accepted = 0;
};

Widths column_widths() {
    Widths widths;
    for (const Section& section : schema()) {
        for (const Field& field : section.fields) {
            widths.key = std::max(widths.key, field.key.size());
            const std::size_t width = accepted(field).size();
            if (width <= kMaxAccepted) widths.accepted = std::max(widths.accepted, width);
        }
    }
    return widths;
}

constexpr const char* kUsage =
    "usage: pretrain [--config F.toml] [--section.key VALUE ...]    on N ranks: mpirun -n N pretrain ...\n"
    "\n"
    "Examples:\n"
    "  mpirun -n 8 pretrain --config configs/llama3_8b_1node.toml --training.dataset_path tokens.h5\n"
    "                       train, with one key set on the command line\n"
    "  pretrain --plan --config configs/llama3_70b_hsdp.toml --gpus 32 --gpu h200\n"
    "                       say before a run whether it fits and how long a step takes, without a GPU\n"
    "  pretrain --help checkpoint\n"
    "                       show how a run saves and resumes\n"
    "\n";

constexpr const char* kOptions =
    "Options:\n"
    "  --config F.toml      read keys from a file; the command line overrides it\n"
    "  --section.key VALUE  set a key, also as --section.key=VALUE; the last one wins; without VALUE: true\n"
    "  --print-config       print all keys as TOML that can be run again, and stop\n"
    "  --plan               run a step without data on one processor, print the memory, traffic and time "
    "that\n"
    "                       each rank needs, and stop: with 0 if the run fits, with 3 if it does not.\n"
    "                       --gpus N (ranks; default: 1), --gpu a100|h100|h200|b200|l40s|rtx4090|cpu, also\n"
    "                       with a memory, as h100:96 (up to 8 ranks: cpu, which is measured), --gpu-memory "
    "GIB\n"
    "                       (that CUDA reports), --gpus-per-node N (default: 8), --network "
    "25GB/s|200Gb/s|none\n"
    "                       (of a GPU, in one direction), --nvlink 450GB/s|none, --json,\n"
    "                       --links F.json,G.json (the speeds of links: reports of nccl-bench),\n"
    "                       --memory-speed 3.35TB/s, --power W (a GPU's limit, if below its datasheet's),\n"
    "                       --program argosy|torchtitan|megatron (whose share of the speed that a GPU "
    "sustains\n"
    "                       products reach: configs/scaling/), --product-share S (of the peak, in place of "
    "it)\n"
    "  --search             plan other meshes, microbatches, recomputation, schedules and overlap of tensor\n"
    "                       parallelism for the same model and batch (powers of two; a context axis from\n"
    "                       32768 tokens on; schedules where stages wait for 4 % of a step or more), print the\n"
    "                       best that fit and the keys to set, and apart from them\n"
    "                       bfloat16 in place of the given types and products in float8 if a step then fits "
    "or\n"
    "                       is faster, and stop; options as --plan\n"
    "  --from-torchtitan F.toml, --from-litgpt F.yaml\n"
    "                       translate another program's configuration, with its keys on the command line,\n"
    "                       print what becomes of each key, write the TOML, and stop: with 0 if nothing is\n"
    "                       missing here, else with 3. --output G.toml (default: F.argosy.toml);\n"
    "                       --torchtitan-date YYYY-MM-DD: when the file's TorchTitan was current\n"
    "  --bash-completion    print a script that completes options in bash, and stop: put\n"
    "                       source <(pretrain --bash-completion) into ~/.bashrc\n"
    "  --version            print version and commit, and stop\n"
    "  --help [GROUP]       print this, or the keys of a group with accepted values, defaults and meanings,\n"
    "                       and stop; --help KEY prints one key, --help all prints all\n"
    "\n";

constexpr std::size_t kMaxColumns = 110;

/// Every section with its meaning and the names of its keys.
std::string groups_text() {
    std::string text = "Groups of keys:\n";
    for (const Section& section : schema()) {
        text += fmt::format("  {}  {}\n", section.name, section.meaning);
        std::string line;
        for (const Field& field : section.fields) {
            if (7 + line.size() + field.name.size() > kMaxColumns)
                text += fmt::format("      {}\n", std::exchange(line, ""));
            line += (line.empty() ? "" : " ") + field.name;
        }
        text += fmt::format("      {}\n", line);
    }
    return text;
}

/// A key with accepted values, default and meaning.
std::string field_text(const Field& field, const Widths& widths) {
    const std::string values = accepted(field);
    const bool is_long = values.size() > kMaxAccepted;
    std::string text = fmt::format("  --{:<{}}  {:<{}}  {}\n", field.key, widths.key,
                                   is_long ? "one of these" : values, widths.accepted, default_text(field));
    if (is_long) text += fmt::format("      {}\n", values);
    return text + fmt::format("      {}\n", field.meaning);
}

using Printed = std::vector<std::pair<std::string, std::string>>;  // key and value, in order

/// Parses "steps = 4" and "# total_steps is unset: the run's steps"; a value never spans lines.
std::pair<std::string, std::string> key_and_value(const std::string& line) {
    constexpr const char* kUnset = " is unset";
    if (const size_t equals = line.find(" = "); !line.starts_with("# ") && equals != std::string::npos) {
        return {line.substr(0, equals), line.substr(equals + 3)};
    }
    if (const size_t unset = line.find(kUnset); line.starts_with("# ") && unset != std::string::npos) {
        return {line.substr(2, unset - 2), "unset"};
    }
    return {};
}

Printed printed(const std::string& toml) {
    Printed values;
    std::string section;
    std::istringstream lines(toml);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("[") && line.ends_with("]")) section = line.substr(1, line.size() - 2);
        const auto [key, value] = key_and_value(line);
        if (!key.empty()) values.emplace_back(section + "." + key, value);
    }
    return values;
}

std::string value_in(const Printed& values, const std::string& key) {
    const auto found = std::ranges::find(values, key, &Printed::value_type::first);
    return found == values.end() ? "unknown" : found->second;
}

}  // namespace

std::string print_toml(const JobConfig& config) {
    std::string text;
    for (const Section& section : schema()) {
        text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
        for (const Field& field : section.fields) {
            const Value value = field.get(config);
            text += is_set(value) ? fmt::format("{} = {}\n", field.name, toml_text(value))
                                  : fmt::format("# {} is unset: {}\n", field.name, field.when_unset);
        }
    }
    return text;
}

std::string print_config(const JobConfig& config) {
    return fmt::format("# pretrain {}\n{}", version(), print_toml(config));
}

std::string help_text(const std::string& topic) {
    if (topic.empty()) return std::string(kUsage) + kOptions + groups_text();
    const bool all = topic == "all";
    const Widths widths = column_widths();
    std::string keys_text;
    for (const Section& section : schema()) {
        const bool whole = all || section.name == topic || section.name.starts_with(topic + ".");
        std::string fields;
        for (const Field& field : section.fields) {
            if (whole || field.key == topic) fields += field_text(field, widths);
        }
        if (fields.empty()) continue;
        keys_text += fmt::format("{}[{}] {}\n", keys_text.empty() ? "" : "\n", section.name, section.meaning);
        keys_text += fields;
    }
    if (all)
        return std::string(kUsage) + kOptions + "Keys, with accepted values and default:\n\n" + keys_text;
    if (!keys_text.empty()) return keys_text;
    std::vector<std::string> topics = section_names();
    const std::vector<std::string> all_keys = keys();
    topics.insert(topics.end(), all_keys.begin(), all_keys.end());
    const std::string meant = nearest(topic, topics);
    throw UserError("--help {}: no group and no key has this name; {}", topic,
                    meant.empty() ? fmt::format("the groups are {}", fmt::join(section_names(), ", "))
                                  : "did you mean " + meant + "?");
}

std::vector<CompletedOption> completed_keys() {
    std::vector<CompletedOption> options;
    for (const Section& section : schema()) {
        for (const Field& field : section.fields) {
            std::vector<std::string> values = field.limits.choices;
            if (field.type == ValueType::Boolean) values = {"true", "false"};
            if (field.type == ValueType::Switch) values = {"true", "false", "auto"};
            options.push_back({{"--" + field.key}, std::move(values)});
        }
    }
    return options;
}

std::vector<CompletedOption> completed_options() {
    std::vector<CompletedOption> options;
    for (const std::string& name : option_names()) {
        auto& [names, values] = options.emplace_back(CompletedOption{{"--" + name}});
        if (name == "help") values = section_names();
    }
    for (CompletedOption& key : completed_keys()) options.push_back(std::move(key));
    return options;
}

std::string answer(const CommandLine& line) {
    switch (line.command) {
        case Command::Help:
            return help_text(line.help_topic);
        case Command::Version:
            return fmt::format("pretrain {}\n", version());
        case Command::Completion:
            return bash_completion("pretrain", {{.options = completed_options()}});
        default:
            return print_config(line.config);
    }
}

std::vector<std::string> differences(const std::string& then, const std::string& now) {
    const Printed values_then = printed(then);
    Printed values_now = printed(now);
    for (const auto& [key, value] : values_then) {
        if (value_in(values_now, key) == "unknown" && !is_former_setting(key, value))
            values_now.emplace_back(key, "unknown");
    }
    std::vector<std::string> lines;
    for (const auto& [key, value] : values_now) {
        const std::string before = value_in(values_then, key);
        if (before != value) lines.push_back(fmt::format("{}: {} then, {} now", key, before, value));
    }
    return lines;
}

}  // namespace argosy::config
