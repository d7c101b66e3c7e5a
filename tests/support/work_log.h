// A text record of the operations that the host launches on the fake GPU. The fake CUDA graphs use it to
// check that a replay launches the recorded operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace argosy::testing {

/// The record of the record_work() in progress, else null. Only the thread that launches work may use it.
inline std::vector<std::string>* work_log = nullptr;

inline void note_work(const std::string& what) {
    if (work_log) work_log->push_back(what);
}

/// Calls `work` and returns what it launches: kernels, matrix products and LibTorch operations, with their
/// arguments except tensor contents.
std::vector<std::string> record_work(const std::function<void()>& work);

/// An argument as text, one number per 8 bytes. A number that looks like an address is written as "*",
/// because memory outside a graph may move between two recordings.
template <class Argument>
std::string text_of_argument(Argument argument) {
    static_assert(std::is_trivially_copyable_v<Argument>);
    if constexpr (std::is_class_v<Argument>) __builtin_clear_padding(&argument);
    std::vector<uint64_t> words((sizeof argument + 7) / 8);
    std::memcpy(words.data(), &argument, sizeof argument);
    std::string text;
    for (const uint64_t word : words) {
        const bool address = word >> 32 != 0 && word >> 48 == 0;
        text += address ? " *" : " " + std::to_string(word);
    }
    return text;
}

}  // namespace argosy::testing
