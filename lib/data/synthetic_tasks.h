// Evaluation tasks on what the synthetic corpus teaches, from the same grammar and from documents of their
// own. Formats: data/README.md.
#pragma once

#include <cstdint>
#include <filesystem>

namespace argosy::data {

/// agreement.jsonl, arithmetic.jsonl (multiple choice), last_word.jsonl and perplexity.jsonl into an existing
/// folder.
void write_synthetic_tasks(const std::filesystem::path& folder, uint64_t seed);

}  // namespace argosy::data
