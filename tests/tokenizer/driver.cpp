// Runs a tokenizer for the scripts beside it:
//   tokenizer_driver encode|decode TOKENIZER [END_OF_TEXT] <records >records
//   tokenizer_driver cut PATTERN <texts >lengths of the matches and of the texts between them
//   tokenizer_driver time TOKENIZER THREADS <texts; prints the seconds of encoding, and a checksum of the ids
//   tokenizer_driver nfc <texts >texts
//   tokenizer_driver chat TOKENIZER <lines {"messages": [...]} >lines {"ids": [...], "mask": [...]} or
//   {"error": TEXT}
// A record is a uint32 and as many bytes (a text) or uint32s (ids). `info TOKENIZER` prints its
// TokenizerInfo.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/program.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/pattern.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace argosy::tokenizer {
namespace {

template <class Element>
bool read_record(std::vector<Element>& elements) {
    uint32_t size;
    if (std::fread(&size, sizeof size, 1, stdin) != 1) return false;
    elements.resize(size);
    return std::fread(elements.data(), sizeof(Element), size, stdin) == size;
}

template <class Elements>
void write_record(const Elements& elements) {
    const auto size = static_cast<uint32_t>(std::size(elements));
    std::fwrite(&size, sizeof size, 1, stdout);
    std::fwrite(std::data(elements), sizeof *std::data(elements), size, stdout);
}

void for_each_text(const std::function<void(std::string_view)>& take) {
    std::vector<char> bytes;
    while (read_record(bytes)) take({bytes.data(), bytes.size()});
}

Ids cut_lengths(const Pattern& pattern, std::string_view text) {
    Ids lengths;
    PatternSearch search(pattern, text);
    std::string_view match;
    const char* done = text.data();
    const auto add = [&](const char* end) {
        if (end != done) lengths.push_back(static_cast<uint32_t>(end - done));
        done = end;
    };
    while (search.next(match)) {
        add(match.data());
        add(match.data() + match.size());
    }
    add(text.data() + text.size());
    return lengths;
}

void print_info(const TokenizerInfo& info) {
    const auto optional = [](std::optional<uint32_t> id) { return id ? std::to_string(*id) : "null"; };
    fmt::print(R"({{"name": "{}", "digest": "{}", "vocab_size": {}, "prefix": [{}], "suffix": [{}], )"
               R"("begin_of_text": {}, "end_of_text": {}, "warnings": {}}})",
               info.name, info.digest, info.vocab_size, fmt::join(info.prefix, ", "),
               fmt::join(info.suffix, ", "), optional(info.begin_of_text), optional(info.end_of_text),
               nlohmann::json(info.warnings).dump());
}

/// Encodes all texts with some threads, and prints the time and a checksum of the ids.
void time_encoding(const Tokenizer& tokenizer, int num_threads) {
    std::vector<std::string> texts;
    for_each_text([&](std::string_view text) { texts.emplace_back(text); });
    std::vector<Ids> ids(texts.size());
    std::atomic<size_t> next = 0;
    const auto begin = std::chrono::steady_clock::now();
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < num_threads; ++i) {
            threads.emplace_back([&] {
                for (size_t text = next++; text < texts.size(); text = next++)
                    tokenizer.encode(texts[text], ids[text]);
            });
        }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    uint64_t checksum = 0;
    for (const Ids& of_text : ids)
        for (const uint32_t id : of_text) checksum = checksum * 31 + id + 1;
    fmt::print(R"({{"seconds": {}, "checksum": {}}})", seconds.count(), checksum);
}

void encode_chats(const std::string& source, const Tokenizer& tokenizer) {
    const auto chat = open_chat_template(source, tokenizer);
    if (!chat) throw UserError("{} has no chat template", source);
    for (std::string line; std::getline(std::cin, line);) {
        std::vector<ChatMessage> messages;
        const nlohmann::json record = nlohmann::json::parse(line);
        for (const auto& message : record["messages"])
            messages.push_back({message["role"], message["content"]});
        Ids ids;
        std::vector<uint8_t> mask;
        try {
            chat->encode(messages, ids, mask);
            fmt::print("{{\"ids\": [{}], \"mask\": [{}]}}\n", fmt::join(ids, ", "), fmt::join(mask, ", "));
        } catch (const UserError& error) {
            fmt::print("{}\n", nlohmann::json{{"error", error.what()}}.dump());
        }
    }
}

ExitCode run(int argc, char** argv) {
    const std::string command = argc > 1 ? argv[1] : "", source = argc > 2 ? argv[2] : "";
    std::string buffer;
    if (command == "cut") {
        const Pattern pattern(source, "the test");
        for_each_text([&](std::string_view text) { write_record(cut_lengths(pattern, text)); });
        return ExitCode::Done;
    }
    if (command == "nfc") {
        for_each_text([&](std::string_view text) { write_record(to_nfc(text, buffer)); });
        return ExitCode::Done;
    }
    if (command == "time") {
        time_encoding(*open_tokenizer(source), std::atoi(argc > 3 ? argv[3] : "1"));
        return ExitCode::Done;
    }
    const auto tokenizer = open_tokenizer(source, argc > 3 ? argv[3] : "");
    if (command == "info") {
        print_info(tokenizer->info());
    } else if (command == "encode") {
        for_each_text([&](std::string_view text) {
            Ids ids;
            tokenizer->encode(text, ids);
            write_record(ids);
        });
    } else if (command == "chat") {
        encode_chats(source, *tokenizer);
    } else {
        Ids ids;
        while (read_record(ids)) write_record(tokenizer->decode(ids));
    }
    return ExitCode::Done;
}

}  // namespace
}  // namespace argosy::tokenizer

int main(int argc, char** argv) {
    return argosy::run_program("tokenizer_driver", [&] { return argosy::tokenizer::run(argc, argv); });
}
