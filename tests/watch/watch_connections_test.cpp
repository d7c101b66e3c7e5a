// What reaches whom over the watchdogs' own connections.
#include "watch/watch_connections.h"

#include <ATen/ops/zeros.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "support/world.h"

namespace argosy::watch {
namespace {

class StarTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (size_ == 1) GTEST_SKIP() << "needs two ranks";
    }
    void TearDown() override { meet(); }
    static void meet() {
        const at::Tensor token = at::zeros({1}, at::kLong);
        testing::world().run({comm::OpKind::AllReduce, token, token});
    }

    /// As many as are expected, within seconds.
    std::vector<WatchConnections::Message> receive(size_t count) {
        std::vector<WatchConnections::Message> all;
        for (const double start = seconds_now(); all.size() < count && seconds_now() - start < 20;) {
            for (auto& one : connections_->receive(0.1)) all.push_back(std::move(one));
        }
        return all;
    }

    const mpi::Comm world_ = mpi::Comm::world();
    const int rank_ = world_.rank(), size_ = world_.size();
    std::unique_ptr<WatchConnections> connections_ = std::make_unique<WatchConnections>(world_);
};

TEST_F(StarTest, CarriesTextsBothWaysInOrder) {
    const std::string large(300000, static_cast<char>('a' + rank_));
    if (rank_ != 0) {
        connections_->send(0, "first");
        connections_->send(0, large);
        const auto answer = receive(1);
        ASSERT_EQ(answer.size(), 1U);
        EXPECT_EQ(answer[0].sender, 0);
        EXPECT_EQ(answer[0].text, "to " + std::to_string(rank_));
        return;
    }
    std::vector<std::vector<std::string>> of(size_);
    for (const auto& one : receive(2 * (size_ - 1))) of[one.sender].push_back(one.text);
    for (int rank = 1; rank < size_; ++rank) {
        EXPECT_TRUE(connections_->reaches(rank));
        EXPECT_EQ(of[rank],
                  (std::vector<std::string>{"first", std::string(300000, static_cast<char>('a' + rank))}));
        connections_->send(rank, "to " + std::to_string(rank));
    }
}

TEST_F(StarTest, TellsWhenAConnectionIsGone) {
    meet();
    if (rank_ == 1) connections_.reset();
    if (rank_ != 0) return;
    const auto found = receive(1);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].sender, 1);
    EXPECT_TRUE(found[0].closed);
    EXPECT_FALSE(connections_->reaches(1));
    connections_->send(1, "lost");  // is no error
}

/// Ports of the loopback on which somebody listens.
std::set<int> listening_ports() {
    constexpr int kListens = 0x0A;
    std::set<int> ports;
    std::ifstream table("/proc/net/tcp");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
        unsigned int address = 0, port = 0, state = 0;
        if (std::sscanf(line.c_str(), " %*d: %x:%x %*x:%*x %x", &address, &port, &state) == 3 &&
            address == htonl(INADDR_LOOPBACK) && state == kListens) {
            ports.insert(static_cast<int>(port));
        }
    }
    return ports;
}

/// Connects to whatever begins to listen, and says nothing.
class Silent {
  public:
    ~Silent() {
        ends_ = true;
        thread_.join();
    }

  private:
    void run() {
        for (; !ends_; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
            for (const int port : listening_ports()) {
                if (!known_.insert(port).second) continue;
                Descriptor& socket = sockets_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
                sockaddr_in to = {};
                to.sin_family = AF_INET;
                to.sin_port = htons(static_cast<in_port_t>(port));
                to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                static_cast<void>(
                    connect(socket.number(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)));
            }
        }
    }

    std::set<int> known_ = listening_ports();
    std::vector<Descriptor> sockets_;
    std::atomic<bool> ends_ = false;
    std::thread thread_{[this] { run(); }};
};

TEST_F(StarTest, IsNotKeptByOneWhoSaysNothing) {
    meet();
    const Silent silent;
    for (int i = 0; i < 5; ++i) {
        const double start = seconds_now();
        // The last of the ranks comes late, when the silent ones have connected.
        if (rank_ == size_ - 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        connections_ = std::make_unique<WatchConnections>(world_);
        EXPECT_LT(seconds_now() - start, 4);
        for (int rank = 1; rank < size_; ++rank) EXPECT_TRUE(connections_->reaches(rank));
    }
}

TEST_F(StarTest, IsWokenWithoutAMessage) {
    connections_->wake();
    const double start = seconds_now();
    EXPECT_TRUE(connections_->receive(20).empty());
    EXPECT_LT(seconds_now() - start, 10);
}

}  // namespace
}  // namespace argosy::watch
