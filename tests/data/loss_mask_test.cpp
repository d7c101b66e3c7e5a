// Loss masks from records to targets, compared with plain vectors.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "data/loader.h"
#include "data/tokenize.h"
#include "expect_error.h"
#include "h5/file.h"
#include "scratch_folder.h"
#include "token_files.h"
#include "tokenizer/bpe_trainer.h"

namespace argosy::data {
namespace {

constexpr int64_t kVocabSize = 5000;

/// The stream first, first + 1, ..., in documents, with a random mask.
struct MaskedStream {
    explicit MaskedStream(int64_t count, uint32_t first = 0, unsigned seed = 1) : random(seed) {
        for (int64_t i = 0; i < count; ++i) {
            tokens.push_back(first + static_cast<uint32_t>(i));
            mask.push_back(random() % 3 == 0);
        }
    }

    std::filesystem::path written(const std::filesystem::path& path) {
        TokenWriter writer(path, kVocabSize);
        starts.assign(tokens.size(), false);
        const std::span<const uint32_t> all(tokens);
        const std::span<const uint8_t> all_of_mask(mask);
        for (size_t begin = 0; begin < tokens.size();) {
            const size_t size = std::min<size_t>(random() % 13, tokens.size() - begin);
            starts[begin] = true;
            writer.append_document(all.subspan(begin, size), all_of_mask.subspan(begin, size));
            begin += size;
        }
        writer.commit({.vocab_size = kVocabSize, .tokenizer = "none"});
        return path;
    }

    int64_t num_counted() const { return std::ranges::count(mask, 1); }

    std::minstd_rand random;
    std::vector<uint32_t> tokens;
    std::vector<uint8_t> mask;
    std::vector<bool> starts;  // whether the token begins a document of the file
};

std::vector<uint8_t> mask_of(const TokenFile& file) {
    std::vector<int64_t> targets(file.size(), 0);
    file.mask_targets(0, file.size(), targets.data());
    std::vector<uint8_t> mask;
    for (const int64_t target : targets) mask.push_back(target == 0);
    return mask;
}

std::vector<std::string> faults_in(const std::filesystem::path& path) {
    return TokenFile(path, TokenChecks::None).find_faults([](double) {});
}

void set_byte(const std::filesystem::path& path, int64_t offset, char byte) {
    std::string bytes = read_file(path);
    bytes.at(offset) = byte;
    write_file(path, bytes);
}

TEST(LossMask, IsABitPerTokenTheFirstInTheLowestBit) {
    const ScratchFolder folder;
    for (const int64_t count : {1, 8, 1003}) {
        MaskedStream stream(count);
        stream.mask[0] = 1;
        const TokenFile file(stream.written(folder / "a.h5"));
        EXPECT_EQ(file.stored().counted_tokens, stream.num_counted());
        EXPECT_EQ(mask_of(file), stream.mask);
        const StoredArray& stored = file.stored().loss_mask;
        EXPECT_EQ(stored.num_bytes(), (count + 7) / 8);
        const std::string bytes = read_file(folder / "a.h5").substr(stored.offset, stored.num_bytes());
        for (int64_t i = 0; i < 8 * std::ssize(bytes); ++i)
            EXPECT_EQ(bytes[i / 8] >> i % 8 & 1, i < count ? stream.mask[i] : 0) << i;
        EXPECT_EQ(faults_in(folder / "a.h5"), std::vector<std::string>());
        for (int draw = 0; draw < 200; ++draw) {
            const auto begin = static_cast<int64_t>(stream.random() % count);
            const auto size = static_cast<int64_t>(stream.random() % (count - begin + 1));
            std::vector<int64_t> targets(size, 7), expected;
            for (int64_t i = begin; i < begin + size; ++i) expected.push_back(stream.mask[i] ? 7 : -1);
            file.mask_targets(begin, size, targets.data());
            EXPECT_EQ(targets, expected) << begin << " + " << size;
        }
    }
}

TEST(LossMask, FilesWithoutOneStayOfVersion2) {
    const ScratchFolder folder;
    write_tokens(folder / "a.h5", {1, 2, 3}, 10);
    MaskedStream(10).written(folder / "b.h5");
    const h5::File plain = h5::File::open(folder / "a.h5"), masked = h5::File::open(folder / "b.h5");
    EXPECT_EQ(plain.open_dataset("tokens").integer_attribute("format_version"), 2);
    EXPECT_EQ(plain.links(), (std::vector<std::string>{"checksums", "document_offsets", "tokens"}));
    EXPECT_EQ(masked.open_dataset("tokens").integer_attribute("format_version"), 3);
    EXPECT_EQ(TokenFile(folder / "a.h5").stored().counted_tokens, 3);
    EXPECT_EQ(mask_of(TokenFile(folder / "a.h5")), (std::vector<uint8_t>{1, 1, 1}));
}

TEST(LossMask, DamageIsFound) {
    const ScratchFolder folder;
    const auto path = MaskedStream(100).written(folder / "a.h5");
    const StoredTokens stored = locate_tokens(path);
    const std::string whole = read_file(path);
    set_byte(path, stored.loss_mask.offset + 3, static_cast<char>(~whole[stored.loss_mask.offset + 3]));
    EXPECT_EQ(faults_in(path),
              std::vector<std::string>{"bytes 0 .. 12 of the loss mask do not match their checksum"});
    std::vector<int64_t> targets(1);
    EXPECT_ERROR(TokenFile(path).mask_targets(50, 1, targets.data()), DamageError, "a.h5",
                 "bytes of the loss mask 0 .. 12", "damaged");
    // Another number of tokens that count.
    write_file(path, whole);
    const std::vector<std::byte> none(13);
    const int64_t checksum = token_format::checksum(none.data(), 13);
    for (int64_t i = 0; i < 13; ++i) set_byte(path, stored.loss_mask.offset + i, 0);
    for (int64_t i = 0; i < 8; ++i)
        set_byte(path, stored.checksums.offset + 16 + i, static_cast<char>(checksum >> 8 * i));
    EXPECT_EQ(faults_in(path).at(0).substr(0, 30), "the loss mask counts 0 tokens,");
}

constexpr int64_t kSampleLen = 7;

/// Sources of the tokens 0 .. 99, 100 .. 299 and 300 .. 349, of which the second has no mask.
class MaskedMixture : public testing::Test {
  protected:
    Loader loader(bool count_document_starts = true) {
        first_.written(folder_ / "a.h5");
        third_.written(folder_ / "c.h5");
        std::vector<uint32_t> tokens(200);
        for (uint32_t i = 0; i < 200; ++i) tokens[i] = 100 + i;
        write_tokens(folder_ / "b.h5", tokens, kVocabSize);
        return Loader({{source("a.h5"), 0.2}, {source("b.h5"), 0.5}, {source("c.h5"), 0.3}},
                      {.seq_len = kSampleLen, .seed = 4, .count_document_starts = count_document_starts});
    }

    std::shared_ptr<const TokenSource> source(const char* name) const {
        return std::make_shared<TokenSource>(folder_ / name);
    }

    bool counts(int64_t token) const {
        if (token < 100) return first_.mask[token] != 0;
        return token < 300 || third_.mask[token - 300] != 0;
    }

    bool begins_document(int64_t token) const {
        if (token < 100) return first_.starts[token];
        return token < 300 ? token == 100 : third_.starts[token - 300];
    }

    ScratchFolder folder_;
    MaskedStream first_{100, 0, 3}, third_{50, 300, 4};
};

TEST_F(MaskedMixture, TargetsThatDoNotCountAreMinusOne) {
    const Loader all = loader();
    constexpr int64_t kCount = 500;
    std::vector<int64_t> tokens(kCount * kSampleLen), targets(tokens), expected;
    all.read(0, kCount, tokens.data(), targets.data());
    for (const int64_t token : tokens) expected.push_back(counts(token + 1) ? token + 1 : -1);
    EXPECT_EQ(targets, expected);
    // From anywhere, as a resumed run reads.
    for (const int64_t first : {1, 17, 333}) {
        std::vector<int64_t> some(20 * kSampleLen), some_targets(some);
        all.read(first, 20, some.data(), some_targets.data());
        EXPECT_TRUE(
            std::ranges::equal(some_targets, std::span(expected).subspan(first * kSampleLen, some.size())));
    }
}

TEST_F(MaskedMixture, MaskAndDocumentStartsTogether) {
    const Loader all = loader(false);
    constexpr int64_t kCount = 500;
    std::vector<int64_t> tokens(kCount * kSampleLen), targets(tokens), expected;
    all.read(0, kCount, tokens.data(), targets.data());
    int64_t num_starts = 0;
    for (const int64_t token : tokens) {
        const bool starts = begins_document(token + 1);
        num_starts += starts && counts(token + 1);
        expected.push_back(counts(token + 1) && !starts ? token + 1 : -1);
    }
    EXPECT_EQ(targets, expected);
    EXPECT_GT(num_starts, 0);
}

/// Megatron's eod_mask_loss: the target of an input that ends a document does not count.
TEST_F(MaskedMixture, TargetsThatBeginADocumentDoNotCountIfTheOptionSaysSo) {
    constexpr uint32_t kEnd = 9;
    std::minstd_rand random(5);
    TokenWriter writer(folder_ / "d.h5", 10);
    std::vector<uint32_t> document;
    for (int i = 0; i < 100; ++i) {
        document.assign(random() % 9, random() % 9);
        document.push_back(kEnd);
        writer.append_document(document);
    }
    writer.commit({.vocab_size = 10, .end_of_text = kEnd, .tokenizer = "none"});
    for (const bool across : {true, false}) {
        LoaderOptions options{.seq_len = kSampleLen, .attend_across_documents = across};
        const Loader all(folder_ / "d.h5", options);
        options.count_document_starts = false;
        const Loader some(folder_ / "d.h5", options);
        const int64_t count = 2 * all.num_samples();
        std::vector<int64_t> tokens(count * kSampleLen), expected(tokens), targets(tokens), positions(tokens),
            all_positions(tokens);
        all.read(0, count, tokens.data(), expected.data(), across ? nullptr : all_positions.data());
        some.read(0, count, tokens.data(), targets.data(), across ? nullptr : positions.data());
        for (size_t i = 0; i < tokens.size(); ++i)
            if (tokens[i] == kEnd) expected[i] = -1;
        EXPECT_EQ(targets, expected);
        EXPECT_EQ(positions, all_positions);
    }
}

TEST_F(MaskedMixture, FingerprintsTellMasksApart) {
    const std::string known = loader().fingerprint();
    EXPECT_EQ(loader().fingerprint(), known);
    const auto last = std::ranges::find(first_.mask, 0);
    *last = 1;
    EXPECT_NE(loader().fingerprint(), known);
    std::ranges::fill(first_.mask, 0);
    EXPECT_ERROR(loader(), UserError, "none of the 100 tokens", "a.h5");
}

TEST(TokenizeLossMask, TheFileDoesNotDependOnPiecesThreadsOrProcesses) {
    const ScratchFolder folder;
    MaskedStream stream(4000);
    std::string tokens, completions;
    std::vector<uint8_t> mask_of_completions;
    for (size_t begin = 0; begin < stream.tokens.size();) {
        const size_t size = std::min<size_t>(stream.random() % 20, stream.tokens.size() - begin);
        const auto list = [&](const auto& values) {
            return fmt::format("[{}]",
                               fmt::join(values.begin() + begin, values.begin() + begin + size, ", "));
        };
        tokens +=
            fmt::format("{{\"loss_mask\": {}, \"tokens\": {}}}\n", list(stream.mask), list(stream.tokens));
        begin += size;
        const size_t prompt = stream.random() % 30, completion = stream.random() % 30;
        completions += fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n",
                                   std::string(prompt, 'p'), std::string(completion, 'c'));
        mask_of_completions.insert(mask_of_completions.end(), prompt, 0);
        mask_of_completions.insert(mask_of_completions.end(), completion + 1, 1);  // and the end of text
    }
    for (const auto& [text, mask] : {std::pair{tokens, stream.mask}, {completions, mask_of_completions}}) {
        write_file(folder / "a.jsonl", text);
        TokenizeOptions options{.inputs = {folder / "a.jsonl"}, .output = folder / "t.h5"};
        const TokenizeResult whole = tokenize_with("bytes", options);
        EXPECT_EQ(whole.counted_tokens, std::ranges::count(mask, 1));
        EXPECT_EQ(mask_of(TokenFile(folder / "t.h5")), mask);
        const std::string bytes = read_file(folder / "t.h5");
        options.piece_bytes = 3000;
        options.num_threads = 3;
        EXPECT_EQ(tokenize_with("bytes", options).counted_tokens, whole.counted_tokens);
        EXPECT_TRUE(read_file(folder / "t.h5") == bytes);
    }
}

/// A BPE whose tokens join words of these texts.
std::string trained(const ScratchFolder& folder) {
    tokenizer::BpeTrainer trainer(tokenizer::TrainedPattern::Llama3, 320);
    for (int i = 0; i < 50; ++i)
        trainer.add("the question: what is a catapult? an answer: catapults hurl stones");
    const tokenizer::TrainedTokenizer result = trainer.train();
    write_file(folder / "tokenizer.json", result.tokenizer_json);
    write_file(folder / "tokenizer_config.json", result.tokenizer_config_json);
    return (folder / "tokenizer.json").string();
}

TEST(TokenizeLossMask, TokensOfThePromptDoNotCountAndSharedOnesDo) {
    const ScratchFolder folder;
    const std::string path = trained(folder);
    const auto tokenizer = tokenizer::open_tokenizer(path);
    const std::string text = "what is a catapult? catapults hurl stones";
    for (size_t size = 0; size <= text.size(); ++size) {
        const std::string prompt = text.substr(0, size);
        write_file(folder / "a.jsonl", fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n", prompt,
                                                   text.substr(size)));
        tokenize_with(path, {.inputs = {folder / "a.jsonl"}, .output = folder / "t.h5"});
        tokenizer::Ids ids, of_prompt;
        tokenizer->encode(text, ids);
        tokenizer->encode(prompt, of_prompt);
        ids.push_back(tokenizer->info().end_of_text.value());
        const TokenFile file(folder / "t.h5");
        EXPECT_EQ(all_tokens(file), std::vector<int64_t>(ids.begin(), ids.end()));
        // The oracle counts bytes: a token with a byte of the completion counts. One without may count only
        // behind the place where the prompt alone has other tokens.
        const std::vector<uint8_t> mask = mask_of(file);
        size_t end_byte = 0, num_same = 0;
        while (num_same < of_prompt.size() && of_prompt[num_same] == ids[num_same]) ++num_same;
        for (size_t i = 0; i < ids.size(); ++i) {
            end_byte += i + 1 == ids.size() ? 1 : tokenizer->decode({{ids[i]}}).size();
            EXPECT_EQ(mask[i] != 0, i >= num_same) << prompt << "|, token " << i;
            EXPECT_TRUE(mask[i] == 1 || end_byte <= size) << prompt << "|, token " << i;
        }
    }
}

/// A tokenizer whose turns are `role:text` and an end.
std::string with_chat_template(const ScratchFolder& folder) {
    const std::string path = trained(folder);
    write_file(
        folder / "chat_template.jinja",
        "{% for message in messages %}{{ message.role + ':' + message.content + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}");
    return path;
}

TEST(TokenizeConversations, TheFileDoesNotDependOnPiecesOrThreads) {
    const ScratchFolder folder;
    const std::string path = with_chat_template(folder);
    const auto tokenizer = tokenizer::open_tokenizer(path);
    std::minstd_rand random(3);
    std::string lines;
    tokenizer::Ids expected;
    std::vector<uint8_t> mask;
    const auto append = [&](const std::string& text, uint8_t counts) {
        tokenizer->encode(text, expected);
        mask.resize(expected.size(), counts);
    };
    for (int i = 0; i < 300; ++i) {
        const std::string question(random() % 30, '?'), answer(1 + random() % 30, '!');
        lines += fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}, )"
                             R"({{"role": "assistant", "content": "{}"}}]}})"
                             "\n",
                             question, answer);
        append("user:" + question + "<|endoftext|>assistant:", 0);
        append(answer + "<|endoftext|>", 1);
    }
    write_file(folder / "a.jsonl", lines);
    TokenizeOptions options{.inputs = {folder / "a.jsonl"}, .output = folder / "t.h5"};
    EXPECT_EQ(tokenize_with(path, options).counted_tokens, std::ranges::count(mask, 1));
    const TokenFile file(folder / "t.h5");
    EXPECT_EQ(all_tokens(file), std::vector<int64_t>(expected.begin(), expected.end()));
    EXPECT_EQ(mask_of(file), mask);
    EXPECT_EQ(file.num_documents(), 300);
    EXPECT_EQ(file.info().end_of_text, kNoEndOfText);
    const std::string bytes = read_file(folder / "t.h5");
    options.piece_bytes = 3000;
    options.num_threads = 3;
    tokenize_with(path, options);
    EXPECT_TRUE(read_file(folder / "t.h5") == bytes);
}

TEST(TokenizeConversations, ATemplateThatCannotBeReadHarmsNoOtherRecords) {
    const ScratchFolder folder;
    const std::string path = with_chat_template(folder);
    const auto tokenize = [&](const char* lines) {
        write_file(folder / "a.jsonl", lines);
        return tokenize_with(path, {.inputs = {folder / "a.jsonl"}, .output = folder / "t.h5"});
    };
    const auto expect_refused = [&](const char* reason) {
        EXPECT_EQ(tokenize(R"({"text": "a"})").num_documents, 1);
        EXPECT_ERROR(tokenize(R"({"messages": [{"role": "assistant", "content": "a"}]})"), UserError,
                     "a.jsonl:1", reason);
    };
    write_file(folder / "chat_template.jinja", "\n{% raw %}{{{% endraw %}");
    expect_refused("chat_template.jinja:2");
    write_file(folder / "chat_template.jinja", "{% call x %}{% endcall %}");
    expect_refused("the tag \" call x \"");
    std::filesystem::remove(folder / "chat_template.jinja");
    write_file(folder / "tokenizer_config.json",
               R"({"eos_token": "<|endoftext|>", "chat_template": [{"name": "rag", "template": "x"}]})");
    expect_refused("has no template of the name \"default\"");
}

/// A resumed run compares the digest (TokenizeJob::plan_text).
TEST(TokenizeConversations, TheDigestCoversAllThatTheIdsDependOn) {
    const ScratchFolder folder;
    const std::string path = with_chat_template(folder);
    const auto digest = [&] {
        return tokenizer::open_chat_template(path, *tokenizer::open_tokenizer(path))->digest();
    };
    std::vector<std::string> digests = {digest()};
    EXPECT_EQ(digests[0], digest());
    for (const char* config :
         {R"({"eos_token": "<|endoftext|>", "bos_token": "a"})",
          R"({"eos_token": "<|endoftext|>", "bos_token": "b"})", R"({"eos_token": "<|endoftext|>"})"}) {
        write_file(folder / "tokenizer_config.json", config);
        digests.push_back(digest());
    }
    EXPECT_EQ(digests[0], digests[3]);  // the first file named no other token
    digests.pop_back();
    write_file(folder / "chat_template.jinja", "x");
    digests.push_back(digest());
    const auto opened = tokenizer::open_tokenizer(path);
    for (const uint32_t id : {1, 2}) {  // a special token that the file names
        tokenizer::TokenizerInfo info = opened->info();
        info.special_tokens.push_back({.content = "<x>", .id = id, .special = true});
        struct Named : tokenizer::Tokenizer {
            using Tokenizer::Tokenizer;
            void encode(std::string_view, tokenizer::Ids&) const override {}
            std::string decode(std::span<const uint32_t>) const override { return ""; }
        };
        digests.push_back(tokenizer::open_chat_template(path, Named(info))->digest());
    }
    std::ranges::sort(digests);
    EXPECT_EQ(std::ranges::adjacent_find(digests), digests.end());
}

TEST(TokenizeConversations, BadOnesAreRefusedOrLeftOut) {
    const ScratchFolder folder;
    const std::string path = with_chat_template(folder);
    const std::string good = R"({"messages": [{"role": "assistant", "content": "a"}]})"
                             "\n";
    const auto tokenize = [&](const std::string& lines, OnError on_error = OnError::Fail) {
        write_file(folder / "a.jsonl", lines);
        return tokenize_with(
            path, {.inputs = {folder / "a.jsonl"}, .output = folder / "t.h5", .on_error = on_error});
    };
    const std::string no_turn = R"({"messages": [{"role": "user", "content": "a"}]})"
                                "\n";
    const std::string unknown = R"({"messages": [{"role": "tool", "content": "a"}]})"
                                "\n";
    const std::string empty = R"({"messages": [{"role": "assistant", "content": ""}]})"
                              "\n";
    EXPECT_ERROR(tokenize(good + no_turn), UserError, "a.jsonl:2", "no message has the role \"assistant\"");
    EXPECT_ERROR(tokenize(good + unknown), UserError, "a.jsonl:2", "\"tool\" is none of \"system\"");
    EXPECT_ERROR(tokenize(good + empty), UserError, "a.jsonl:2", "message 0 leaves no text",
                 "remove the turn");
    EXPECT_ERROR(tokenize(good + R"({"messages": []})"), UserError, "a.jsonl:2", "\"messages\" is empty");
    EXPECT_ERROR(tokenize(good + R"({"text": "a"})"), UserError, "a.jsonl:2", "{\"messages\"} records");
    const TokenizeResult result = tokenize(no_turn + good + empty + unknown + good, OnError::Skip);
    EXPECT_EQ(result.num_skipped, 3);
    EXPECT_EQ(result.num_documents, 2);
    EXPECT_EQ(result.counted_tokens, 4);
    std::filesystem::remove(folder / "chat_template.jinja");
    EXPECT_ERROR(tokenize(good), UserError, "a.jsonl:1", "'tokenizer.json' has no chat template",
                 "chat_template.jinja");
}

}  // namespace
}  // namespace argosy::data
