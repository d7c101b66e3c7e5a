#include "eval/generation.h"

#include <utility>

#include "base/error.h"

namespace argosy::eval {
namespace {

/// The metrics of the texts, for each filter.
void add_metrics(TaskResult& result) {
    const Reader& reader = *result.task.reader;
    for (const AnswerFilter& filter : reader.filters) {
        for (const char* name : reader.metrics) {
            std::vector<Term>& terms = result.terms.emplace_back();
            for (size_t i = 0; i < result.texts.size(); ++i) {
                const std::string answer = filter.apply(result.texts[i]);
                terms.push_back({is_same_number(answer, result.task.documents[i].answer) ? 1.0 : 0.0});
            }
            MetricValue& found =
                result.metrics.emplace_back(aggregate(find_metric(name, OutputType::Generation), terms));
            found.filter = filter.name;
        }
    }
}

}  // namespace

TaskResult evaluate_generation(ResidentModel& model, const tokenizer::Tokenizer& tokenizer, Work work,
                               const tokenizer::Ids& end_tokens,
                               const std::function<void(double share)>& progress) {
    TaskResult result{.task = std::move(work.task), .num_cut = work.requests.num_cut};
    const GenerateOptions options{.max_new_tokens = result.task.max_new_tokens,
                                  .stop_texts = result.task.reader->stop_texts,
                                  .end_tokens = end_tokens};
    const std::vector<Tokens>& contexts = work.requests.records;
    for (const Tokens& context : contexts) {
        std::string& text = result.texts.emplace_back();
        result.num_predicted +=
            generate(model, tokenizer, context, options, [&](const std::string& piece) { text += piece; });
        progress(static_cast<double>(result.texts.size()) / static_cast<double>(contexts.size()));
    }
    add_metrics(result);
    return result;
}

}  // namespace argosy::eval
