// For fuzz tests: seeds, and mutations of a text. By default the seeds are 0 .. count-1, so a failure
// repeats. A campaign (tests/campaign) sets the first seed as ARGOSY_FUZZ_SEED, and ARGOSY_FUZZ_SECONDS, the
// time after which each test ends whatever its count.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace argosy::testing {

class FuzzSeeds {
  public:
    explicit FuzzSeeds(int64_t count)
        : first_(number_of("ARGOSY_FUZZ_SEED")), count_(count), seconds_(number_of("ARGOSY_FUZZ_SECONDS")) {}

    class Iterator {
      public:
        explicit Iterator(const FuzzSeeds& seeds) : seeds_(seeds) {}
        uint64_t operator*() const { return static_cast<uint64_t>(seeds_.first_ + round_); }
        Iterator& operator++() {
            ++round_;
            return *this;
        }
        /// Whether another round is due; any comparison is with the end.
        bool operator!=(const Iterator&) const {
            return seeds_.seconds_ > 0 ? seeds_.seconds_so_far() < static_cast<double>(seeds_.seconds_)
                                       : round_ < seeds_.count_;
        }

      private:
        const FuzzSeeds& seeds_;
        int64_t round_ = 0;
    };
    Iterator begin() const { return Iterator(*this); }
    Iterator end() const { return Iterator(*this); }

  private:
    static int64_t number_of(const char* variable) {
        const char* text = std::getenv(variable);
        return text ? std::atoll(text) : 0;
    }
    double seconds_so_far() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    }

    int64_t first_, count_, seconds_;
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

/// The text with one to four changes: a bit, a part less, a part more, or one of `parts`, over which readers
/// trip.
inline std::string mutated(std::string text, const std::vector<std::string>& parts, std::mt19937_64& random) {
    const auto below = [&](size_t limit) { return random() % std::max<size_t>(limit, 1); };
    for (size_t left = 1 + below(4); left > 0; --left) {
        const size_t at = below(text.size() + 1);
        switch (below(4)) {
            case 0:
                if (at < text.size()) text[at] = static_cast<char>(text[at] ^ 1 << below(8));
                break;
            case 1:
                text.erase(at, 1 + below(20));
                break;
            case 2:
                text.insert(at, text.substr(below(text.size() + 1), below(30)));
                break;
            default:
                text.insert(at, parts[below(parts.size())]);
        }
    }
    return text;
}

}  // namespace argosy::testing
