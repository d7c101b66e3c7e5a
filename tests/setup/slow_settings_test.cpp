// pretrain.gpu tests the warnings.
#include "setup/rank_context.h"

#include <gtest/gtest.h>

#include <fstream>

#include "scratch_folder.h"

namespace argosy::setup {
namespace {

TEST(ActiveAdapter, HasAPortThatIsUp) {
    const ScratchFolder folder;
    const std::filesystem::path adapters = folder / "infiniband";
    EXPECT_FALSE(has_active_adapter(adapters));
    const auto add_port = [&](const char* port, const char* state) {
        std::filesystem::create_directories(adapters / port);
        std::ofstream(adapters / port / "state") << state << '\n';
    };
    add_port("mlx5_0/ports/1", "1: DOWN");
    add_port("mlx5_1/ports/1", "2: INIT");
    std::filesystem::create_directories(adapters / "mlx5_2");
    EXPECT_FALSE(has_active_adapter(adapters));
    add_port("mlx5_1/ports/2", "4: ACTIVE");
    EXPECT_TRUE(has_active_adapter(adapters));
    std::ofstream(adapters / "mlx5_1/ports/2/phys_state") << "2: Polling\n";
    EXPECT_FALSE(has_active_adapter(adapters));
    std::ofstream(adapters / "mlx5_1/ports/2/phys_state") << "5: LinkUp\n";
    EXPECT_TRUE(has_active_adapter(adapters));
}

}  // namespace
}  // namespace argosy::setup
