#include "eval/task_result.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::eval {
namespace {

using nlohmann::ordered_json;

void check_scores(const Document& document, DocumentScores scores) {
    for (const RecordScore& score : scores) {
        if (std::isfinite(score.log_likelihood)) continue;
        throw NotFiniteError(
            "{}: the model's log-likelihood of the record is {}; its weights are not finite, or "
            "too large for --dtype (fp32 is the widest)",
            document.place, score.log_likelihood);
    }
}

/// The harness's form of a term: the value, or (value, weight) of an aggregation with weights.
ordered_json json_of(const Term& term, Aggregation aggregation) {
    if (aggregation == Aggregation::Mean || aggregation == Aggregation::Perplexity) return term.value;
    return {term.value, term.weight};
}

/// The requests, as the harness names them: (context, continuation), (text,), or (context, options) of each
/// request.
ordered_json arguments_of(const Document& document, const Reader& reader) {
    ordered_json arguments = ordered_json::object();
    if (reader.type == OutputType::Rolling) arguments["gen_args_0"] = {{"arg_0", document.text}};
    if (reader.type == OutputType::Generation) {
        arguments["gen_args_0"] = {{"arg_0", document.contexts[0]}, {"arg_1", generation_arguments(reader)}};
    }
    for (size_t i = 0; i < document.continuations.size(); ++i) {
        arguments[fmt::format("gen_args_{}", i)] = {
            {"arg_0", document.contexts[document.contexts.size() == 1 ? 0 : i]},
            {"arg_1", document.continuations[i]}};
    }
    return arguments;
}

std::string target_of(const Document& document, OutputType type) {
    if (type == OutputType::Choices) return std::to_string(document.gold);
    return type == OutputType::Rolling ? document.text : document.answer;
}

/// [log-likelihood, whether greedy] of each request, as texts like the harness's.
ordered_json responses_of(DocumentScores scores, OutputType type) {
    ordered_json responses = ordered_json::array();
    for (const RecordScore& score : scores) {
        const std::string value = fmt::format("{}", score.log_likelihood);
        const bool has_greedy = type == OutputType::Choices || type == OutputType::Continuation;
        const char* greedy = score.num_greedy == score.num_predicted ? "True" : "False";
        responses.push_back(has_greedy ? ordered_json{value, greedy} : ordered_json(value));
    }
    return responses;
}

/// `filter`: null for the tasks without filters.
ordered_json sample_of(const TaskResult& result, size_t i, const AnswerFilter* filter) {
    const OutputType type = result.task.type();
    const Document& document = result.task.documents[i];
    ordered_json responses =
        filter ? ordered_json::array({result.texts[i]}) : responses_of(result.scores[i], type);
    ordered_json lists = ordered_json::array();
    for (const ordered_json& response : responses) lists.push_back(ordered_json::array({response}));
    if (filter) responses[0] = filter->apply(result.texts[i]);
    ordered_json sample = {{"doc_id", i},
                           {"doc", document.record},
                           {"target", target_of(document, type)},
                           {"arguments", arguments_of(document, *result.task.reader)},
                           {"resps", std::move(lists)},
                           {"filtered_resps", std::move(responses)},
                           {"filter", filter ? filter->name : "none"},
                           {"metrics", ordered_json::array()}};
    for (size_t m = 0; m < result.metrics.size(); ++m) {
        const Metric& metric = *result.metrics[m].metric;
        if (result.metrics[m].filter != sample["filter"]) continue;
        sample["metrics"].push_back(metric.name);
        sample[metric.name] = json_of(result.terms[m][i], metric.aggregation);
    }
    return sample;
}

}  // namespace

TaskResult evaluate(const ScoreWindows& score, Task task, const Requests& requests) {
    const std::vector<RecordScore> all = score_distinct(score, requests.records, requests.windows);
    TaskResult result{
        .task = std::move(task), .num_predicted = total(all).num_predicted, .num_cut = requests.num_cut};
    const std::vector<Document>& documents = result.task.documents;
    if (result.num_predicted == 0) throw UserError("{}: all texts are empty", documents[0].place);
    for (size_t i = 0; i < documents.size(); ++i) {
        const DocumentScores scores = requests.of_document(all, i);
        check_scores(documents[i], scores);
        result.scores.emplace_back(scores.begin(), scores.end());
    }
    for (const char* name : result.task.reader->metrics) {
        const Metric& metric = find_metric(name, result.task.type());
        std::vector<Term>& terms = result.terms.emplace_back();
        for (size_t i = 0; i < documents.size(); ++i) {
            terms.push_back(metric.term(documents[i], result.scores[i]));
        }
        result.metrics.push_back(aggregate(metric, terms));
    }
    return result;
}

ordered_json generation_arguments(const Reader& reader) {
    return {{"until", reader.stop_texts}, {"do_sample", false}, {"temperature", 0.0}};
}

std::string samples_jsonl(const TaskResult& result) {
    std::string lines;
    const auto add = [&](const AnswerFilter* filter) {
        for (size_t i = 0; i < result.task.documents.size(); ++i) {
            lines += json_text(sample_of(result, i, filter)) + '\n';
        }
    };
    const std::vector<AnswerFilter>& filters = result.task.reader->filters;
    if (filters.empty()) add(nullptr);
    for (const AnswerFilter& filter : filters) add(&filter);
    return lines;
}

}  // namespace argosy::eval
