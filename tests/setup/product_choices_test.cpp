// A resumed run finds its algorithms again: on the stand-in for cuBLASLt, whose algorithms round differently
// and take the times that a test sets.
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/error.h"
#include "expect_error.h"
#include "gpu/device.h"
#include "ops/matmul.h"
#include "scratch_folder.h"
#include "setup/process.h"
#include "support/fake_cublaslt.h"
#include "support/fake_gpus.h"
#include "support/world.h"

namespace argosy::setup {
namespace {

class ProductChoicesTest : public ::testing::Test {
  protected:
    ProductChoicesTest() {
        testing::fake_gpus().num_devices = 1;
        gpu::use(0);
        config_.job.dump_folder = (folder_ / "").string();
        config_.compile.search_algorithms = true;
    }

    /// One run of the program with one product, whose algorithms take these times; returns the product's
    /// result. Calls `more` within the run.
    at::Tensor run(
        std::vector<double> seconds, const std::function<void(ProductChoices&)>& more = [](auto&) {}) {
        testing::fake_cublaslt() = {};
        testing::fake_cublaslt().seconds = std::move(seconds);
        ops::OpsContext tensors(ops::Path::Fused, config_.compile.search_algorithms
                                                      ? cublas::Search::Timed
                                                      : cublas::Search::Heuristic);
        ProductChoices choices(config_, testing::world(), tensors);
        ops::linear_weight_gradient(y_, x_, x_, /*accumulate=*/false);
        gpu::synchronize();
        choices.keep();
        const at::Tensor found = y_.clone();
        more(choices);
        return found;
    }

    std::filesystem::path file() const { return folder_ / "products" / "rank-00000.txt"; }

    ScratchFolder folder_;
    config::JobConfig config_;
    // The input is the same in every run, because the key of an algorithm includes the alignment of memory.
    at::Tensor x_ = at::linspace(-1, 1, 48 * 64, at::kFloat).view({48, 64});
    at::Tensor y_ = at::empty({64, 64}, at::kFloat);
};

TEST_F(ProductChoicesTest, ALaterRunComputesTheSameBits) {
    const at::Tensor first = run({10, 10, 1});
    EXPECT_TRUE(run({1, 10, 10}).equal(first));
    std::filesystem::remove(file());
    EXPECT_FALSE(run({1, 10, 10}).equal(first)) << "the algorithms round in one way: nothing is tested";
}

TEST_F(ProductChoicesTest, AlgorithmsOfLaterStepsAreKeptToo) {
    const auto lines = [&] {
        std::ifstream stream(file());
        return std::count(std::istreambuf_iterator<char>(stream), {}, '\n');
    };
    run({1, 10, 10}, [&](ProductChoices& choices) {
        const auto num_lines = lines();
        choices.keep();
        EXPECT_EQ(lines(), num_lines) << "nothing new";
        at::Tensor y = at::empty({64, 64}, at::kFloat);
        ops::linear_weight_gradient(y, x_, x_, /*accumulate=*/true);
        gpu::synchronize();
        choices.keep();
        EXPECT_EQ(lines(), num_lines + 1);
    });
}

TEST_F(ProductChoicesTest, NothingIsKeptWithoutASearch) {
    config_.compile.search_algorithms = false;
    run({10});
    EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(ProductChoicesTest, AnInvalidFileIsNamedInTheError) {
    std::filesystem::create_directories(file().parent_path());
    std::ofstream(file()) << "no algorithm\n";
    EXPECT_ERROR(run({10}), UserError, file().string(), "line 1 of the file of matrix");
}

}  // namespace
}  // namespace argosy::setup
