#include "setup/run_inputs.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/token_files.h"
#include "expect_error.h"
#include "scratch_folder.h"
#include "tokenizer/bpe_trainer.h"

namespace argosy::setup {
namespace {

class DataSourcesTest : public testing::Test {
  protected:
    DataSourcesTest() {
        spec_.vocab_size = 100;
        config_.training.seq_len = 4;
    }

    void write(const char* name, int64_t vocab_size, const std::string& digest) const {
        data::TokenWriter writer(folder_ / name, vocab_size);
        writer.append_document(data::counted_tokens(50));
        writer.commit({.vocab_size = vocab_size, .tokenizer = "t", .tokenizer_digest = digest});
    }

    int64_t num_samples() const { return training_data(config_, spec_).num_samples(); }

    ScratchFolder folder_;
    config::JobConfig config_;
    model::ModelSpec spec_;
};

TEST_F(DataSourcesTest, AreAPathOrAMixture) {
    write("a.h5", 50, "");
    write("b.h5", 100, "");
    EXPECT_ERROR(num_samples(), UserError, "neither training.dataset_path nor data.mixture is set");
    config_.training.dataset_path = folder_ / "a.h5";
    EXPECT_EQ(num_samples(), 12);
    config_.training.dataset_path.clear();
    config_.data.mixture = {{folder_ / "a.h5", 2}, {folder_ / "?.h5", 1}};
    EXPECT_EQ(num_samples(), 36);
}

TEST_F(DataSourcesTest, FitTheModelsVocabulary) {
    write("a.h5", 101, "");
    config_.training.dataset_path = folder_ / "a.h5";
    EXPECT_ERROR(num_samples(), UserError, "a.h5 has a vocabulary of 101 tokens, but the model's has 100",
                 "config.json with that vocab_size");
    config_.training.dataset_path = folder_ / "none.h5";
    EXPECT_ERROR(num_samples(), UserError, "training.dataset_path: there is no file", "none.h5");
}

// The digests are those that xxHash documents for no bytes.
TEST_F(DataSourcesTest, AreMadeWithTheModelsTokenizer) {
    const std::string digest = "99aa06d3014798d86001c324468d497f";
    write_file(folder_ / "tokenizer.json", "");
    write_file(folder_ / "config.json", "{}");
    config_.model.hf_assets_path = folder_ / "";
    config_.training.dataset_path = folder_ / "a.h5";
    write("a.h5", 50, digest);
    EXPECT_EQ(num_samples(), 12);
    write("a.h5", 50, "");
    EXPECT_EQ(num_samples(), 12) << "a file that does not say its tokenizer";
    write("a.h5", 50, "0a");
    EXPECT_ERROR(num_samples(), UserError, "a.h5 was made with another tokenizer (XXH3-128 0a)",
                 "tokenizer.json", digest, "move the model's tokenizer.json away");
    data::TokenWriter bytes(folder_ / "a.h5", 50);
    bytes.append_document(data::counted_tokens(50));
    bytes.commit({.vocab_size = 50, .tokenizer = "bytes"});
    EXPECT_ERROR(num_samples(), UserError, "a.h5 was made with another tokenizer (bytes)");
    std::filesystem::rename(folder_ / "tokenizer.json", folder_ / "tokenizer.model");
    EXPECT_ERROR(num_samples(), UserError, "another tokenizer", "tokenizer.model");
    std::filesystem::remove(folder_ / "tokenizer.model");
    EXPECT_EQ(num_samples(), 12);
}

TEST_F(DataSourcesTest, ATokenizerAloneFitsTheModelsVocabulary) {
    tokenizer::BpeTrainer trainer(tokenizer::TrainedPattern::Gpt2, 257);
    trainer.add("some words");
    write_file(folder_ / "tokenizer.json", trainer.train().tokenizer_json);
    config_.model.hf_assets_path = folder_ / "";
    config_.training.dataset_path = folder_ / "a.h5";
    write("a.h5", 50, "");
    EXPECT_ERROR(num_samples(), UserError,
                 "tokenizer.json has a vocabulary of 257 tokens, but the model's has 100");
    spec_.vocab_size = 257;
    EXPECT_EQ(num_samples(), 12);
}

}  // namespace
}  // namespace argosy::setup
