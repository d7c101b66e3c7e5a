#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>

#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_level.h"

namespace argosy::tokenizer {
namespace {

constexpr uint32_t kNumBytes = 256;
constexpr int64_t kMinCount = 2;  // a pair that occurs once is not worth a token

struct Word {
    std::vector<uint32_t> tokens;
    int64_t count;
};

using PairKey = uint64_t;  // left << 32 | right
PairKey key_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

/// The words with the counts of their pairs.
class PairCounts {
  public:
    explicit PairCounts(std::vector<Word> words) : words_(std::move(words)) {
        for (uint32_t i = 0; i < words_.size(); ++i) add_pairs(i, +1, std::nullopt);
        apply_changes();
    }

    /// Returns the most frequent pair, or nothing if none is frequent enough. A count in the queue may be out
    /// of date only by being too high.
    std::optional<PairKey> take_best() {
        while (!queue_.empty()) {
            const Candidate best = queue_.top();
            queue_.pop();
            const int64_t count = pairs_[best.key].count;
            if (count == best.count) return best.key;
            if (count >= kMinCount) queue_.push({count, best.key});
        }
        return std::nullopt;
    }

    /// Replaces a pair by a token in all words.
    void merge(PairKey key, uint32_t merged) {
        std::vector<uint32_t> places = std::move(pairs_[key].words);
        std::ranges::sort(places);
        places.erase(std::unique(places.begin(), places.end()), places.end());
        for (const uint32_t place : places) {
            add_pairs(place, -1, merged);
            replace(words_[place].tokens, key, merged);
            add_pairs(place, +1, merged);
        }
        apply_changes();
    }

  private:
    struct Candidate {
        int64_t count;
        PairKey key;
        bool operator<(const Candidate& other) const {
            return count != other.count ? count < other.count : key > other.key;
        }
    };
    struct PairCount {
        int64_t count = 0;
        std::vector<uint32_t> words;  // that hold it, and some that no longer do
    };
    struct Change {
        int64_t count = 0;
        std::vector<uint32_t> words;
    };

    /// Adds a word to the changes. A merge brings the word into only those pairs that hold the new token.
    void add_pairs(uint32_t place, int sign, std::optional<uint32_t> new_token) {
        const Word& word = words_[place];
        for (size_t i = 0; i + 1 < word.tokens.size(); ++i) {
            const uint32_t left = word.tokens[i], right = word.tokens[i + 1];
            Change& change = changes_[key_of(left, right)];
            change.count += sign * word.count;
            const bool may_be_new = sign > 0 && (!new_token || left == *new_token || right == *new_token);
            if (may_be_new && (change.words.empty() || change.words.back() != place))
                change.words.push_back(place);
        }
    }

    void apply_changes() {
        for (auto& [key, change] : changes_) {
            if (change.count == 0 && change.words.empty()) continue;
            PairCount& pair = pairs_[key];
            pair.count += change.count;
            pair.words.insert(pair.words.end(), change.words.begin(), change.words.end());
            if (change.count > 0 && pair.count >= kMinCount) queue_.push({pair.count, key});
        }
        changes_.clear();
    }

    static void replace(std::vector<uint32_t>& tokens, PairKey key, uint32_t merged) {
        size_t size = 0;
        for (size_t i = 0; i < tokens.size(); ++i) {
            const bool matches = i + 1 < tokens.size() && key_of(tokens[i], tokens[i + 1]) == key;
            tokens[size++] = matches ? merged : tokens[i];
            if (matches) ++i;
        }
        tokens.resize(size);
    }

    std::vector<Word> words_;
    std::unordered_map<PairKey, PairCount> pairs_;
    std::unordered_map<PairKey, Change> changes_;  // of the merge that is under way
    std::priority_queue<Candidate> queue_;
};

struct Training {
    std::vector<std::string> tokens;                          // the bytes of each id
    std::vector<std::pair<std::string, std::string>> merges;  // by rank
};

Training run_training(std::vector<Word> words, size_t num_tokens) {
    PairCounts counts(std::move(words));
    Training result;
    BpeVocabulary ids;
    const auto id_of = [&](const std::string& token) {
        const auto [place, is_new] = ids.emplace(token, static_cast<uint32_t>(result.tokens.size()));
        if (is_new) result.tokens.push_back(token);
        return place->second;
    };
    for (uint32_t byte = 0; byte < kNumBytes; ++byte) id_of(std::string(1, static_cast<char>(byte)));
    while (result.tokens.size() < num_tokens) {
        const auto best = counts.take_best();
        if (!best) break;
        const std::string left = result.tokens[*best >> 32],
                          right = result.tokens[static_cast<uint32_t>(*best)];
        result.merges.emplace_back(left, right);
        counts.merge(*best, id_of(left + right));  // two pairs may make the same token
    }
    return result;
}

nlohmann::ordered_json pre_tokenizer_of(TrainedPattern kind) {
    const nlohmann::ordered_json byte_level = {{"type", "ByteLevel"},
                                               {"add_prefix_space", false},
                                               {"trim_offsets", true},
                                               {"use_regex", kind == TrainedPattern::Gpt2}};
    if (kind == TrainedPattern::Gpt2) return byte_level;
    const nlohmann::ordered_json split = {{"type", "Split"},
                                          {"pattern", {{"Regex", kLlama3Pattern}}},
                                          {"behavior", "Isolated"},
                                          {"invert", false}};
    return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
}

std::string tokenizer_json_of(const Training& training, TrainedPattern kind) {
    nlohmann::ordered_json vocab = nlohmann::ordered_json::object(), merges = nlohmann::ordered_json::array();
    // Tokens are new, so they are appended without a search for each.
    auto& members = vocab.get_ref<nlohmann::ordered_json::object_t&>();
    std::vector<std::pair<const std::string, nlohmann::ordered_json>>& entries = members;
    for (size_t id = 0; id < training.tokens.size(); ++id)
        entries.emplace_back(characters_of_bytes(training.tokens[id]), id);
    for (const auto& [left, right] : training.merges)
        merges.push_back({characters_of_bytes(left), characters_of_bytes(right)});
    const nlohmann::ordered_json end_of_text = {{"id", training.tokens.size()},
                                                {"content", kTrainedEndOfText},
                                                {"single_word", false},
                                                {"lstrip", false},
                                                {"rstrip", false},
                                                {"normalized", false},
                                                {"special", true}};
    nlohmann::ordered_json model = {{"type", "BPE"},
                                    {"dropout", nullptr},
                                    {"unk_token", nullptr},
                                    {"continuing_subword_prefix", nullptr},
                                    {"end_of_word_suffix", nullptr},
                                    {"fuse_unk", false},
                                    {"byte_fallback", false},
                                    {"ignore_merges", false}};
    model["vocab"] = std::move(vocab);
    model["merges"] = std::move(merges);
    nlohmann::ordered_json json = {{"version", "1.0"},
                                   {"added_tokens", nlohmann::ordered_json::array({end_of_text})}};
    for (const char* key : {"truncation", "padding", "normalizer", "post_processor"}) json[key] = nullptr;
    json["pre_tokenizer"] = pre_tokenizer_of(kind);
    json["decoder"] = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
    json["model"] = std::move(model);
    return json.dump(2) + "\n";
}

}  // namespace

BpeTrainer::BpeTrainer(TrainedPattern pattern, int64_t vocab_size)
    : kind_(pattern),
      vocab_size_(vocab_size),
      pattern_(pattern == TrainedPattern::Gpt2 ? kGpt2Pattern : kLlama3Pattern, "the trained tokenizer") {
    constexpr int64_t kMinSize = kNumBytes + 1, kMaxSize = 10'000'000;
    if (vocab_size < kMinSize || vocab_size > kMaxSize) {
        throw UserError("the vocabulary size is {}; it must be in {} (the bytes and the end of text) .. {}",
                        vocab_size, kMinSize, kMaxSize);
    }
}

void BpeTrainer::add(std::string_view text) {
    PatternSearch search(pattern_, repaired_utf8(text, repaired_));
    for (std::string_view piece; search.next(piece);) {  // the patterns leave nothing between their matches
        piece_ = piece;
        ++counts_[piece_];
    }
}

TrainedTokenizer BpeTrainer::train() const {
    std::vector<Word> words;
    for (const auto& [piece, count] : counts_) {
        Word word{.tokens = {}, .count = count};
        for (const char byte : piece) word.tokens.push_back(static_cast<unsigned char>(byte));
        words.push_back(std::move(word));
    }
    const Training training = run_training(std::move(words), static_cast<size_t>(vocab_size_) - 1);
    const nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                           {"eos_token", kTrainedEndOfText},
                                           {"clean_up_tokenization_spaces", false}};
    return {.tokenizer_json = tokenizer_json_of(training, kind_),
            .tokenizer_config_json = config.dump(2) + "\n",
            .vocab_size = static_cast<int64_t>(training.tokens.size()) + 1};
}

}  // namespace argosy::tokenizer
