#include "eval/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/program.h"
#include "base/strict_json.h"
#include "base/text.h"

namespace argosy::eval {
namespace {

using nlohmann::ordered_json;

constexpr const char* kNotAvailable = "N/A";

const char* output_type(OutputType type) {
    switch (type) {
        case OutputType::TokenIds:
        case OutputType::Rolling:
            return "loglikelihood_rolling";
        case OutputType::Continuation:
            return "loglikelihood";
        case OutputType::Choices:
            return "multiple_choice";
        case OutputType::Generation:
            return "generate_until";
    }
    ARGOSY_CHECK(false, "output type {}", static_cast<int>(type));
}

/// Returns the commit that version() names, as in "0.1.0 (1a2b3c4d5e6f)"; empty if version() names none.
std::string commit() {
    const std::string_view text = version();
    const size_t begin = text.find('('), end = text.find(')');
    return begin == text.npos ? "" : std::string(text.substr(begin + 1, end - begin - 1));
}

ordered_json error_of(const MetricValue& found) {
    return found.standard_error ? ordered_json(*found.standard_error) : ordered_json(kNotAvailable);
}

ordered_json metrics_of(const TaskResult& result) {
    ordered_json values = {{"alias", result.task.file.name}};
    for (const MetricValue& found : result.metrics) {
        values[fmt::format("{},{}", found.metric->name, found.filter)] = found.value;
        values[fmt::format("{}_stderr,{}", found.metric->name, found.filter)] = error_of(found);
    }
    return values;
}

ordered_json metric_list(const TaskResult& result) {
    ordered_json metrics = ordered_json::array();
    for (const char* name : result.task.reader->metrics) {
        const bool higher = find_metric(name, result.task.type()).higher_is_better;
        metrics.push_back({{"metric", name}, {"higher_is_better", higher}});
    }
    return metrics;
}

ordered_json config_of(const TaskResult& result) {
    const Task& task = result.task;
    ordered_json config = {{"task", task.file.name},
                           {"dataset_path", task.file.path.string()},
                           {"reader", task.reader->name},
                           {"output_type", output_type(task.type())},
                           {"num_fewshot", task.num_fewshot},
                           {"metric_list", metric_list(result)},
                           {"metadata", {{"version", task.reader->version}}}};
    if (task.type() == OutputType::Generation) {
        config["generation_kwargs"] = generation_arguments(*task.reader);
        config["generation_kwargs"]["max_gen_toks"] = task.max_new_tokens;
    }
    return config;
}

ordered_json directions(const TaskResult& result) {
    ordered_json directions;
    for (const MetricValue& found : result.metrics) {
        directions[found.metric->name] = found.metric->higher_is_better;
    }
    return directions;
}

/// null for 0, which stands for "not given".
ordered_json given(int64_t number) { return number > 0 ? ordered_json(number) : ordered_json(nullptr); }

ordered_json run_config(const Evaluation& evaluation) {
    return {{"model", "argosy"},
            {"model_args",
             {{"path", evaluation.model},
              {"dtype", evaluation.dtype},
              {"tokenizer",
               evaluation.tokenizer.empty() ? ordered_json(nullptr) : ordered_json(evaluation.tokenizer)},
              {"max_length", given(evaluation.max_length)}}},
            {"model_num_parameters", evaluation.num_parameters},
            {"model_dtype", evaluation.dtype},
            {"batch_size", given(evaluation.batch_size)},
            {"batch_tokens", evaluation.batch_tokens},
            {"device", evaluation.device},
            {"limit", given(evaluation.limit)},
            {"random_seed", nullptr},  // the harness seeds what a task may draw from; no task here does
            {"fewshot_seed", kFewshotSeed}};
}

struct Column {
    std::string_view title;
    bool right_aligned;
};
constexpr std::array<Column, 9> kColumns = {{{"Tasks", false},
                                             {"Version", true},
                                             {"Filter", false},
                                             {"n-shot", true},
                                             {"Metric", false},
                                             {"", false},
                                             {"Value", true},
                                             {"", false},
                                             {"Stderr", true}}};
using Row = std::array<std::string, kColumns.size()>;
using Widths = std::array<size_t, kColumns.size()>;

std::string line(const Row& cells, const Widths& widths) {
    std::string text = "|";
    for (size_t i = 0; i < cells.size(); ++i) {
        text += kColumns[i].right_aligned ? fmt::format("{:>{}}|", cells[i], widths[i])
                                          : fmt::format("{:<{}}|", cells[i], widths[i]);
    }
    return text + '\n';
}

Row row_of(const TaskResult& result, const MetricValue& found) {
    constexpr const char *kUp = "\u2191", *kDown = "\u2193", *kPlusMinus = "\u00b1";
    const bool higher = found.metric->higher_is_better;
    return {result.task.file.name,
            fmt::format("{}", result.task.reader->version),
            found.filter,
            std::to_string(result.task.num_fewshot),
            found.metric->name,
            higher ? kUp : kDown,
            score_text(found.value),
            kPlusMinus,
            found.standard_error ? score_text(*found.standard_error) : kNotAvailable};
}

}  // namespace

std::string results_json(const Evaluation& evaluation) {
    ordered_json out = {{"format", kResultsMark}};
    for (const TaskResult& result : evaluation.tasks) {
        const std::string& name = result.task.file.name;
        out["results"][name] = metrics_of(result);
        out["group_subtasks"][name] = ordered_json::array();
        out["configs"][name] = config_of(result);
        out["versions"][name] = result.task.reader->version;
        out["n-shot"][name] = result.task.num_fewshot;
        out["higher_is_better"][name] = directions(result);
        out["n-samples"][name] = {{"original", result.task.num_records},
                                  {"effective", result.task.documents.size()}};
        out["n-short"][name] = result.task.num_short;
        out["n-cut"][name] = result.num_cut;
        out["n-tokens"][name] = result.num_predicted;
    }
    out["config"] = run_config(evaluation);
    out["git_hash"] = commit();
    out["date"] = evaluation.started;
    out["task_hashes"] = ordered_json::object();
    out["model_source"] = "argosy";
    out["model_name"] = evaluation.model;
    // The harness writes the time as a string.
    out["total_evaluation_time_seconds"] = std::to_string(evaluation.seconds);
    return json_text(out, 2) + '\n';
}

std::string results_table(const Evaluation& evaluation) {
    std::vector<Row> rows;
    for (const TaskResult& result : evaluation.tasks) {
        for (const MetricValue& found : result.metrics) rows.push_back(row_of(result, found));
    }
    Widths widths;
    for (size_t i = 0; i < kColumns.size(); ++i) {
        widths[i] = std::max<size_t>(kColumns[i].title.size(), 1);
        if (kColumns[i].title.empty()) continue;  // one character of several bytes
        for (const Row& row : rows) widths[i] = std::max(widths[i], row[i].size());
    }
    Row titles, rules;
    for (size_t i = 0; i < kColumns.size(); ++i) {
        titles[i] = kColumns[i].title;
        rules[i] = std::string(widths[i] - 1, '-') + (kColumns[i].right_aligned ? ':' : '-');
    }
    std::string table = line(titles, widths) + line(rules, widths);
    for (const Row& row : rows) table += line(row, widths);
    return table;
}

}  // namespace argosy::eval
