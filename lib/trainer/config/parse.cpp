#include "config/parse.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/program.h"
#include "base/strict_json.h"
#include "config/arrival.h"
#include "config/job_config.h"
#include "config/schema.h"

namespace argosy::config {
namespace {

const std::map<std::string, Command> kCommands = {{"help", Command::Help},
                                                  {"version", Command::Version},
                                                  {"bash-completion", Command::Completion},
                                                  {"print-config", Command::PrintConfig},
                                                  {"plan", Command::Plan},
                                                  {"search", Command::Search}};
const std::vector<std::string> kPlanOptions = {"gpus",    "gpu",           "gpu-memory",   "gpus-per-node",
                                               "network", "nvlink",        "memory-speed", "power",
                                               "program", "product-share", "links",        "json"};
const std::map<std::string, ForeignProgram> kForeignPrograms = {
    {"from-torchtitan", ForeignProgram::TorchTitan}, {"from-litgpt", ForeignProgram::LitGpt}};

/// One `--name`, `--name=value` or `--name value`.
struct Option {
    std::string name;
    std::optional<std::string> value;
};

bool is_option(std::string_view word) { return word.starts_with("--"); }

/// Takes the option at `words[next]` and advances `next`. The following word is taken too if it can only be
/// the option's value.
Option take_option(const std::vector<std::string>& words, std::size_t& next) {
    const std::string& word = words[next++];
    if (!is_option(word)) {
        throw UserError("unexpected '{}' on the command line; {}", word,
                        word.ends_with(".toml") ? "a configuration is --config " + word
                                                : "options are --config F.toml and --section.key value");
    }
    const std::size_t equals = word.find('=');
    Option option{word.substr(2, equals == std::string::npos ? equals : equals - 2), std::nullopt};
    if (equals != std::string::npos) {
        option.value = word.substr(equals + 1);
    } else if (!kCommands.contains(option.name) && option.name != "json" && next < words.size() &&
               !is_option(words[next])) {
        option.value = words[next++];
    }
    return option;
}

const std::string& value_of(const Option& option) {
    if (!option.value) {
        throw UserError("--{} needs a value (write --{}=VALUE if the value begins with --)", option.name,
                        option.name);
    }
    return *option.value;
}

[[noreturn]] void refuse_unknown(const std::string& name) {
    throw UserError("unknown option --{}; {}", name, what_is_meant(name, option_names(), "--"));
}

/// A checkpoint and the files of a run hold the configuration as JSON.
void check_utf8(const Option& option) {
    if (option.value && !is_utf8(*option.value)) {
        throw UserError("{} on the command line must be text in UTF-8, but is {}", option.name,
                        shown(*option.value));
    }
}

Setting setting_of(const Option& option) {
    const Field* field = find_field(option.name);
    if (!field || field->type == ValueType::Choice) {
        const auto ours = our_option(option.name, option.value.value_or("true"));
        if (ours) return setting_of({ours->first, ours->second});
    }
    if (!field) refuse_unknown(option.name);
    check_utf8(option);
    if (!option.value && (field->type == ValueType::Boolean || field->type == ValueType::Switch))
        return {option.name, true, "true", "on the command line"};
    const std::string& word = value_of(option);
    if (const auto range = exceeded_range(field->type, word); !range.empty()) {
        throw UserError("{} on the command line must be {}, but is '{}'", option.name, range, word);
    }
    return {option.name, value_from_word(field->type, word), "'" + word + "'", "on the command line"};
}

int positive_number(const Option& option) {
    const std::string& word = value_of(option);
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    constexpr int kMax = 1 << 20;
    if (error == std::errc() && end == word.data() + word.size() && number > 0 && number <= kMax)
        return number;
    throw UserError("--{} must be an integer in [1, {}], but is '{}'", option.name, kMax, word);
}

std::string lower(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

double number_up_to(double max, const Option& option) {
    const std::string text = value_of(option);
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || !(number > 0 && number <= max))
        throw UserError("--{} must be above 0 and at most {}, but is '{}'", option.name, max, text);
    return number;
}

/// Sets the option of --plan and --search that `option` is. REQUIRES: it is one.
void apply_plan_option(const Option& option, PlanRequest& plan) {
    if (option.name == "gpus") plan.num_ranks = positive_number(option);
    if (option.name == "gpus-per-node") plan.gpus_per_node = positive_number(option);
    if (option.name == "gpu") plan.device = lower(value_of(option));
    if (option.name == "gpu-memory") plan.gpu_memory_gib = number_up_to(1024, option);
    if (option.name == "network") plan.network = value_of(option);
    if (option.name == "nvlink") plan.nvlink = value_of(option);
    if (option.name == "memory-speed") plan.memory_speed = value_of(option);
    if (option.name == "power") plan.power = number_up_to(2000, option);
    if (option.name == "program") plan.program = value_of(option);
    if (option.name == "product-share") plan.product_share = number_up_to(1, option);
    if (option.name == "links") plan.links = value_of(option);
    if (option.name != "json") return;
    if (option.value) throw UserError("--json takes no value, but got '{}'", *option.value);
    plan.json = true;
}

std::string date_of(const Option& option) {
    std::string date = value_of(option);
    bool is_date = date.size() == 10;
    for (std::size_t i = 0; is_date && i < date.size(); ++i)
        is_date = i == 4 || i == 7 ? date[i] == '-' : date[i] >= '0' && date[i] <= '9';
    if (is_date) return date;
    throw UserError("--{} must be a date such as 2025-01-31, but is '{}'", option.name, date);
}

/// A command line while its words are read.
struct Reading {
    CommandLine line;
    std::optional<std::string> file;
    std::vector<Option> settings;
    std::optional<std::string> plan_option, other;  // other: an option without a meaning for a translation
    bool translates = false;
    Mistakes mistakes;
};

void finish_arrival(Reading& reading) {
    ArrivalRequest& request = reading.line.arrival;
    for (const Option& option : reading.settings) {
        reading.mistakes.in([&] {
            const bool is_key = option.name.find('.') != std::string::npos ||
                                find_row(table_of(request.program), option.name) != nullptr;
            if (!is_key) refuse_unknown(option.name);
            check_utf8(option);
            request.words.insert(request.words.end(), {option.name, option.value.value_or("true")});
        });
    }
    if (reading.other) {
        reading.mistakes.add(
            fmt::format("--{} has no effect beside --from-torchtitan or --from-litgpt; give it to the run",
                        *reading.other));
    }
    if (!request.torchtitan_date.empty() && request.program != ForeignProgram::TorchTitan)
        reading.mistakes.add("--torchtitan-date has no effect beside --from-litgpt; leave it out");
    if (request.output.empty())
        request.output = std::filesystem::path(request.path).stem().string() + ".argosy.toml";
}

/// Takes the option at `words[next]` and advances `next`, also if the option is wrong.
void take_next(const std::vector<std::string>& words, std::size_t& next, Reading& reading) {
    const Option option = take_option(words, next);
    ArrivalRequest& arrival = reading.line.arrival;
    if (const auto command = kCommands.find(option.name); command != kCommands.end()) {
        reading.other = option.name;
        if (option.value) throw UserError("--{} takes no value, but got '{}'", option.name, *option.value);
        reading.line.command = command->second;
    } else if (option.name == "config") {
        if (reading.file)
            throw UserError("--config is given twice, as {} and {}; a run has one file", *reading.file,
                            value_of(option));
        reading.file = value_of(option);
        reading.other = option.name;
    } else if (std::ranges::find(kPlanOptions, option.name) != kPlanOptions.end()) {
        reading.other = reading.plan_option = option.name;
        apply_plan_option(option, reading.line.plan);
    } else if (const auto program = kForeignPrograms.find(option.name); program != kForeignPrograms.end()) {
        if (std::exchange(reading.translates, true)) reading.other = option.name;
        arrival.program = program->second;
        arrival.path = value_of(option);
    } else if (option.name == "output") {
        arrival.output = value_of(option);
    } else if (option.name == "torchtitan-date") {
        arrival.torchtitan_date = date_of(option);
    } else {
        reading.settings.push_back(option);
    }
}

/// Returns the topic of --help: "parallelism" after "--help parallelism". None without --help.
std::optional<std::string> help_topic(const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i].starts_with("--help=")) return words[i].substr(7);
        if (words[i] != "--help" && words[i] != "-h") continue;
        const bool has_topic = i + 1 < words.size() && !words[i + 1].starts_with("-");
        return has_topic ? words[i + 1] : "";
    }
    return std::nullopt;
}

CommandLine parse(const std::vector<std::string>& words) {
    // --help works even if other options are wrong.
    if (const auto topic = help_topic(words)) return {.command = Command::Help, .help_topic = *topic};

    Reading reading;
    CommandLine& result = reading.line;
    for (std::size_t next = 0; next < words.size();) {
        reading.mistakes.in([&] { take_next(words, next, reading); });
    }
    if (reading.translates) {
        result.command = Command::Translate;
        finish_arrival(reading);
        reading.mistakes.throw_any();
        return result;
    }
    const bool reads_nothing = result.command == Command::Version || result.command == Command::Completion;
    if (!reads_nothing) {
        if (!result.arrival.output.empty())
            reading.mistakes.add(
                "--output is an option of --from-torchtitan and --from-litgpt; a run's folder is "
                "--job.dump_folder");
        if (!result.arrival.torchtitan_date.empty())
            reading.mistakes.add(
                "--torchtitan-date is an option of --from-torchtitan; add --from-torchtitan F.toml");
        const bool plans = result.command == Command::Plan || result.command == Command::Search;
        if (reading.plan_option && !plans)
            reading.mistakes.add(
                fmt::format("--{} is an option of --plan; add --plan", *reading.plan_option));
        const auto keep = [&](const Setting& setting) {
            reading.mistakes.in([&] { apply(setting, result.config); });
        };
        if (reading.file) {
            reading.mistakes.in([&] { std::ranges::for_each(read_toml(*reading.file), keep); });
        }
        for (const Option& option : reading.settings) reading.mistakes.in([&] { keep(setting_of(option)); });
    }
    reading.mistakes.throw_any();
    if (!reads_nothing) check_consistency(result.config);
    return result;
}

/// Names the kind of model of a file that is not translated. Empty for a dense language model.
std::string kind_of_other_model(const std::vector<Setting>& settings) {
    const auto contains = [](std::string_view text, std::initializer_list<std::string_view> parts) {
        return std::ranges::any_of(
            parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
    };
    for (const Setting& setting : settings) {
        const std::string& key = setting.key;
        const auto* text = std::get_if<std::string>(&setting.value);
        const auto* number = std::get_if<int64_t>(&setting.value);
        const bool names_model = key == "model.name" || key == "model.flavor" || key == "model_name" ||
                                 key == "model_spec.name" || key == "model_spec.flavor";
        if (text && (names_model || key == "model_config.mlp_class_name")) {
            std::string name = *text;
            std::ranges::transform(name, name.begin(),
                                   [](unsigned char letter) { return std::tolower(letter); });
            std::erase_if(name, [](char letter) { return letter == '-' || letter == '_'; });
            if (contains(name, {"flux", "diffusion"})) return "a diffusion model";
            if (contains(name, {"vlm", "siglip", "llava"})) return "a model of images and texts";
            const bool is_distilled = contains(name, {"distill"});
            if (contains(name, {"moe", "mixtral", "llama4", "gptoss", "kimi", "olmoe", "a3b", "a22b"}) ||
                (contains(name, {"deepseek"}) && !is_distilled))
                return "a mixture of experts";
        }
        if (key.starts_with("model_spec.") && key.ends_with(".rank")) return "a model with LoRA's adapters";
        const bool counts_experts = key.ends_with("n_expert") || key.ends_with("num_experts");
        if ((number && *number > 0 && counts_experts) || key.find(".layers.moe.") != std::string::npos)
            return "a mixture of experts";
    }
    return "";
}

Arrival translated(const ArrivalRequest& request) {
    std::vector<Setting> settings;
    const std::filesystem::path file(request.path);
    if (file.extension() == ".py") {
        const std::string folder = file.parent_path().filename().string();
        throw UserError(
            "{} is Python, which is not run here; give --from-torchtitan the text that `python -m "
            "torchtitan.config.manager --module {} --config NAME` prints without a GPU (NAME: a function of "
            "the file, such as llama3_8b), or the JSON of --debug.save_config_file",
            request.path, folder.empty() ? "llama3" : folder);
    }
    if (request.program == ForeignProgram::TorchTitan) {
        const std::string text =
            file.extension() == ".toml" ? "" : content_of(request.path, "from-torchtitan");
        settings = is_printed_python(text) ? read_printed_python(text, request.path)
                                           : read_any_toml(request.path, "from-torchtitan");
    } else {
        settings = read_yaml(content_of(request.path, "from-litgpt"), request.path);
    }
    if (const std::string kind = kind_of_other_model(settings); !kind.empty()) {
        throw UserError(
            "the model of {} is {}, which is not translated here; nothing is written. configs/README.md "
            "lists the presets, of which mixtral and qwen3_moe have experts",
            request.path, kind);
    }
    for (std::size_t i = 0; i + 1 < request.words.size(); i += 2) {
        const std::string& word = request.words[i + 1];
        const Value value = yaml_scalar(word);
        settings.push_back({request.words[i], value, is_set(value) ? word : "null", "on the command line"});
    }
    return translate(request.program, settings, request.torchtitan_date);
}

/// Returns the result of `call`; the message of a UserError becomes one line.
template <class Call>
auto with_one_line(Call call) {
    try {
        return call();
    } catch (const UserError& error) {
        throw UserError("{}", on_one_line(error.what()));
    }
}

}  // namespace

std::vector<std::string> option_names() {
    std::vector<std::string> names = {"config", "output", "torchtitan-date"};
    for (const auto& [name, command] : kCommands) names.push_back(name);
    names.insert(names.end(), kPlanOptions.begin(), kPlanOptions.end());
    for (const auto& [name, program] : kForeignPrograms) names.push_back(name);
    return names;
}

std::string name_of(Command command) {
    for (const auto& [name, each] : kCommands) {
        if (each == command) return "--" + name;
    }
    return command == Command::Run ? "training" : "--from-torchtitan or --from-litgpt";
}

bool asks_for_text(const std::vector<std::string>& words) {
    if (help_topic(words)) return true;
    bool asks = false;
    for (const std::string& word : words) {
        const auto command = is_option(word) ? kCommands.find(word.substr(2)) : kCommands.end();
        if (command == kCommands.end()) continue;
        asks = command->second != Command::Plan && command->second != Command::Search;  // the last one counts
    }
    return asks;
}

CommandLine parse_command_line(const std::vector<std::string>& words) {
    return with_one_line([&] { return parse(words); });
}

Arrival translate(const ArrivalRequest& request) {
    return with_one_line([&] { return translated(request); });
}

}  // namespace argosy::config
