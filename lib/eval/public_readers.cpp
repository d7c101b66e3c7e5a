// The layouts of public data sets, as Hugging Face's data sets have them, with the prompts of
// lm-evaluation-harness 0.4.13: each function has the meaning of one of its YAML files.
#include <fmt/format.h>

#include <algorithm>

#include "eval/readers.h"
#include "eval/text.h"

namespace argosy::eval {
namespace {

/// Removes what WikiHow left in HellaSwag's texts. A bracket and its text end at the first closing one, in
/// the same line.
std::string without_artefacts(std::string_view text) {
    const std::string titled = replaced(stripped(text), " [title]", ". ");
    std::string kept;
    for (size_t at = 0; at < titled.size(); ++at) {
        const size_t end = titled[at] == '[' ? titled.find_first_of("]\n", at) : titled.npos;
        if (end != titled.npos && titled[end] == ']') {
            at = end;
        } else {
            kept.push_back(titled[at]);
        }
    }
    return replaced(kept, "  ", " ");
}

Document read_hellaswag(const Fields& fields, int64_t) {
    std::vector<std::string> choices = fields.texts("endings");
    std::ranges::transform(choices, choices.begin(), without_artefacts);
    const std::string context = fmt::format("{}: {} {}", fields.text("activity_label"), fields.text("ctx_a"),
                                            capitalized(fields.text("ctx_b")));
    return multiple_choice(fields, without_artefacts(context), std::move(choices), fields.integer("label"),
                           "label");
}

std::string question_and_answer(const std::string& question) {
    return fmt::format("Question: {}\nAnswer:", question);
}

Document read_piqa(const Fields& fields, int64_t) {
    return multiple_choice(fields, question_and_answer(fields.text("goal")),
                           {fields.text("sol1"), fields.text("sol2")}, fields.integer("label"), "label");
}

Document read_arc(const Fields& fields, int64_t) {
    const Fields choices = fields.object("choices");
    const std::vector<std::string> labels = choices.texts("label");
    const auto gold = std::ranges::find(labels, fields.text("answerKey"));
    if (gold == labels.end()) fields.refuse("answerKey", "is none of the labels");
    return multiple_choice(fields, question_and_answer(fields.text("question")), choices.texts("text"),
                           gold - labels.begin(), "answerKey");
}

/// The sentence is scored after its blank, once with each option in the blank.
Document read_winogrande(const Fields& fields, int64_t) {
    const std::string& sentence = fields.text("sentence");
    const size_t blank = sentence.find('_');
    if (blank == sentence.npos) fields.refuse("sentence", "has no blank (_)");
    const std::string rest(stripped(std::string_view(sentence).substr(blank + 1)));
    const std::string beginning = sentence.substr(0, blank);
    Document document = multiple_choice(fields, "", {fields.text("option1"), fields.text("option2")},
                                        fields.integer("answer") - 1, "answer");
    document.contexts = {beginning + document.choices[0], beginning + document.choices[1]};
    document.continuations = {' ' + rest, ' ' + rest};
    document.question = document.contexts[document.gold];
    document.answer = rest;
    return document;
}

Document read_lambada(const Fields& fields, int64_t) {
    const std::string& text = fields.text("text");
    const size_t space = text.rfind(' ');
    return space == text.npos ? last_word("", text)
                              : last_word(text.substr(0, space), text.substr(space + 1));
}

Document read_mmlu(const Fields& fields, int64_t) {
    const std::vector<std::string> texts = fields.texts("choices");
    if (texts.size() != 4) fields.refuse("choices", fmt::format("has {} entries, not 4", texts.size()));
    const std::string context =
        fmt::format("{}\nA. {}\nB. {}\nC. {}\nD. {}\nAnswer:", stripped(fields.text("question")), texts[0],
                    texts[1], texts[2], texts[3]);
    Document document =
        multiple_choice(fields, context, {"A", "B", "C", "D"}, fields.integer("answer"), "answer");
    document.description =
        fmt::format("The following are multiple choice questions (with answers) about {}.\n\n",
                    replaced(fields.text("subject"), "_", " "));
    return document;
}

Document read_gsm8k(const Fields& fields, int64_t) {
    const std::string question = question_and_answer(fields.text("question"));
    return {.contexts = {question}, .question = question, .answer = fields.text("answer")};
}

}  // namespace

std::vector<Reader> public_readers() {
    // The harness leaves out the document itself where a data set has neither a test split nor a few-shot
    // split.
    const std::vector<const char*> acc = {"acc"}, acc_and_norm = {"acc", "acc_norm"};
    return {
        {"hellaswag", {}, OutputType::Choices, acc_and_norm, read_hellaswag, FewshotSampler::RandomOther},
        {"piqa", {}, OutputType::Choices, acc_and_norm, read_piqa, FewshotSampler::RandomOther},
        {"arc", {}, OutputType::Choices, acc_and_norm, read_arc},
        {"winogrande", {}, OutputType::Choices, acc, read_winogrande, FewshotSampler::RandomOther},
        {"lambada", {}, OutputType::Continuation, {"perplexity", "acc"}, read_lambada},
        {"mmlu", {}, OutputType::Choices, acc, read_mmlu, FewshotSampler::First},
        {.name = "gsm8k",
         .keys = {},
         .type = OutputType::Generation,
         .metrics = {"exact_match"},
         .read = read_gsm8k,
         .version = 3,
         .stop_texts = {"Question:", "</s>", "<|im_end|>"},
         .filters = {{"strict-match", marked_number}, {"flexible-extract", last_number}}},
    };
}

}  // namespace argosy::eval
