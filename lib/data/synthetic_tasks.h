// Evaluation tasks for the contents of the synthetic corpus, made with the same grammar but with their own
// documents. Formats: data/README.md.
#pragma once

#include <cstdint>
#include <filesystem>

namespace argosy::data {

/// UserError if write_synthetic_tasks would overwrite a file that it did not write.
void require_replaceable_tasks(const std::filesystem::path& folder);

/// Writes agreement.jsonl, arithmetic.jsonl (multiple choice), last_word.jsonl and perplexity.jsonl into an
/// existing folder.
void write_synthetic_tasks(const std::filesystem::path& folder, uint64_t seed);

}  // namespace argosy::data
