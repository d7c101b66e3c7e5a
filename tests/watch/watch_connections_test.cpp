// Tests of the watchdogs' connections, as a star and as a chain: order of messages, closed connections, ranks
// that leave or stand still on the way of others, clients that connect and send nothing, and more ranks than
// the soft limit of open files.
#include "watch/watch_tree.h"

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

/// The parameter is the fan-out.
class TreeTest : public ::testing::TestWithParam<int> {
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
    std::vector<WatchTree::Message> receive(size_t count) {
        std::vector<WatchTree::Message> all;
        for (const double start = seconds_now(); all.size() < count && seconds_now() - start < 20;) {
            for (auto& one : connections_->receive(0.1)) all.push_back(std::move(one));
        }
        return all;
    }

    /// Returns the texts that arrive before the text "end". Passes on those for other ranks meanwhile.
    std::vector<std::string> receive_until_end() {
        std::vector<std::string> texts;
        for (const double start = seconds_now(); seconds_now() - start < 20;) {
            for (const auto& one : connections_->receive(0.1)) {
                if (one.text == "end") return texts;
                texts.push_back(one.text);
            }
        }
        ADD_FAILURE() << "no end";
        return texts;
    }

    const mpi::Comm world_ = mpi::Comm::world();
    const int rank_ = world_.rank(), size_ = world_.size();
    std::unique_ptr<WatchTree> connections_ = std::make_unique<WatchTree>(world_, GetParam());
};
INSTANTIATE_TEST_SUITE_P(FanOut, TreeTest, ::testing::Values(1, 2, 128),
                         [](const auto& one) { return std::to_string(one.param); });

TEST_P(TreeTest, DeliversTextsBothWaysInOrder) {
    const std::string large(300000, static_cast<char>('a' + rank_));
    if (rank_ != 0) {
        connections_->send(0, "first");
        connections_->send(0, large);
        EXPECT_EQ(receive_until_end(), std::vector<std::string>{"to " + std::to_string(rank_)});
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
    connections_->send_to_all("end");
}

TEST_P(TreeTest, ReportsAClosedConnection) {
    synchronize();
    const int last = size_ - 1;
    if (rank_ == last) connections_.reset();
    if (rank_ != 0 && rank_ != last) receive_until_end();
    if (rank_ != 0) return;
    const auto found = receive(1);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].sender, last);
    EXPECT_TRUE(found[0].closed);
    EXPECT_FALSE(connections_->reaches(last));
    connections_->send(last, "lost");  // is no error
    for (int rank = 1; rank < last; ++rank) EXPECT_TRUE(connections_->reaches(rank));
    connections_->send_to_all("end");
}

TEST_P(TreeTest, ARankBehindAClosedConnectionIsNotReachedAndNotClosed) {
    synchronize();
    if (rank_ == 1) connections_.reset();
    if (rank_ > 1 && connections_->parent_of(rank_) == 1) {
        const auto found = receive(1);
        ASSERT_EQ(found.size(), 1U);
        EXPECT_EQ(found[0].sender, 1);
        EXPECT_TRUE(found[0].closed);
        EXPECT_FALSE(connections_->reaches(0));
    }
    if (rank_ != 0) return;
    for (const auto& one : receive(1)) EXPECT_EQ(one.sender, 1);
    EXPECT_TRUE(connections_->receive(0.2).empty());
    for (int rank = 2; rank < size_; ++rank) {
        int other = rank;
        while (other > 1) other = connections_->parent_of(other);
        EXPECT_EQ(connections_->reaches(rank), other != 1) << rank;
    }
}

TEST_P(TreeTest, ARankThatHasLeftPassesTextsOn) {
    if (connections_->is_between()) {
        connections_->send(0, "left");
        connections_->relay();
    } else if (rank_ != 0) {
        connections_->send(0, "late");
        EXPECT_TRUE(receive_until_end().empty());
    } else {
        std::multiset<std::string> texts;
        for (const auto& one : receive(size_ - 1)) texts.insert(one.text);
        EXPECT_GE(texts.count("late"), 1U);
        EXPECT_EQ(texts.count("late") + texts.count("left"), size_ - 1U);
        connections_->send_to_all("end");
    }
    connections_.reset();
}

TEST_P(TreeTest, DoesNotWaitForARankThatReadsNothing) {
    constexpr int kTexts = 40;
    const std::string large(1 << 20, 'x');
    if (rank_ == 1) {
        synchronize();
        EXPECT_EQ(receive(kTexts).size(), kTexts);
        return;
    }
    if (rank_ == 0) {
        const double start = seconds_now();
        for (int i = 0; i < kTexts; ++i) connections_->send(1, large);
        EXPECT_LT(seconds_now() - start, 1);
    }
    synchronize();
    if (rank_ == 0) connections_->flush();
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

TEST_P(TreeTest, IsNotDelayedByASilentConnection) {
    synchronize();
    const SilentClient silent;
    for (int i = 0; i < 5; ++i) {
        const double start = seconds_now();
        // The last rank joins late, after the silent client has connected.
        if (rank_ == size_ - 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        connections_ = std::make_unique<WatchTree>(world_, GetParam());
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
    explicit Star(int size) : server(TreePlace{0, size, size}) {
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
        std::deque<WatchTree> others;
        for (int rank = 1; rank < size; ++rank) {
            others.emplace_back(TreePlace{rank, size, size}).join(address);
            others.back().send(0, "from " + std::to_string(rank));
        }
        if (::write(joined, "j", 1) == 1) pause();
        _exit(0);
    }

    WatchTree server;
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

TEST_P(TreeTest, WakeBeforeReceiveMakesReceiveReturnAtOnce) {
    connections_->wake();
    const double start = seconds_now();
    EXPECT_TRUE(connections_->receive(20).empty());
    EXPECT_LT(seconds_now() - start, 10);
}

}  // namespace
}  // namespace argosy::watch
