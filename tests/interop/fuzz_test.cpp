// Seeded mutations of sound files: whatever comes of them is a table that holds, or a UserError. Under the
// sanitizers this is what looks for reads beyond a buffer and overflows.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "interop/safetensors.h"
#include "interop/safetensors_files.h"
#include "model/model_spec.h"
#include "model/units.h"
#include "scratch_folder.h"
#include "support/fuzzing.h"

namespace argosy::interop {
namespace {

const std::vector<std::string> kDictionary = {"{",
                                              "}",
                                              "[",
                                              "]",
                                              ":",
                                              ",",
                                              "\"",
                                              "\\",
                                              "\\u0000",
                                              "\\ud800",
                                              "-",
                                              "-1",
                                              "0",
                                              "1e400",
                                              "0.5",
                                              "null",
                                              "true",
                                              " ",
                                              "\n",
                                              "18446744073709551615",
                                              "18446744073709551616",
                                              "9223372036854775807",
                                              "4611686018427387904",
                                              "4294967296",
                                              "\"__metadata__\"",
                                              "\"dtype\"",
                                              "\"shape\"",
                                              "\"data_offsets\"",
                                              "\"F32\"",
                                              "\"F4\"",
                                              "[0,0]",
                                              "[[",
                                              "{}",
                                              "\xff",
                                              "\xc3"};

class Mutator {
  public:
    explicit Mutator(uint32_t seed) : random_(seed) {}

    std::string mutate(std::string text) {
        for (size_t changes = 1 + random_() % 4; changes > 0; --changes) change(text);
        return text;
    }
    size_t below(size_t bound) { return random_() % std::max<size_t>(bound, 1); }

  private:
    void change(std::string& text) {
        const size_t at = below(text.size() + 1), length = std::min(text.size() - at, 1 + below(12));
        const std::string& word = kDictionary[below(kDictionary.size())];
        switch (below(6)) {
            case 0:
                text.insert(at, word);
                break;
            case 1:
                text.replace(at, length, word);
                break;
            case 2:
                text.erase(at, length);
                break;
            case 3:
                text.insert(below(text.size() + 1), text.substr(at, 1 + below(80)));
                break;
            case 4:
                if (at < text.size()) text[at] = static_cast<char>(random_());
                break;
            default:
                if (at < text.size()) text[at] ^= static_cast<char>(1 << below(8));
        }
    }

    std::mt19937 random_;
};

const std::string kHeader =
    R"({"__metadata__":{"format":"pt"},"model.norm.weight":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
    R"("b":{"dtype":"BF16","shape":[2,5],"data_offsets":[12,32]},"c":{"dtype":"U8","shape":[0,7],"data_offsets":[32,32]},)"
    R"("d":{"dtype":"I64","shape":[],"data_offsets":[32,40]}}      )";
constexpr int64_t kDataBytes = 40;

/// Mutations that were accepted: some should be, or the mutator does nothing interesting.
struct Count {
    int accepted = 0, refused = 0;
    template <class Call>
    void run(Call&& call) {
        try {
            call();
            ++accepted;
        } catch (const UserError& error) {
            ++refused;
            EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
        }
    }
    void expect_both() const {
        EXPECT_GT(accepted, 20);
        EXPECT_GT(refused, 1000);
    }
};

TEST(SafetensorsFuzz, HeadersGiveATableThatCoversTheFileOrAnError) {
    Count count;
    for (const uint64_t seed : testing::FuzzSeeds(30000)) {
        Mutator mutator(static_cast<uint32_t>(seed));
        const std::string text = mutator.mutate(kHeader);
        count.run([&] {
            int64_t reached = 0;
            for (const SafetensorsEntry& entry : parse_safetensors_header(text, kDataBytes, "F")) {
                ASSERT_EQ(entry.at, reached) << text;
                reached += entry.info.num_bytes();
            }
            ASSERT_EQ(reached, kDataBytes) << text;
        });
    }
    count.expect_both();
}

TEST(SafetensorsFuzz, IndicesGiveNamesOfFilesBesideThemOrAnError) {
    const std::string index =
        R"({"metadata":{"total_size":40},"weight_map":{"a":"model-00001-of-00002.safetensors",)"
        R"("b":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors"}})";
    Count count;
    for (const uint64_t seed : testing::FuzzSeeds(30000)) {
        Mutator mutator(static_cast<uint32_t>(seed));
        const std::string text = mutator.mutate(index);
        count.run([&] {
            for (const auto& [tensor, file] : parse_weights_index(text, "F")) {
                ASSERT_EQ(file.find('/'), std::string::npos) << text;
                ASSERT_TRUE(file.ends_with(".safetensors")) << text;
            }
        });
    }
    count.expect_both();
}

TEST(SafetensorsFuzz, FilesGiveTensorsThatCanAllBeReadOrAnError) {
    const ScratchFolder folder;
    const auto path = folder / "x.safetensors";
    const std::string sound = safetensors_bytes(kHeader, kDataBytes);
    Count count;
    for (const uint64_t seed : testing::FuzzSeeds(4000)) {
        Mutator mutator(static_cast<uint32_t>(seed));
        std::filesystem::remove(path);  // emptying it instead would wait for the disk
        write_file(path, mutator.below(8) == 0 ? sound.substr(0, mutator.below(sound.size()))
                                               : mutator.mutate(sound));
        count.run([&] {
            const Safetensors file(path);
            for (const checkpoint::TensorInfo& tensor : file.tensors()) {
                std::vector<std::byte> bytes(tensor.num_bytes());
                file.read(tensor, layout::whole(tensor.shape), bytes);
            }
        });
    }
    count.expect_both();
}

TEST(ConfigFuzz, ConfigsGiveAModelWhoseSizesCanBeCountedOrAnError) {
    const model::ModelSpec spec = model::preset("llama3", "8B");
    const std::string config = model::hugging_face_config(spec, "bfloat16");
    Count count;
    for (const uint64_t seed : testing::FuzzSeeds(10000)) {
        Mutator mutator(static_cast<uint32_t>(seed));
        const std::string text = mutator.mutate(config);
        count.run([&] {
            const model::ModelSpec read = model::parse_hugging_face_config(text, "F");
            // Here the sanitizers look for overflow; a model of 65536 layers would take too long for a test.
            if (read.num_layers < 200) {
                ASSERT_GT(model::num_parameters(read), 0);
            }
        });
    }
    count.expect_both();
}

}  // namespace
}  // namespace argosy::interop
