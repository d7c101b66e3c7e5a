#include "eval/generation_tasks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "eval/text.h"

namespace argosy::eval {
namespace {

constexpr std::string_view kMark = "#### ", kDigits = "0123456789";

/// The length of the longest beginning of the text that has only these characters.
size_t span_of(std::string_view text, std::string_view characters) {
    return std::min(text.find_first_not_of(characters), text.size());
}

/// The number that begins the text, by the expression of last_number(); empty if none does.
std::string_view number_at(std::string_view text) {
    const size_t sign = text.starts_with('-') ? 1 : 0;
    const std::string_view rest = text.substr(sign);
    const size_t size = span_of(rest, "$0123456789.,");
    const bool is_number = size >= 2 || (size == 1 && kDigits.find(rest[0]) != kDigits.npos);
    return is_number ? text.substr(0, sign + size) : "";
}

/// A full stop at the end, or before a line break at the end, as Python's `\.$` matches it.
void remove_last_stop(std::string& text) {
    const size_t end = text.size() - (text.ends_with('\n') ? 1 : 0);
    if (end > 0 && text[end - 1] == '.') text.erase(end - 1, 1);
}

std::string normalized(std::string_view text) {
    std::string kept = replaced(replaced(text, ",", ""), "$", "");
    const size_t mark = kept.rfind(kMark);
    if (mark != kept.npos) kept.erase(0, mark + kMark.size());
    remove_last_stop(kept);
    for (char& c : kept) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return kept;
}

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
                 std::span<const Tokens> contexts, const GenerateOptions& options, int64_t context_tokens)
        : model_(model),
          tokenizer_(tokenizer),
          contexts_(contexts),
          options_(options),
          context_tokens_(context_tokens),
          texts_(contexts.size()) {}

    /// Calls progress(finished share of all contexts) after each step of the model.
    std::vector<GeneratedText> run(const std::function<void(double share)>& progress) {
        while (num_finished_ < contexts_.size()) {
            start_contexts();
            std::vector<ResidentModel::NewTokens> unseen;
            for (const auto& [slot, one] : running_) unseen.push_back({slot, one.text.unseen()});
            const at::Tensor logits = model_.append(unseen);
            for (int64_t row = 0; row < std::ssize(unseen); ++row) {
                const int slot = unseen[row].sequence;
                Running& one = running_.at(slot);
                one.text.advance(logits_of(logits, row));
                if (!one.text.finished()) continue;
                texts_[one.context] = {one.text.text(), one.text.num_tokens()};
                ++num_finished_;
                running_.erase(slot);
            }
            progress(static_cast<double>(num_finished_) / static_cast<double>(contexts_.size()));
        }
        return std::move(texts_);
    }

  private:
    struct Running {
        size_t context;
        Continuation text;
    };

    /// Gives free sequences of the model to the next contexts.
    void start_contexts() {
        int64_t num_tokens = 0;
        for (int slot = 0; slot < model_.num_sequences() && next_ < contexts_.size(); ++slot) {
            if (running_.contains(slot)) continue;
            const int64_t more = std::ssize(contexts_[next_]);
            if (num_tokens > 0 && num_tokens + more > context_tokens_) return;
            num_tokens += more;
            model_.clear(slot);
            running_.emplace(slot, Running{next_, Continuation(tokenizer_, contexts_[next_], options_)});
            ++next_;
        }
    }

    ResidentModel& model_;
    const tokenizer::Tokenizer& tokenizer_;
    std::span<const Tokens> contexts_;
    const GenerateOptions& options_;
    const int64_t context_tokens_;
    std::vector<GeneratedText> texts_;
    std::map<int, Running> running_;  // by the model's sequence
    size_t next_ = 0, num_finished_ = 0;
};

}  // namespace

std::vector<GeneratedText> continue_contexts(ResidentModel& model, const tokenizer::Tokenizer& tokenizer,
                                             std::span<const Tokens> contexts, const GenerateOptions& options,
                                             int64_t context_tokens,
                                             const std::function<void(double share)>& progress) {
    return SequencePool(model, tokenizer, contexts, options, context_tokens).run(progress);
}

TaskResult evaluate_generation(const GenerateTexts& generate, Task task, const Requests& requests,
                               const tokenizer::Ids& end_tokens) {
    TaskResult result{.task = std::move(task), .num_cut = requests.num_cut};
    const GenerateOptions options{.max_new_tokens = result.task.max_new_tokens,
                                  .stop_texts = result.task.reader->stop_texts,
                                  .end_tokens = end_tokens};
    for (GeneratedText& each : generate(requests.records, options)) {
        result.texts.push_back(std::move(each.text));
        result.num_predicted += each.num_tokens;
    }
    add_metrics(result);
    return result;
}

std::string marked_number(std::string_view text) {
    for (size_t at = text.find(kMark); at != text.npos; at = text.find(kMark, at + 1)) {
        const std::string_view rest = text.substr(at + kMark.size());
        const size_t sign = rest.starts_with('-') ? 1 : 0, size = span_of(rest.substr(sign), "0123456789.,");
        if (size > 0) return std::string(rest.substr(0, sign + size));
    }
    return kNoAnswer;
}

std::string last_number(std::string_view text) {
    std::string_view last = kNoAnswer;
    for (size_t at = 0; at < text.size();) {
        const std::string_view number = number_at(text.substr(at));
        if (!number.empty()) last = number;
        at += std::max<size_t>(number.size(), 1);
    }
    return std::string(last);
}

bool is_same_number(std::string_view answer, std::string_view reference) {
    return normalized(answer) == normalized(reference);
}

}  // namespace argosy::eval
