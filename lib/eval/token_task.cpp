#include "eval/token_task.h"

#include <map>

#include "base/error.h"
#include "data/records.h"

namespace argosy::eval {
namespace {

TokenTask read(const std::filesystem::path& path, int64_t vocab_size) {
    TokenTask task{path.stem().string(), path, {}};
    data::RecordReader reader(path, vocab_size);
    data::Record record;
    while (reader.next(record)) {
        if (record.kind == data::RecordKind::Text) {
            throw UserError(
                "{}: the record is {}, which needs a tokenizer, and eval has none yet; use {} records",
                reader.place(), data::name(record.kind), data::name(data::RecordKind::Tokens));
        }
        if (record.tokens.size() < 2) {
            throw UserError("{}: the record has {} tokens; it needs at least two, since the first is context",
                            reader.place(), record.tokens.size());
        }
        task.records.push_back(std::move(record.tokens));
    }
    if (task.records.empty()) throw UserError("{} holds no records", path.string());
    return task;
}

}  // namespace

std::vector<TokenTask> read_token_tasks(const std::vector<std::filesystem::path>& paths, int64_t vocab_size) {
    std::map<std::string, std::filesystem::path> named;
    for (const auto& path : paths) {
        const auto [at, added] = named.emplace(path.stem().string(), path);
        if (added) continue;
        throw UserError("the tasks {} and {} have the same name '{}'; rename one", at->second.string(),
                        path.string(), at->first);
    }
    std::vector<TokenTask> tasks;
    for (const auto& path : paths) tasks.push_back(read(path, vocab_size));
    return tasks;
}

}  // namespace argosy::eval
