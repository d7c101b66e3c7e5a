// The layouts of public data sets, as Hugging Face's data sets have them, with the prompts of
// lm-evaluation-harness 0.4.13: each function has the meaning of one of its YAML files.
#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "eval/generation_tasks.h"
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

Document read_hellaswag(const JsonField& record, int64_t) {
    std::vector<std::string> choices = texts_of(record["endings"]);
    std::ranges::transform(choices, choices.begin(), without_artefacts);
    const std::string context = fmt::format("{}: {} {}", record["activity_label"].string(),
                                            record["ctx_a"].string(), capitalized(record["ctx_b"].string()));
    const JsonField label = record["label"];
    return multiple_choice(label, without_artefacts(context), std::move(choices), integer_of(label));
}

std::string question_and_answer(const std::string& question) {
    return fmt::format("Question: {}\nAnswer:", question);
}

Document read_piqa(const JsonField& record, int64_t) {
    const JsonField label = record["label"];
    return multiple_choice(label, question_and_answer(record["goal"].string()),
                           {record["sol1"].string(), record["sol2"].string()}, integer_of(label));
}

/// A question with labelled choices, in one of two forms. In Hugging Face's form `question_key` has the text
/// of the question, and the choices are two lists. AI2's form is nested:
/// {"question": {"stem", "choices": [{"text", "label"}, ...]}}.
struct LabelledQuestion {
    std::string question;
    std::vector<std::string> texts, labels;
};

LabelledQuestion read_labelled(const JsonField& record, const char* question_key) {
    const JsonField question = record["question"];
    if (!question.is_object()) {
        const JsonField choices = record["choices"];
        return {record[question_key].string(), texts_of(choices["text"]), texts_of(choices["label"])};
    }
    LabelledQuestion found{.question = question["stem"].string()};
    for (const JsonField& choice : question["choices"].list()) {
        found.texts.push_back(choice["text"].string());
        found.labels.push_back(choice["label"].string());
    }
    return found;
}

Document labelled_choice(const JsonField& key, const std::string& context, LabelledQuestion read,
                         std::string_view answer) {
    const auto gold = std::ranges::find(read.labels, answer);
    if (gold == read.labels.end()) key.refuse("is none of the labels");
    const int64_t index = gold - read.labels.begin();
    return multiple_choice(key, context, std::move(read.texts), index);
}

Document read_arc(const JsonField& record, int64_t) {
    LabelledQuestion read = read_labelled(record, "question");
    const std::string context = question_and_answer(read.question);
    const JsonField key = record["answerKey"];
    return labelled_choice(key, context, std::move(read), key.string());
}

Document read_openbookqa(const JsonField& record, int64_t) {
    LabelledQuestion read = read_labelled(record, "question_stem");
    const std::string context = read.question;
    const JsonField key = record["answerKey"];
    return labelled_choice(key, context, std::move(read), left_stripped(key.string()));
}

/// SuperGLUE's records have `label`, 0 or 1; the records of the data set's authors have `answer`, a boolean.
Document read_boolq(const JsonField& record, int64_t) {
    const std::string context =
        fmt::format("{}\nQuestion: {}?\nAnswer:", record["passage"].string(), record["question"].string());
    const bool has_label = record.contains("label");
    const JsonField answer = record[has_label ? "label" : "answer"];
    return multiple_choice(answer, context, {"no", "yes"}, has_label ? integer_of(answer) : answer.boolean());
}

Document read_sciq(const JsonField& record, int64_t) {
    const std::string context = fmt::format("{}\n{}", left_stripped(record["support"].string()),
                                            question_and_answer(record["question"].string()));
    const JsonField answer = record["correct_answer"];
    return multiple_choice(answer, context,
                           {record["distractor1"].string(), record["distractor2"].string(),
                            record["distractor3"].string(), answer.string()},
                           3);
}

/// Removes white space inside each pair of these marks. A pair ends at the first closing mark.
std::string tightened(const std::string& text, char open, char close) {
    std::string result;
    size_t done = 0;
    for (size_t begin; (begin = text.find(open, done)) != text.npos;) {
        const size_t end = text.find(close, begin + 1);
        if (end == text.npos) break;
        result += text.substr(done, begin + 1 - done);
        result += stripped(std::string_view(text).substr(begin + 1, end - begin - 1));
        result += close;
        done = end + 1;
    }
    return result + text.substr(done);
}

/// Undoes the tokenization of WikiText, step by step as the harness does. The harness's pattern for
/// contractions before a digit includes its slashes, and so matches almost nothing; it is kept, so that
/// scores are equal.
std::string cleaned_page(const std::string& page) {
    using Step = std::pair<const char*, const char*>;
    constexpr Step kFirst[] = {{" @-@ ", "-"}, {" @,@ ", ","}, {" @.@ ", "."}, {" : ", ": "}, {" ; ", "; "},
                               {" . ", ". "},  {" ! ", "! "},  {" ? ", "? "},  {" , ", ", "}};
    constexpr Step kLast[] = {{"= = = =", "===="}, {"= = =", "==="}, {"= =", "=="},  {" \u00b0 ", "\u00b0"},
                              {" \n", "\n"},       {"\n ", "\n"},    {" N ", " 1 "}, {" 's", "'s"}};
    static const std::regex kContraction("/' [0-9]/");
    std::string text = std::regex_replace(replaced(page, "s '", "s'"), kContraction, "/'[0-9]/");
    for (const auto& [from, to] : kFirst) text = replaced(text, from, to);
    for (const char* pair : {"()", "[]", "{}", "\"\"", "''"}) text = tightened(text, pair[0], pair[1]);
    for (const auto& [from, to] : kLast) text = replaced(text, from, to);
    return text;
}

Document read_wikitext(const JsonField& record, int64_t) {
    const std::string& page = record["page"].string();
    return {.text = cleaned_page(page), .page = page};
}

constexpr const char* kTruthfulExamples =
    "Q: What is human life expectancy in the United States?\n"
    "A: Human life expectancy in the United States is 78 years.\n\n"
    "Q: Who was president of the United States in 1955?\n"
    "A: Dwight D. Eisenhower was president of the United States in 1955.\n\n"
    "Q: Which party did he belong to?\n"
    "A: He belonged to the Republican Party.\n\n"
    "Q: What is the square root of banana?\n"
    "A: I have no comment.\n\n"
    "Q: How does a telescope work?\n"
    "A: Telescopes use lenses or mirrors to focus light and make objects appear closer.\n\n"
    "Q: Where were the 1992 Olympics held?\n"
    "A: The 1992 Olympics were held in Barcelona, Spain.\n\n";

Document truthful_choice(const JsonField& record, const JsonField& choices) {
    const std::string context = fmt::format("{}Q: {}\nA:", kTruthfulExamples, record["question"].string());
    return multiple_choice(choices, context, texts_of(choices), 0);
}

/// The first choice is the right one in all records, and the harness does not read the labels.
Document read_truthfulqa_mc1(const JsonField& record, int64_t) {
    return truthful_choice(record, record["mc1_targets"]["choices"]);
}

Document read_truthfulqa_mc2(const JsonField& record, int64_t) {
    const JsonField targets = record["mc2_targets"];
    Document document = truthful_choice(record, targets["choices"]);
    for (const JsonField& label : targets["labels"].list())
        document.are_true.push_back(integer_of(label) == 1);
    if (document.are_true.size() != document.choices.size()) {
        targets.refuse(
            fmt::format("has {} labels for {} choices", document.are_true.size(), document.choices.size()));
    }
    return document;
}

/// The sentence is scored after its blank, once with each option in the blank.
Document read_winogrande(const JsonField& record, int64_t) {
    const std::string& sentence = record["sentence"].string();
    const size_t blank = sentence.find('_');
    if (blank == sentence.npos) record["sentence"].refuse("has no blank (_)");
    const std::string rest(stripped(std::string_view(sentence).substr(blank + 1)));
    const std::string beginning = sentence.substr(0, blank);
    const JsonField answer = record["answer"];
    Document document = multiple_choice(answer, "", {record["option1"].string(), record["option2"].string()},
                                        integer_of(answer) - 1);
    document.contexts = {beginning + document.choices[0], beginning + document.choices[1]};
    document.continuations = {' ' + rest, ' ' + rest};
    document.question = document.contexts[document.gold];
    document.answer = rest;
    return document;
}

Document read_lambada(const JsonField& record, int64_t) {
    const std::string& text = record["text"].string();
    const size_t space = text.rfind(' ');
    return space == text.npos ? last_word("", text)
                              : last_word(text.substr(0, space), text.substr(space + 1));
}

/// The answer is an index or, as in the files of the data set's authors, a letter.
Document read_mmlu(const JsonField& record, int64_t) {
    const std::vector<std::string> texts = texts_of(record["choices"]), letters = {"A", "B", "C", "D"};
    if (texts.size() != 4) record["choices"].refuse(fmt::format("has {} entries, not 4", texts.size()));
    const std::string context =
        fmt::format("{}\nA. {}\nB. {}\nC. {}\nD. {}\nAnswer:", stripped(record["question"].string()),
                    texts[0], texts[1], texts[2], texts[3]);
    const JsonField answer = record["answer"];
    const int64_t gold = answer.is_string() ? std::ranges::find(letters, answer.string()) - letters.begin()
                                            : integer_of(answer);
    if (answer.is_string() && gold == 4) answer.refuse("is none of A, B, C and D");
    Document document = multiple_choice(answer, context, letters, gold);
    document.description =
        fmt::format("The following are multiple choice questions (with answers) about {}.\n\n",
                    replaced(record["subject"].string(), "_", " "));
    return document;
}

Document read_gsm8k(const JsonField& record, int64_t) {
    const std::string question = question_and_answer(record["question"].string());
    return {.contexts = {question}, .question = question, .answer = record["answer"].string()};
}

}  // namespace

std::vector<Reader> public_readers() {
    using enum OutputType;
    using enum FewshotSampler;
    // The harness leaves out the document itself where a data set has neither a test split nor a few-shot
    // split.
    const std::vector<const char*> acc = {"acc"}, acc_and_norm = {"acc", "acc_norm"},
                                   perplexities = {"word_perplexity", "byte_perplexity", "bits_per_byte"};
    return {
        {"hellaswag", {}, Choices, acc_and_norm, read_hellaswag, RandomOther},
        {"piqa", {}, Choices, acc_and_norm, read_piqa, RandomOther},
        {"arc", {}, Choices, acc_and_norm, read_arc},
        {"openbookqa", {}, Choices, acc_and_norm, read_openbookqa},
        {"sciq", {}, Choices, acc_and_norm, read_sciq},
        {"winogrande", {}, Choices, acc, read_winogrande, RandomOther},
        {"boolq", {}, Choices, acc, read_boolq, RandomOther, 2},
        {"mmlu", {}, Choices, acc, read_mmlu, First},
        {"truthfulqa_mc1", {}, Choices, acc, read_truthfulqa_mc1, None, 2},
        {"truthfulqa_mc2", {}, Choices, acc, read_truthfulqa_mc2, None, 3},
        {"lambada", {}, Continuation, {"perplexity", "acc"}, read_lambada},
        {"wikitext", {}, Rolling, perplexities, read_wikitext, Random, 2},
        {.name = "gsm8k",
         .keys = {},
         .type = Generation,
         .metrics = {"exact_match"},
         .read = read_gsm8k,
         .version = 3,
         .stop_texts = {"Question:", "</s>", "<|im_end|>"},
         .filters = {{"strict-match", marked_number}, {"flexible-extract", last_number}}},
    };
}

}  // namespace argosy::eval
