#include "eval/task_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/output.h"
#include "base/strict_json.h"
#include "data/byte_source.h"
#include "data/records.h"
#include "eval/python_random.h"

namespace argosy::eval {
namespace {

constexpr const char* kFewshotDelimiter = "\n\n";

/// A public data set: the name of its reader, and the arguments with which Python's datasets.load_dataset()
/// loads the split that the harness scores.
struct DataSet {
    std::string reader, arguments;
};

/// The data set of a task of the harness, such as arc_easy, or of a reader. None for other names.
std::optional<DataSet> find_data_set(const std::string& task) {
    static const std::map<std::string, DataSet> kDataSets = {
        {"hellaswag", {"hellaswag", R"("Rowan/hellaswag", split="validation")"}},
        {"piqa", {"piqa", R"("baber/piqa", split="validation")"}},
        {"arc", {"arc", R"("allenai/ai2_arc", "ARC-Challenge", split="test")"}},
        {"arc_challenge", {"arc", R"("allenai/ai2_arc", "ARC-Challenge", split="test")"}},
        {"arc_easy", {"arc", R"("allenai/ai2_arc", "ARC-Easy", split="test")"}},
        {"openbookqa", {"openbookqa", R"("allenai/openbookqa", "main", split="test")"}},
        {"sciq", {"sciq", R"("allenai/sciq", split="test")"}},
        {"winogrande", {"winogrande", R"("allenai/winogrande", "winogrande_xl", split="validation")"}},
        {"boolq", {"boolq", R"("aps/super_glue", "boolq", split="validation")"}},
        {"mmlu", {"mmlu", R"("cais/mmlu", "all", split="test")"}},
        {"truthfulqa_mc1",
         {"truthfulqa_mc1", R"("truthfulqa/truthful_qa", "multiple_choice", split="validation")"}},
        {"truthfulqa_mc2",
         {"truthfulqa_mc2", R"("truthfulqa/truthful_qa", "multiple_choice", split="validation")"}},
        {"lambada", {"lambada", R"("EleutherAI/lambada_openai", "default", split="test")"}},
        {"lambada_openai", {"lambada", R"("EleutherAI/lambada_openai", "default", split="test")"}},
        {"lambada_standard", {"lambada", R"("cimec/lambada", split="test")"}},
        {"wikitext",
         {"wikitext", R"("EleutherAI/wikitext_document_level", "wikitext-2-raw-v1", split="test")"}},
        {"gsm8k", {"gsm8k", R"("openai/gsm8k", "main", split="test")"}},
    };
    const auto found = kDataSets.find(task);
    if (found != kDataSets.end()) return found->second;
    constexpr std::string_view kSubject = "mmlu_";
    if (!task.starts_with(kSubject)) return {};
    return DataSet{"mmlu", fmt::format(R"("cais/mmlu", "{}", split="test")", task.substr(kSubject.size()))};
}

/// Refuses the name of a data set that stands in place of a file, and says which file to bring.
void refuse_data_set(const std::string& word) {
    const auto set = find_data_set(word);
    std::error_code unknown;
    if (!set || std::filesystem::exists(word, unknown)) return;
    throw UserError(
        "--tasks {}: no file has this name, and eval fetches no data sets. Save the records as JSON lines, "
        "with "
        "Python: datasets.load_dataset({}).to_json(\"{}.jsonl\"), and give --tasks {}={}.jsonl",
        word, set->arguments, word, set->reader, word);
}

TaskName task_name(const std::string& word) {
    TaskName task{.path = word};
    const size_t end = word.find('=');
    std::error_code unknown;
    if (end != word.npos && !std::filesystem::exists(word, unknown)) {
        task.reader = find_reader(word.substr(0, end));
        if (task.reader == nullptr) {
            std::vector<std::string> names;
            for (const Reader& reader : readers()) names.emplace_back(reader.name);
            throw UserError("--tasks {}: there is no reader '{}'; the readers are {}", word,
                            word.substr(0, end), fmt::join(names, ", "));
        }
        task.path = word.substr(end + 1);
    }
    if (task.reader == nullptr) refuse_data_set(word);
    task.name = is_standard_stream(task.path) ? "stdin" : task.path.stem().string();
    return task;
}

/// Calls take(record, place) for each line of the file that is not blank.
template <class Take>
void for_each_record(const std::filesystem::path& path, Take take) {
    data::LineReader lines(path);
    int64_t number = 0;
    for (std::string_view line; lines.next(line);) {
        ++number;
        if (data::is_blank(line)) continue;
        const std::string place = fmt::format("{}:{}", lines.source().name(), number);
        take(parse_json(line, place), place);
    }
}

/// Refuses a record without the key that all records of a recognised layout have.
void check_layout(const nlohmann::ordered_json& record, const std::string& place, const Reader& reader) {
    if (reader.keys.empty() || !record.is_object() || record.contains(reader.keys[0])) return;
    throw UserError(
        "{}: the record has the layout '{}', and the first one has '{}'; put them into files of their own",
        place, recognise(record, place).name, reader.name);
}

/// All documents of a file. `reader` is set by the first record if it is null.
std::vector<Document> read_documents(const std::filesystem::path& path, const Reader*& reader,
                                     int64_t vocab_size) {
    std::vector<Document> documents;
    for_each_record(path, [&](nlohmann::ordered_json record, const std::string& place) {
        if (reader == nullptr) reader = &recognise(record, place);
        check_layout(record, place, *reader);
        Document document = reader->read(JsonField(record, place), vocab_size);
        document.record = std::move(record);
        document.place = place;
        documents.push_back(std::move(document));
    });
    return documents;
}

/// Chooses the examples of a document as the harness does, and puts them into its prompts.
class Fewshot {
  public:
    Fewshot(const Reader& reader, std::vector<Document> pool, size_t count, bool pool_is_task)
        : reader_(reader),
          pool_(std::move(pool)),
          count_(count),
          leaves_out_document_(pool_is_task || reader.sampler == FewshotSampler::RandomOther) {}

    void put_into(Document& document) {
        std::string prompt = document.description;
        for (const Document* example : examples(document)) {
            prompt += example->question + reader_.example_delimiter + example->answer + kFewshotDelimiter;
        }
        for (std::string& context : document.contexts) context.insert(0, prompt);
    }

  private:
    std::vector<const Document*> examples(const Document& document) {
        std::vector<const Document*> others;
        if (count_ == 0) return others;
        const auto is_other = [&](const Document& example) {
            return !leaves_out_document_ || example.record != document.record;
        };
        if (reader_.sampler == FewshotSampler::First) {
            for (const Document& example : pool_) {
                if (is_other(example) && example.description == document.description) {
                    others.push_back(&example);
                }
            }
        } else {
            for (const size_t i : draw(pool_.size(), count_ + (leaves_out_document_ ? 1 : 0), document)) {
                if (is_other(pool_[i])) others.push_back(&pool_[i]);
            }
            if (others.size() < count_) others = drawn_from_others(document);
        }
        if (others.size() < count_) refuse(document, others.size());
        others.resize(count_);
        return others;
    }

    /// After the harness drew the document more than once, from a pool that repeats it.
    std::vector<const Document*> drawn_from_others(const Document& document) {
        std::vector<const Document*> pool, drawn;
        for (const Document& example : pool_) {
            if (example.record != document.record) pool.push_back(&example);
        }
        for (const size_t i : draw(pool.size(), count_, document)) drawn.push_back(pool[i]);
        return drawn;
    }

    std::vector<size_t> draw(size_t size, size_t count, const Document& document) {
        if (count > size) refuse(document, size);
        return random_.sample(size, count);
    }

    [[noreturn]] void refuse(const Document& document, size_t size) const {
        throw UserError("{}: --num-fewshot is {}, and the few-shot file has only {} examples for the record",
                        document.place, count_, size);
    }

    const Reader& reader_;
    std::vector<Document> pool_;
    size_t count_;
    bool leaves_out_document_;
    PythonRandom random_{kFewshotSeed};
};

void add_prompts(Task& task, const TaskOptions& options) {
    if (task.type() == OutputType::TokenIds || task.type() == OutputType::Rolling) {
        if (options.num_fewshot == 0) return;
        throw UserError("{}: --num-fewshot is for tasks with questions, and its records are {}",
                        task.file.path.string(), task.reader->name);
    }
    std::vector<Document> pool;
    bool same_file = false;
    if (options.num_fewshot > 0 && task.reader->sampler == FewshotSampler::None) {
        throw UserError(
            "the prompts of {} ({}) have examples of their own; evaluate it without --num-fewshot",
            task.file.name, task.reader->name);
    }
    if (options.num_fewshot > 0) {
        const Reader* reader = task.reader;
        pool = read_documents(options.fewshot_file, reader, options.vocab_size);
        std::error_code unknown;
        same_file = std::filesystem::equivalent(options.fewshot_file, task.file.path, unknown);
    }
    Fewshot fewshot(*task.reader, std::move(pool), options.num_fewshot, same_file);
    for (Document& document : task.documents) fewshot.put_into(document);
}

void leave_out_short_documents(Task& task) {
    const auto is_short = [&](const Document& document) {
        if (document.tokens.size() >= 2) return false;
        if (task.num_short++ == 0) task.first_short = document.place;
        return true;
    };
    std::erase_if(task.documents, is_short);
    if (!task.documents.empty()) return;
    throw UserError("{} holds no records of two tokens or more ({} are shorter); the first token is context",
                    task.file.path.string(), task.num_short);
}

}  // namespace

std::vector<TaskName> task_names(const std::vector<std::string>& words) {
    std::map<std::string, std::filesystem::path> named;
    std::vector<TaskName> tasks;
    for (const std::string& word : words) {
        tasks.push_back(task_name(word));
        const auto [at, added] = named.emplace(tasks.back().name, tasks.back().path);
        if (added) continue;
        throw UserError("the tasks {} and {} have the same name '{}'; rename one", at->second.string(),
                        tasks.back().path.string(), at->first);
    }
    return tasks;
}

Task read_task(const TaskName& file, const TaskOptions& options) {
    Task task{.file = file,
              .reader = file.reader,
              .num_fewshot = options.num_fewshot,
              .max_new_tokens = options.max_new_tokens};
    task.documents = read_documents(file.path, task.reader, options.vocab_size);
    task.num_records = std::ssize(task.documents);
    if (task.documents.empty()) throw UserError("{} holds no records", file.path.string());
    if (options.limit > 0 && options.limit < task.num_records) task.documents.resize(options.limit);
    if (task.type() == OutputType::TokenIds) leave_out_short_documents(task);
    add_prompts(task, options);
    return task;
}

}  // namespace argosy::eval
