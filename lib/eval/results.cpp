#include "eval/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/program.h"

namespace argosy::eval {
namespace {

using nlohmann::ordered_json;

constexpr int kTaskVersion = 1;  // increase it when the meaning of a task's numbers changes
constexpr const char* kNotAvailable = "N/A";

struct Metric {
    const char* name;
    bool higher_is_better;
    double (*value)(const RecordScore& score);
};

double token_accuracy(const RecordScore& score) {
    return static_cast<double>(score.num_greedy) / static_cast<double>(score.num_predicted);
}

constexpr Metric kMetrics[] = {{"token_accuracy", true, token_accuracy},
                               {"token_perplexity", false, token_perplexity}};

/// Returns the commit that version() names, as in "0.1.0 (1a2b3c4d5e6f)"; empty if version() names none.
std::string commit() {
    const std::string_view text = version();
    const size_t begin = text.find('('), end = text.find(')');
    return begin == text.npos ? "" : std::string(text.substr(begin + 1, end - begin - 1));
}

ordered_json metrics_of(const TaskResult& task) {
    ordered_json values = {{"alias", task.name}};
    for (const Metric& metric : kMetrics) {
        values[fmt::format("{},none", metric.name)] = metric.value(task.score);
        values[fmt::format("{}_stderr,none", metric.name)] = kNotAvailable;
    }
    return values;
}

ordered_json config_of(const TaskResult& task) {
    ordered_json metrics = ordered_json::array();
    for (const Metric& metric : kMetrics) {
        metrics.push_back({{"metric", metric.name}, {"higher_is_better", metric.higher_is_better}});
    }
    return {
        {"task", task.name}, {"dataset_path", task.path},         {"output_type", "loglikelihood_rolling"},
        {"num_fewshot", 0},  {"metric_list", std::move(metrics)}, {"metadata", {{"version", kTaskVersion}}}};
}

ordered_json directions() {
    ordered_json directions;
    for (const Metric& metric : kMetrics) directions[metric.name] = metric.higher_is_better;
    return directions;
}

ordered_json run_config(const Evaluation& evaluation) {
    return {{"model", "argosy"},
            {"model_args",
             {{"path", evaluation.model},
              {"dtype", evaluation.dtype},
              {"max_length", evaluation.max_length > 0 ? ordered_json(evaluation.max_length) : nullptr}}},
            {"model_num_parameters", evaluation.num_parameters},
            {"model_dtype", evaluation.dtype},
            {"batch_tokens", evaluation.batch_tokens},
            {"device", evaluation.device},
            {"limit", nullptr},
            {"random_seed", nullptr}};  // the evaluation draws no random numbers
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

Row row_of(const TaskResult& task, const Metric& metric) {
    constexpr const char *kUp = "\u2191", *kDown = "\u2193", *kPlusMinus = "\u00b1";
    return {task.name,
            std::to_string(kTaskVersion),
            "none",
            "0",
            metric.name,
            metric.higher_is_better ? kUp : kDown,
            fmt::format("{:.4f}", metric.value(task.score)),
            kPlusMinus,
            kNotAvailable};
}

}  // namespace

std::string results_json(const Evaluation& evaluation) {
    ordered_json out = {{"format", kResultsMark}};
    for (const TaskResult& task : evaluation.tasks) {
        out["results"][task.name] = metrics_of(task);
        out["group_subtasks"][task.name] = ordered_json::array();
        out["configs"][task.name] = config_of(task);
        out["versions"][task.name] = kTaskVersion;
        out["n-shot"][task.name] = 0;
        out["higher_is_better"][task.name] = directions();
        out["n-samples"][task.name] = {{"original", task.num_records + task.num_short},
                                       {"effective", task.num_records}};
        out["n-short"][task.name] = task.num_short;
        out["n-tokens"][task.name] = task.score.num_predicted;
    }
    out["config"] = run_config(evaluation);
    out["git_hash"] = commit();
    out["date"] = evaluation.started;
    out["task_hashes"] = ordered_json::object();
    out["model_source"] = "argosy";
    out["model_name"] = evaluation.model;
    // The harness writes the time as a string.
    out["total_evaluation_time_seconds"] = std::to_string(evaluation.seconds);
    return out.dump(2) + '\n';
}

std::string results_table(const Evaluation& evaluation) {
    std::vector<Row> rows;
    for (const TaskResult& task : evaluation.tasks) {
        for (const Metric& metric : kMetrics) rows.push_back(row_of(task, metric));
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
