#include "watch/watch_connections.h"

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
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "mpi/blocking_call.h"

namespace argosy::watch {
namespace {

constexpr int kMaxAddresses = 16;
constexpr double kSecondsToConnect = 2, kSecondsToGreet = 5, kSecondsToSend = 2, kSecondsToAcknowledge = 2;
constexpr uint32_t kMaxBytes = 1 << 24;

/// The only message of the handshake: a rank sends it, rank 0 sends it back, and the rank sends it again.
/// Rank 0 accepts a connection only after the second copy, because the rank may have given up on it before.
struct Greeting {
    uint64_t key;
    int32_t rank;
    int32_t zero = 0;  // padding, so that no byte is undefined
    bool operator==(const Greeting&) const = default;
};

/// A signal does not end the wait.
bool is_ready(int descriptor, short what, double seconds) {
    const double deadline = seconds_now() + seconds;
    for (double left = seconds; left > 0; left = deadline - seconds_now()) {
        pollfd one{descriptor, what, 0};
        const int found = poll(&one, 1, static_cast<int>(std::ceil(left * 1e3)));
        if (found > 0) return true;
        if (found < 0 && errno != EINTR) return false;
    }
    return false;
}

bool send_all(int socket, const void* data, size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += sent;
            bytes -= sent;
        } else if (errno != EINTR && (errno != EAGAIN || !is_ready(socket, POLLOUT, kSecondsToSend))) {
            return false;
        }
    }
    return true;
}

enum class Reading { Done, NotYet, Gone };

/// Reads the available bytes until `received` has `bytes` bytes; never waits.
Reading read_more(int socket, std::string& received, size_t bytes) {
    while (received.size() < bytes) {
        char buffer[sizeof(Greeting)];
        const ssize_t more =
            recv(socket, buffer, std::min(sizeof(buffer), bytes - received.size()), MSG_DONTWAIT);
        if (more > 0) {
            received.append(buffer, more);
        } else if (more < 0 && errno == EINTR) {
            continue;
        } else {
            return more < 0 && errno == EAGAIN ? Reading::NotYet : Reading::Gone;
        }
    }
    return Reading::Done;
}

Greeting greeting_of(const std::string& bytes) {
    Greeting greeting{};
    std::memcpy(&greeting, bytes.data(), sizeof(greeting));
    return greeting;
}

bool is_answered(int socket, const Greeting& own) {
    std::string received;
    const double deadline = seconds_now() + kSecondsToGreet;
    for (;;) {
        const Reading reading = read_more(socket, received, sizeof(own));
        if (reading == Reading::Done) return greeting_of(received) == own;
        if (reading == Reading::Gone || !is_ready(socket, POLLIN, deadline - seconds_now())) return false;
    }
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

/// Addresses at which other nodes may reach this one.
std::vector<in_addr_t> own_addresses(bool one_node) {
    if (one_node) return {htonl(INADDR_LOOPBACK)};
    std::vector<in_addr_t> found;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return found;
    for (const ifaddrs* one = all; one && std::ssize(found) < kMaxAddresses; one = one->ifa_next) {
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

/// The key of the job, and the addresses at which rank 0 listens.
struct WatchConnections::ServerAddress {
    uint64_t key = 0;
    in_port_t port = 0;
    int32_t num_addresses = 0;
    in_addr_t addresses[kMaxAddresses] = {};
};

WatchConnections::WatchConnections(const mpi::Comm& world)
    : rank_(world.rank()), size_(world.size()), waker_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (size_ > 1) listen_for(world);
}

void WatchConnections::listen_for(const mpi::Comm& world) {
    const mpi::BlockingCall call("connecting the watchdogs of all ranks");
    const bool one_node = world.within_one_node();
    ServerAddress card;
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
    receive_guests(card.key, world);
    listener_ = Descriptor();
}

/// A connection that has not finished the handshake.
struct WatchConnections::PendingConnection {
    Descriptor socket;
    std::string received = {};
    bool answered = false;
};

/// No connection blocks the loop: a silent one is polled like the others.
void WatchConnections::receive_guests(uint64_t key, const mpi::Comm& world) {
    std::vector<PendingConnection> guests;
    // The barrier ends when all other ranks have tried to connect.
    mpi::Request request = world.barrier();
    while (!mpi::test_all({&request, 1})) {
        accept_all(guests);
        if (!hear(guests, key)) sched_yield();
    }
    // The last greetings may still be in flight.
    const double deadline = seconds_now() + kSecondsToAcknowledge;
    do {
        accept_all(guests);
        if (!hear(guests, key)) sched_yield();
    } while (std::ranges::any_of(guests, &PendingConnection::answered) && seconds_now() < deadline);
}

void WatchConnections::accept_all(std::vector<PendingConnection>& guests) const {
    for (;;) {
        Descriptor socket(accept4(listener_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket.number() >= 0) {
            send_at_once(socket.number());
            guests.push_back({std::move(socket)});
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/// Reads from all guests. Returns whether one of them has become a peer, or is gone.
bool WatchConnections::hear(std::vector<PendingConnection>& guests, uint64_t key) {
    const auto through = [&](PendingConnection& guest) {
        const Reading reading =
            read_more(guest.socket.number(), guest.received, (guest.answered ? 2 : 1) * sizeof(Greeting));
        if (reading != Reading::Done) return reading == Reading::Gone;
        const Greeting greeting = greeting_of(guest.received);
        if (greeting.key != key || greeting.rank <= 0 || greeting.rank >= size_) return true;
        if (!guest.answered) {
            guest.answered = true;
            return !send_all(guest.socket.number(), &greeting, sizeof(greeting));
        }
        if (greeting_of(guest.received.substr(sizeof(greeting))) == greeting) {
            peers_.insert_or_assign(greeting.rank, Peer{std::move(guest.socket), {}});
        }
        return true;
    };
    return std::erase_if(guests, through) > 0;
}

void WatchConnections::join(const ServerAddress& card) {
    for (int i = 0; i < card.num_addresses && peers_.empty(); ++i) {
        Descriptor socket = connected_to(address_of(card.addresses[i], card.port));
        const Greeting own{card.key, rank_};
        if (socket.number() < 0 || !send_all(socket.number(), &own, sizeof(own))) continue;
        if (is_answered(socket.number(), own) && send_all(socket.number(), &own, sizeof(own))) {
            peers_.emplace(0, Peer{std::move(socket), {}});
        }
    }
    if (peers_.empty()) {
        spdlog::warn(
            "the watchdog of rank {} does not reach that of rank 0 by TCP (port {}, {} addresses tried): "
            "should "
            "the job hang, this rank cannot be told, nor asked",
            rank_, ntohs(card.port), card.num_addresses);
    }
}

void WatchConnections::send(int rank, const std::string& text) {
    const auto peer = peers_.find(rank);
    if (peer == peers_.end()) return;
    const auto bytes = static_cast<uint32_t>(text.size());
    std::string frame(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    frame += text;
    if (send_all(peer->second.socket.number(), frame.data(), frame.size())) return;
    // receive() reports a peer that is gone. Any other peer may have received half a text, and could not
    // parse what follows.
    if (errno != EPIPE && errno != ECONNRESET) drop(rank);
}

std::vector<WatchConnections::Message> WatchConnections::receive(double seconds) {
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

void WatchConnections::read(int sender, Peer& peer, std::vector<Message>& messages) {
    char buffer[1 << 16];
    bool closed = false;
    for (;;) {
        const ssize_t bytes = recv(peer.socket.number(), buffer, sizeof(buffer), MSG_DONTWAIT);
        if (bytes > 0) {
            peer.received.append(buffer, bytes);
            continue;
        }
        if (bytes < 0 && errno == EINTR) continue;
        closed = bytes == 0 || errno != EAGAIN;
        break;
    }
    uint32_t bytes = 0;
    while (peer.received.size() >= sizeof(bytes)) {
        std::memcpy(&bytes, peer.received.data(), sizeof(bytes));
        if (bytes > kMaxBytes) closed = true;
        if (closed && bytes > kMaxBytes) break;
        if (peer.received.size() < sizeof(bytes) + bytes) break;
        messages.push_back({sender, peer.received.substr(sizeof(bytes), bytes)});
        peer.received.erase(0, sizeof(bytes) + bytes);
    }
    if (closed) messages.push_back({sender, "", true});
}

void WatchConnections::wake() {
    const uint64_t one = 1;
    static_cast<void>(!write(waker_.number(), &one, sizeof(one)));
}

}  // namespace argosy::watch
