#include "comm/watch_star.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "mpi/blocking_call.h"

namespace argosy::comm {
namespace {

constexpr int kMostAddresses = 16;
constexpr double kSecondsToConnect = 2, kSecondsToGreet = 5, kSecondsToSend = 2;
constexpr uint32_t kMostBytes = 1 << 24;

/// The first that a rank says, and rank 0's answer.
struct Greeting {
    uint64_t key;
    int32_t rank;
};

bool is_ready(int descriptor, short what, double seconds) {
    pollfd one{descriptor, what, 0};
    return poll(&one, 1, static_cast<int>(std::ceil(seconds * 1e3))) == 1;
}

bool send_all(int socket, const void* data, size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += sent;
            bytes -= sent;
        } else if ((errno != EAGAIN && errno != EINTR) || !is_ready(socket, POLLOUT, kSecondsToSend)) {
            return false;
        }
    }
    return true;
}

std::optional<Greeting> receive_greeting(int socket) {
    Greeting greeting;
    size_t got = 0;
    while (got < sizeof(greeting)) {
        if (!is_ready(socket, POLLIN, kSecondsToGreet)) return std::nullopt;
        const ssize_t more =
            recv(socket, reinterpret_cast<char*>(&greeting) + got, sizeof(greeting) - got, MSG_DONTWAIT);
        if (more <= 0) return std::nullopt;
        got += more;
    }
    return greeting;
}

void send_at_once(int socket) {
    const int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

sockaddr_in address_of(in_addr_t host, in_port_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = host;
    address.sin_port = port;
    return address;
}

Descriptor connected_to(const sockaddr_in& address) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const auto* const to = reinterpret_cast<const sockaddr*>(&address);
    if (::connect(socket.number(), to, sizeof(address)) != 0) {
        if (errno != EINPROGRESS || !is_ready(socket.number(), POLLOUT, kSecondsToConnect))
            return Descriptor();
        int error = 0;
        socklen_t length = sizeof(error);
        getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &length);
        if (error != 0) return Descriptor();
    }
    send_at_once(socket.number());
    return socket;
}

/// Where others may reach this node.
std::vector<in_addr_t> own_addresses(bool one_node) {
    if (one_node) return {htonl(INADDR_LOOPBACK)};
    std::vector<in_addr_t> found;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return found;
    for (const ifaddrs* one = all; one && std::ssize(found) < kMostAddresses; one = one->ifa_next) {
        const bool up = (one->ifa_flags & IFF_UP) && !(one->ifa_flags & IFF_LOOPBACK);
        if (!up || !one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
        found.push_back(reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr);
    }
    freeifaddrs(all);
    return found;
}

void finish(mpi::Request request) {
    while (!mpi::test_all({&request, 1})) sched_yield();
}

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
}

Descriptor::~Descriptor() {
    if (number_ >= 0) close(number_);
}

/// Where rank 0 is.
struct WatchStar::Card {
    uint64_t key = 0;
    in_port_t port = 0;
    int32_t num_addresses = 0;
    in_addr_t addresses[kMostAddresses] = {};
};

WatchStar::WatchStar(const mpi::Comm& world)
    : rank_(world.rank()), size_(world.size()), waker_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (size_ > 1) listen_for(world);
}

void WatchStar::listen_for(const mpi::Comm& world) {
    const mpi::BlockingCall call("connecting the watchdogs of all ranks");
    const bool one_node = world.within_one_node();
    Card card;
    if (rank_ == 0) {
        listener_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        sockaddr_in own = address_of(htonl(one_node ? INADDR_LOOPBACK : INADDR_ANY), 0);
        socklen_t length = sizeof(own);
        auto* const address = reinterpret_cast<sockaddr*>(&own);
        if (bind(listener_.number(), address, length) != 0 || listen(listener_.number(), size_) != 0 ||
            getsockname(listener_.number(), address, &length) != 0 ||
            getrandom(&card.key, sizeof(card.key), 0) != sizeof(card.key)) {
            throw RunError("the watchdog cannot listen for other ranks: {}", std::strerror(errno));
        }
        card.port = own.sin_port;
        const std::vector<in_addr_t> addresses = own_addresses(one_node);
        card.num_addresses = static_cast<int32_t>(addresses.size());
        std::ranges::copy(addresses, card.addresses);
    }
    finish(world.broadcast(&card, sizeof(card), ElementType::UInt8, 0));
    if (rank_ != 0) {
        join(card);
        return finish(world.barrier());
    }
    // Until all others have tried.
    mpi::Request request = world.barrier();
    while (!mpi::test_all({&request, 1})) {
        if (!accept_one(card.key)) sched_yield();
    }
    listener_ = Descriptor();
}

void WatchStar::join(const Card& card) {
    for (int i = 0; i < card.num_addresses && peers_.empty(); ++i) {
        Descriptor socket = connected_to(address_of(card.addresses[i], card.port));
        const Greeting own{card.key, rank_};
        if (socket.number() < 0 || !send_all(socket.number(), &own, sizeof(own))) continue;
        const auto answer = receive_greeting(socket.number());
        if (answer && answer->key == card.key) peers_.emplace(0, Peer{std::move(socket), {}});
    }
    if (peers_.empty()) {
        spdlog::warn(
            "the watchdog of rank {} does not reach that of rank 0 by TCP (port {}, {} addresses tried): "
            "should "
            "the job hang, this rank cannot be told, nor asked",
            rank_, ntohs(card.port), card.num_addresses);
    }
}

bool WatchStar::accept_one(uint64_t key) {
    Descriptor socket(accept4(listener_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.number() < 0) return false;
    const auto greeting = receive_greeting(socket.number());
    if (!greeting || greeting->key != key || !send_all(socket.number(), &*greeting, sizeof(*greeting)))
        return true;
    send_at_once(socket.number());
    peers_.insert_or_assign(greeting->rank, Peer{std::move(socket), {}});
    return true;
}

void WatchStar::send(int rank, const std::string& text) {
    const auto peer = peers_.find(rank);
    if (peer == peers_.end()) return;
    const auto bytes = static_cast<uint32_t>(text.size());
    std::string frame(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    frame += text;
    if (send_all(peer->second.socket.number(), frame.data(), frame.size())) return;
    // Of one that is gone receive() tells; what follows half a text another would not understand.
    if (errno != EPIPE && errno != ECONNRESET) drop(rank);
}

std::vector<WatchStar::Message> WatchStar::receive(double seconds) {
    std::vector<pollfd> polled = {{waker_.number(), POLLIN, 0}};
    std::vector<int> senders = {-1};
    for (const auto& [rank, peer] : peers_) {
        polled.push_back({peer.socket.number(), POLLIN, 0});
        senders.push_back(rank);
    }
    std::vector<Message> messages;
    if (poll(polled.data(), polled.size(), static_cast<int>(std::ceil(seconds * 1e3))) <= 0) return messages;
    uint64_t count = 0;
    if (polled[0].revents != 0) static_cast<void>(!::read(waker_.number(), &count, sizeof(count)));
    for (size_t i = 1; i < polled.size(); ++i) {
        if (polled[i].revents != 0) read(senders[i], peers_.at(senders[i]), messages);
    }
    for (const Message& message : messages) {
        if (message.closed) peers_.erase(message.sender);
    }
    return messages;
}

void WatchStar::read(int sender, Peer& peer, std::vector<Message>& messages) {
    char buffer[1 << 16];
    bool closed = false;
    for (;;) {
        const ssize_t bytes = recv(peer.socket.number(), buffer, sizeof(buffer), MSG_DONTWAIT);
        if (bytes > 0) {
            peer.received.append(buffer, bytes);
            continue;
        }
        closed = bytes == 0 || (errno != EAGAIN && errno != EINTR);
        if (bytes != 0 && errno == EINTR) continue;
        break;
    }
    uint32_t bytes = 0;
    while (peer.received.size() >= sizeof(bytes)) {
        std::memcpy(&bytes, peer.received.data(), sizeof(bytes));
        if (bytes > kMostBytes) closed = true;
        if (closed && bytes > kMostBytes) break;
        if (peer.received.size() < sizeof(bytes) + bytes) break;
        messages.push_back({sender, peer.received.substr(sizeof(bytes), bytes)});
        peer.received.erase(0, sizeof(bytes) + bytes);
    }
    if (closed) messages.push_back({sender, "", true});
}

void WatchStar::wake() {
    const uint64_t one = 1;
    static_cast<void>(!write(waker_.number(), &one, sizeof(one)));
}

}  // namespace argosy::comm
