// Tests of the watchdogs' connections: order of messages, closed connections, clients that connect and send
// nothing, and more ranks than the soft limit of open files.
#include "watch/watch_connections.h"

#include <ATen/ops/zeros.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
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
    void TearDown() override { synchronize(); }
    static void synchronize() {
        const at::Tensor token = at::zeros({1}, at::kLong);
        testing::world().run({comm::OpKind::AllReduce, token, token});
    }

    /// Receives `count` messages, or as many as arrive within 20 s.
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

TEST_F(StarTest, DeliversTextsBothWaysInOrder) {
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
    std::vector<std::vector<std::string>> texts_by_sender(size_);
    for (const auto& one : receive(2 * (size_ - 1))) texts_by_sender[one.sender].push_back(one.text);
    for (int rank = 1; rank < size_; ++rank) {
        EXPECT_TRUE(connections_->reaches(rank));
        EXPECT_EQ(texts_by_sender[rank],
                  (std::vector<std::string>{"first", std::string(300000, static_cast<char>('a' + rank))}));
        connections_->send(rank, "to " + std::to_string(rank));
    }
}

TEST_F(StarTest, ReportsAClosedConnection) {
    synchronize();
    if (rank_ == 1) connections_.reset();
    if (rank_ != 0) return;
    const auto found = receive(1);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].sender, 1);
    EXPECT_TRUE(found[0].closed);
    EXPECT_FALSE(connections_->reaches(1));
    connections_->send(1, "lost");  // is no error
}

/// Ports of the loopback interface on which a socket listens.
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

/// Connects to each socket that begins to listen, and sends nothing.
class SilentClient {
  public:
    ~SilentClient() {
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

TEST_F(StarTest, IsNotDelayedByASilentConnection) {
    synchronize();
    const SilentClient silent;
    for (int i = 0; i < 5; ++i) {
        const double start = seconds_now();
        // The last rank joins late, after the silent client has connected.
        if (rank_ == size_ - 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        connections_ = std::make_unique<WatchConnections>(world_);
        EXPECT_LT(seconds_now() - start, 4);
        for (int rank = 1; rank < size_; ++rank) EXPECT_TRUE(connections_->reaches(rank));
    }
}

/// Sets the soft limit of open files of this process.
void set_file_limit(rlim_t soft) {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = soft;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/// Rank 0 in this process, all other ranks in a child process.
struct Star {
    explicit Star(int size) : server(0, size) {
        const WatchConnections::ServerAddress address = server.listen(/*one_node=*/true);
        int joined[2];
        if (pipe2(joined, O_CLOEXEC | O_NONBLOCK) != 0) return;
        child = fork();
        if (child == 0) run_others(address, size, joined[1]);
        close(joined[1]);
        char done = 0;
        server.accept_until([&] { return ::read(joined[0], &done, 1) == 1; });
        close(joined[0]);
    }
    ~Star() {
        int status = 0;
        if (child > 0) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
        }
    }

    [[noreturn]] static void run_others(const WatchConnections::ServerAddress& address, int size,
                                        int joined) {
        set_file_limit(4 * size);
        std::deque<WatchConnections> others;
        for (int rank = 1; rank < size; ++rank) {
            others.emplace_back(rank, size).join(address);
            others.back().send(0, "from " + std::to_string(rank));
        }
        if (::write(joined, "j", 1) == 1) pause();
        _exit(0);
    }

    WatchConnections server;
    pid_t child = -1;
};

TEST(WatchConnections, DoNotDependOnTheSoftLimitOfOpenFiles) {
    if (mpi::Comm::world().rank() != 0) return;  // a child process stands for the other ranks
    constexpr int kSize = 201;
    constexpr rlim_t kLow = 64;
    rlimit before = {};
    getrlimit(RLIMIT_NOFILE, &before);
    if (before.rlim_max < 4 * kSize) {
        GTEST_SKIP() << "needs a hard limit of " << 4 * kSize << " open files; it is " << before.rlim_max;
    }
    set_file_limit(kLow);
    Star star(kSize);
    std::set<std::string> texts;
    for (const double start = seconds_now(); texts.size() < kSize - 1 && seconds_now() - start < 20;) {
        for (const auto& one : star.server.receive(0.1)) texts.insert(one.text);
    }
    set_file_limit(before.rlim_cur);
    EXPECT_EQ(texts.size(), kSize - 1);
    for (int rank = 1; rank < kSize; ++rank) ASSERT_TRUE(star.server.reaches(rank)) << rank;
}

TEST_F(StarTest, WakeBeforeReceiveMakesReceiveReturnAtOnce) {
    connections_->wake();
    const double start = seconds_now();
    EXPECT_TRUE(connections_->receive(20).empty());
    EXPECT_LT(seconds_now() - start, 10);
}

}  // namespace
}  // namespace argosy::watch
