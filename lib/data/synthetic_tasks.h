// Evaluation tasks on what the synthetic corpus teaches, from the same grammar and from documents of their
// own. Formats: data/README.md.
#pragma once

#include <cstdint>
#include <filesystem>

namespace argosy::data {

/// UserError where a file is in the way of write_synthetic_tasks that it did not write.
void require_replaceable_tasks(const std::filesystem::path& folder);

/// agreement.jsonl, arithmetic.jsonl (multiple choice), last_word.jsonl and perplexity.jsonl into an existing
/// folder.
void write_synthetic_tasks(const std::filesystem::path& folder, uint64_t seed);

}  // namespace argosy::data
