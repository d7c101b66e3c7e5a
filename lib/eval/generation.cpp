#include "eval/generation.h"

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

/// Continues contexts, as many side by side as the model has sequences. A sequence that is finished makes
/// room for the next context.
class SequencePool {
  public:
    SequencePool(ResidentModel& model, const tokenizer::Tokenizer& tokenizer,
                 std::span<const Tokens> contexts, const GenerateOptions& options)
        : model_(model), tokenizer_(tokenizer), contexts_(contexts), options_(options) {}

    /// Calls take(context, piece of text), and finished(number of new tokens, finished share of all contexts)
    /// at the end of each context.
    template <class Take, class Finished>
    void run(const Take& take, const Finished& finished) {
        for (int slot = 0; slot < model_.num_sequences(); ++slot) start(slot);
        while (!running_.empty()) {
            std::vector<ResidentModel::NewTokens> unseen;
            for (const auto& [slot, one] : running_) unseen.push_back({slot, one.text.unseen()});
            const at::Tensor logits = model_.append(unseen);
            for (int64_t row = 0; row < std::ssize(unseen); ++row) {
                const int slot = unseen[row].sequence;
                Running& one = running_.at(slot);
                take(one.context, one.text.advance(logits_of(logits, row)));
                if (!one.text.finished()) continue;
                finished(one.text.num_tokens(),
                         static_cast<double>(++num_finished_) / static_cast<double>(contexts_.size()));
                running_.erase(slot);
                start(slot);
            }
        }
    }

  private:
    struct Running {
        size_t context;
        Continuation text;
    };

    void start(int slot) {
        if (next_ == contexts_.size()) return;
        model_.clear(slot);
        running_.emplace(slot, Running{next_, Continuation(tokenizer_, contexts_[next_], options_)});
        ++next_;
    }

    ResidentModel& model_;
    const tokenizer::Tokenizer& tokenizer_;
    std::span<const Tokens> contexts_;
    const GenerateOptions& options_;
    std::map<int, Running> running_;  // by the model's sequence
    size_t next_ = 0, num_finished_ = 0;
};

}  // namespace

TaskResult evaluate_generation(ResidentModel& model, const tokenizer::Tokenizer& tokenizer, Work work,
                               const tokenizer::Ids& end_tokens,
                               const std::function<void(double share)>& progress) {
    TaskResult result{.task = std::move(work.task), .num_cut = work.requests.num_cut};
    const GenerateOptions options{.max_new_tokens = result.task.max_new_tokens,
                                  .stop_texts = result.task.reader->stop_texts,
                                  .end_tokens = end_tokens};
    result.texts.resize(work.requests.records.size());
    SequencePool(model, tokenizer, work.requests.records, options)
        .run([&](size_t document, const std::string& piece) { result.texts[document] += piece; },
             [&](int64_t num_tokens, double share) {
                 result.num_predicted += num_tokens;
                 progress(share);
             });
    add_metrics(result);
    return result;
}

}  // namespace argosy::eval
