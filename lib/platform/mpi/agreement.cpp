#include "mpi/agreement.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/program.h"
#include "base/text.h"
#include "mpi/start_up.h"

namespace argosy::mpi {
namespace {

constexpr const char* kOtherKeys = "keys that rank 0 lacks";

uint64_t hash_of(const Fact& fact) {
    const std::string text = fact.key + '\0' + fact.value;
    return XXH3_64bits(text.data(), text.size());
}

/// Rank 0's hash of one fact. Equal keys have equal hashes, and so have equal facts.
struct FactHash {
    uint64_t key = 0, fact = 0;
};

std::vector<FactHash> hashes_of(const std::vector<Fact>& facts) {
    std::vector<FactHash> hashes;
    for (const Fact& fact : facts)
        hashes.push_back({XXH3_64bits(fact.key.data(), fact.key.size()), hash_of(fact)});
    return hashes;
}

/// The value of one key, as a rank sends it to rank 0. `text` has the first characters of a long one.
struct Record {
    uint64_t hash = 0;
    char text[504] = {};
};

Record record_of(const Fact& fact) {
    Record record{.hash = hash_of(fact)};
    const std::string text = on_one_line(fact.note.empty() ? fact.value : fact.value + " " + fact.note);
    constexpr size_t kMaxBytes = sizeof(record.text) - 1;
    text.copy(record.text, kMaxBytes);
    if (text.size() > kMaxBytes) std::memcpy(record.text + kMaxBytes - 3, "...", 3);
    return record;
}

void exchange(Request request) {
    const BoundedCall call("the comparison of the ranks' settings");
    wait(request);
}

template <class Item>
void broadcast(const Comm& ranks, std::span<Item> items) {
    exchange(ranks.broadcast(items.data(), items.size_bytes(), ElementType::UInt8, /*root=*/0));
}

/// COLLECTIVE: whether the number is the same on all ranks.
bool is_same(const Comm& ranks, uint64_t own) {
    std::array<uint64_t, 2> max = {own, ~own};  // the maximum of ~own is the complement of the minimum
    exchange(ranks.all_reduce(max.data(), max.data(), max.size(), ElementType::UInt64, Reduction::Max));
    return max[0] == ~max[1];
}

/// The facts of this rank in the order of rank 0's. The last item stands for the facts whose keys rank 0
/// lacks.
std::vector<Fact> in_order_of(const std::vector<FactHash>& root, const std::vector<Fact>& own) {
    std::map<uint64_t, const Fact*> by_key;
    const std::vector<FactHash> hashes = hashes_of(own);
    for (size_t i = 0; i < own.size(); ++i) by_key[hashes[i].key] = &own[i];
    std::vector<Fact> ordered;
    for (const FactHash& one : root) {
        const auto found = by_key.extract(one.key);
        ordered.push_back(found ? *found.mapped() : Fact{"", kNoFact});
    }
    std::vector<std::string> others;
    for (const auto& [key, fact] : by_key) others.push_back(fact->key);
    std::ranges::sort(others);
    ordered.push_back({kOtherKeys, others.empty() ? kNoFact : listed(others)});
    return ordered;
}

/// COLLECTIVE: gathers the values of one key on rank 0.
Difference gather_values(const Comm& ranks, const std::string& key, const Fact& own) {
    const Record record = record_of({key, own.value, own.note});
    std::vector<Record> all(ranks.rank() == 0 ? ranks.size() : 0);
    exchange(ranks.gather(all.data(), &record, sizeof(Record), ElementType::UInt8, /*root=*/0));
    std::map<uint64_t, std::pair<std::string, std::vector<int>>> by_hash;
    for (int rank = 0; rank < std::ssize(all); ++rank) {
        auto& [value, its_ranks] = by_hash[all[rank].hash];
        if (its_ranks.empty()) value = all[rank].text;
        its_ranks.push_back(rank);
    }
    Difference difference{key};
    for (auto& [hash, value] : by_hash) difference.values.push_back(std::move(value));
    std::ranges::sort(difference.values, std::ranges::greater(),
                      [](const auto& one) { return std::pair(one.second.size(), -one.second.front()); });
    return difference;
}

}  // namespace

std::vector<Difference> find_differences(const Comm& ranks, const std::vector<Fact>& own) {
    uint64_t own_hash = own.size();
    for (const Fact& fact : own) {
        const std::array<uint64_t, 2> both = {own_hash, hash_of(fact)};
        own_hash = XXH3_64bits(both.data(), sizeof(both));
    }
    if (ranks.size() == 1 || is_same(ranks, own_hash)) return {};

    std::vector<FactHash> root = hashes_of(own);
    uint64_t num_facts = own.size();
    broadcast(ranks, std::span(&num_facts, 1));
    root.resize(num_facts);
    broadcast(ranks, std::span(root));
    const std::vector<Fact> ordered = in_order_of(root, own);
    std::vector<uint8_t> differs(ordered.size());
    for (size_t i = 0; i < root.size(); ++i) differs[i] = hash_of(ordered[i]) != root[i].fact;
    differs.back() = ordered.back().value != kNoFact;
    exchange(
        ranks.all_reduce(differs.data(), differs.data(), differs.size(), ElementType::UInt8, Reduction::Max));

    std::vector<Difference> differences;
    for (size_t i = 0; i < differs.size() && differences.size() < kMaxDifferences; ++i) {
        if (!differs[i]) continue;
        std::vector<char> key(128);  // rank 0's, because another rank may lack the fact
        ordered[i].key.copy(key.data(), key.size() - 1);
        broadcast(ranks, std::span(key));
        differences.push_back(gather_values(ranks, key.data(), ordered[i]));
        differences.back().remedy = ordered[i].remedy;
    }
    return differences;
}

std::string describe(const Difference& difference) {
    constexpr size_t kMaxShown = 4, kMaxNamed = 8;
    std::string text;
    for (size_t i = 0; i < std::min(difference.values.size(), kMaxShown); ++i) {
        const auto& [value, ranks] = difference.values[i];
        text += fmt::format("{} {} on rank {}", i == 0 ? ":" : ";", value, listed(ranks, kMaxNamed));
    }
    const size_t num_left = difference.values.size() - std::min(difference.values.size(), kMaxShown);
    return difference.key + text + (num_left > 0 ? fmt::format("; and {} more values", num_left) : "");
}

void require_same(const Comm& ranks, const std::vector<Fact>& own) {
    const std::vector<Difference> differences = find_differences(ranks, own);
    if (differences.empty()) return;
    std::string text, remedies;
    for (const Difference& one : differences) {
        text += describe(one) + ". ";
        if (remedies.find(one.remedy) == std::string::npos)
            remedies += (remedies.empty() ? "" : "; ") + std::string(one.remedy);
    }
    throw UserError("the ranks differ in what they start with. {}Remedy: {}", text, remedies);
}

std::string digest_of_file(const std::filesystem::path& path) {
    const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                                &XXH3_freeState);
    std::ifstream file(path, std::ios::binary);
    if (!state || !file || XXH3_64bits_reset(state.get()) != XXH_OK) return "";
    std::vector<char> part(1 << 20);
    while (file.read(part.data(), static_cast<std::streamsize>(part.size())) || file.gcount() > 0) {
        if (XXH3_64bits_update(state.get(), part.data(), file.gcount()) != XXH_OK) return "";
    }
    return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

Fact executable_fact() {
    std::error_code ignored;
    const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", ignored);
    return {"executable", digest_of_file("/proc/self/exe"),
            fmt::format("({}, {})", path.string(), version())};
}

}  // namespace argosy::mpi
