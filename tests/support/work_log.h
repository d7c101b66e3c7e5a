// A text record of the work that the host gives to a GPU, as the stand-ins see it. The stand-in for graphs
// uses it to check that a replay gets the recorded work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace argosy::testing {

/// Where the record goes; null: nowhere. It belongs to the thread that works on the GPU.
inline std::vector<std::string>* work_log = nullptr;

inline void note_work(const std::string& what) {
    if (work_log) work_log->push_back(what);
}

/// Records the work that `work` gives to the GPU: kernels, products and LibTorch's operations, with all
/// arguments that are not in tensors.
std::vector<std::string> logged_work(const std::function<void()>& work);

/// The bytes of an argument, except addresses, which may change for memory that does not belong to a graph.
template <class Argument>
std::string words_of(Argument argument) {
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
