#include "watch/watch_connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
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
#include "mpi/start_up.h"

namespace argosy::watch {
namespace {

constexpr double kSecondsToConnect = 2, kSecondsToGreet = 5, kSecondsToSend = 2, kSecondsToAcknowledge = 2;
constexpr uint32_t kMaxTextBytes = 1 << 24;

/// Maximum number of files that a rank opens beside the connections: libraries, sockets of MPI, checkpoints.
constexpr rlim_t kOtherFiles = 1024;

/// The only message of the handshake: a rank sends it, rank 0 sends it back, and the rank sends it again.
/// Rank 0 accepts a connection only after the second copy, because the rank may have given it up before.
struct Greeting {
    uint64_t key;
    int32_t rank;
    int32_t zero = 0;  // padding, so that no byte is undefined
    bool operator==(const Greeting&) const = default;
};

/// Waits at most `seconds` for one of the poll() events. A signal does not end the wait.
bool wait_for(int descriptor, short events, double seconds) {
    const double deadline = seconds_now() + seconds;
    for (double left = seconds; left > 0; left = deadline - seconds_now()) {
        pollfd one{descriptor, events, 0};
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
        } else if (errno != EINTR && (errno != EAGAIN || !wait_for(socket, POLLOUT, kSecondsToSend))) {
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

/// Waits for rank 0 to send the greeting back.
bool receives_answer(int socket, const Greeting& own) {
    std::string received;
    const double deadline = seconds_now() + kSecondsToGreet;
    for (;;) {
        const Reading reading = read_more(socket, received, sizeof(own));
        if (reading == Reading::Done) return greeting_of(received) == own;
        if (reading == Reading::Gone || !wait_for(socket, POLLIN, deadline - seconds_now())) return false;
    }
}

void disable_send_delay(int socket) {
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

/// Empty if the connection fails.
Descriptor connected_to(const sockaddr_in& address) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const auto* const to = reinterpret_cast<const sockaddr*>(&address);
    if (::connect(socket.number(), to, sizeof(address)) != 0) {
        if (errno != EINPROGRESS || !wait_for(socket.number(), POLLOUT, kSecondsToConnect))
            return Descriptor();
        int error = 0;
        socklen_t length = sizeof(error);
        getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &length);
        if (error != 0) return Descriptor();
    }
    disable_send_delay(socket.number());
    return socket;
}

/// Whether only this node can reach the address: 127.0.0.0/8.
bool is_local(in_addr_t address) { return ntohl(address) >> 24 == 127; }

/// Addresses at which other nodes may reach this node. A loopback interface may have such an address, too.
std::vector<in_addr_t> routable_addresses() {
    std::vector<in_addr_t> found;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return found;
    for (const ifaddrs* one = all; one && std::ssize(found) < WatchConnections::ServerAddress::kMaxAddresses;
         one = one->ifa_next) {
        if (!(one->ifa_flags & IFF_UP) || !one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
        const in_addr_t address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr;
        if (!is_local(address)) found.push_back(address);
    }
    freeifaddrs(all);
    return found;
}

/// Lets this process open a file for each rank, as far as its hard limit allows.
void raise_file_limit(int num_ranks) {
    rlimit limit = {};
    const rlim_t wanted = static_cast<rlim_t>(num_ranks) + kOtherFiles;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= wanted) return;
    spdlog::warn(
        "the watchdog of rank 0 needs {} open files for {} ranks, but the hard limit on its node is {}: if "
        "the job hangs, ranks without a connection cannot be named; raise the limit (ulimit -Hn)",
        wanted, num_ranks, limit.rlim_max);
}

}  // namespace

WatchConnections::WatchConnections(int rank, int size)
    : rank_(rank),
      size_(size),
      waker_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      poller_(epoll_create1(EPOLL_CLOEXEC)) {
    poll_for(waker_.number());
}

WatchConnections::WatchConnections(const mpi::Comm& world) : WatchConnections(world.rank(), world.size()) {
    if (size_ == 1) return;
    const mpi::BoundedCall call("connecting the watchdogs of all ranks");
    const bool one_node = world.within_one_node();
    ServerAddress server;
    if (rank_ == 0) server = listen(one_node);
    mpi::wait(world.broadcast(&server, sizeof(server), ElementType::UInt8, 0));
    if (rank_ != 0) join(server);
    mpi::Request request = world.barrier();
    if (rank_ != 0) mpi::wait(request);
    if (rank_ == 0) accept_until([&] { return mpi::test_all({&request, 1}); });
}

WatchConnections::ServerAddress WatchConnections::listen(bool one_node) {
    raise_file_limit(size_);
    listener_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const auto bind_to = [&](in_addr_t host) {
        const sockaddr_in own = address_of(host, 0);
        return bind(listener_.number(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0;
    };
    // A container's loopback interface may lack 127.0.0.1.
    const bool local = one_node && bind_to(htonl(INADDR_LOOPBACK));
    sockaddr_in own = {};
    socklen_t length = sizeof(own);
    if ((!local && !bind_to(htonl(INADDR_ANY))) || ::listen(listener_.number(), size_) != 0 ||
        getsockname(listener_.number(), reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
        getrandom(&key_, sizeof(key_), 0) != sizeof(key_)) {
        throw RunError("the watchdog cannot listen for other ranks: {}; it needs TCP over IPv4",
                       std::strerror(errno));
    }
    poll_for(listener_.number());
    const std::vector<in_addr_t> addresses =
        local ? std::vector{htonl(INADDR_LOOPBACK)} : routable_addresses();
    ServerAddress server{
        .key = key_, .port = own.sin_port, .num_addresses = static_cast<int32_t>(addresses.size())};
    std::ranges::copy(addresses, server.addresses);
    return server;
}

/// No connection blocks the loop, because all of them are polled together.
void WatchConnections::accept_until(const std::function<bool()>& all_tried) {
    constexpr double kSecondsBetweenTests = 1e-3;
    PendingConnections pending;
    while (!all_tried()) handle(ready_descriptors(kSecondsBetweenTests), pending);
    // The second copies of the last greetings may still be in flight.
    const double deadline = seconds_now() + kSecondsToAcknowledge;
    do {
        handle(ready_descriptors(kSecondsBetweenTests), pending);
    } while (std::ranges::any_of(pending, [](const auto& one) { return one.second.answered; }) &&
             seconds_now() < deadline);
    listener_ = Descriptor();
}

void WatchConnections::poll_for(int descriptor) const {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    epoll_ctl(poller_.number(), EPOLL_CTL_ADD, descriptor, &event);
}

/// Waits at most `seconds` for the first ready descriptor.
std::vector<int> WatchConnections::ready_descriptors(double seconds) const {
    epoll_event events[1024];
    const int found =
        epoll_wait(poller_.number(), events, std::size(events), static_cast<int>(std::ceil(seconds * 1e3)));
    std::vector<int> ready;
    for (int i = 0; i < found; ++i) ready.push_back(events[i].data.fd);
    return ready;
}

void WatchConnections::handle(const std::vector<int>& ready, PendingConnections& pending) {
    for (const int descriptor : ready) {
        if (descriptor == listener_.number()) accept_all(pending);
        const auto found = pending.find(descriptor);
        if (found != pending.end() && continue_handshake(found->second)) pending.erase(found);
    }
}

void WatchConnections::accept_all(PendingConnections& pending) const {
    for (;;) {
        Descriptor socket(accept4(listener_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket.number() >= 0) {
            disable_send_delay(socket.number());
            poll_for(socket.number());
            const int descriptor = socket.number();
            pending.emplace(descriptor, PendingConnection{std::move(socket)});
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/// Continues the handshake. Returns whether it is over: the connection is a peer now, or must be dropped.
bool WatchConnections::continue_handshake(PendingConnection& connection) {
    const int socket = connection.socket.number();
    const Reading reading =
        read_more(socket, connection.received, (connection.answered ? 2 : 1) * sizeof(Greeting));
    if (reading != Reading::Done) return reading == Reading::Gone;
    const Greeting greeting = greeting_of(connection.received);
    if (greeting.key != key_ || greeting.rank <= 0 || greeting.rank >= size_) return true;
    if (!connection.answered) {
        connection.answered = true;
        return !send_all(socket, &greeting, sizeof(greeting));
    }
    if (greeting_of(connection.received.substr(sizeof(greeting))) == greeting) {
        add_peer(greeting.rank, std::move(connection.socket));
    }
    return true;
}

void WatchConnections::join(const ServerAddress& server) {
    for (int i = 0; i < server.num_addresses && peers_.empty(); ++i) {
        Descriptor socket = connected_to(address_of(server.addresses[i], server.port));
        const Greeting own{server.key, rank_};
        if (socket.number() < 0 || !send_all(socket.number(), &own, sizeof(own))) continue;
        if (receives_answer(socket.number(), own) && send_all(socket.number(), &own, sizeof(own))) {
            poll_for(socket.number());
            add_peer(0, std::move(socket));
        }
    }
    if (peers_.empty()) {
        spdlog::warn(
            "the watchdog of rank {} cannot connect to rank 0's by TCP (port {}, {} addresses tried): if "
            "the job hangs, this rank cannot be asked what it waits for",
            rank_, ntohs(server.port), server.num_addresses);
    }
}

void WatchConnections::add_peer(int rank, Descriptor socket) {
    drop(rank);
    rank_of_peer_[socket.number()] = rank;
    peers_.emplace(rank, Peer{std::move(socket), {}});
}

void WatchConnections::drop(int rank) {
    const auto peer = peers_.find(rank);
    if (peer == peers_.end()) return;
    rank_of_peer_.erase(peer->second.socket.number());
    peers_.erase(peer);
}

void WatchConnections::send(int rank, const std::string& text) {
    const auto peer = peers_.find(rank);
    if (peer == peers_.end()) return;
    const auto bytes = static_cast<uint32_t>(text.size());
    std::string frame(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    frame += text;
    if (send_all(peer->second.socket.number(), frame.data(), frame.size())) return;
    // If the peer is gone, receive() reports it. Any other peer may have received half of the text and could
    // not parse the next one, so its connection is closed.
    if (errno != EPIPE && errno != ECONNRESET) drop(rank);
}

void WatchConnections::send_to_all(const std::string& text) {
    for (int rank = 0; rank < size_; ++rank) send(rank, text);
}

std::vector<WatchConnections::Message> WatchConnections::receive(double seconds) {
    std::vector<Message> messages;
    for (const int descriptor : ready_descriptors(seconds)) {
        if (descriptor == waker_.number()) {
            uint64_t count = 0;
            static_cast<void>(!::read(waker_.number(), &count, sizeof(count)));
        }
        const auto rank = rank_of_peer_.find(descriptor);
        if (rank != rank_of_peer_.end()) read(rank->second, peers_.at(rank->second), messages);
    }
    for (const Message& message : messages) {
        if (message.closed) drop(message.sender);
    }
    return messages;
}

void WatchConnections::read(int sender, Peer& peer, std::vector<Message>& messages) {
    char buffer[1 << 16];
    bool closed = false;
    for (;;) {
        const ssize_t more = recv(peer.socket.number(), buffer, sizeof(buffer), MSG_DONTWAIT);
        if (more > 0) {
            peer.received.append(buffer, more);
            continue;
        }
        if (more < 0 && errno == EINTR) continue;
        closed = more == 0 || errno != EAGAIN;
        break;
    }
    uint32_t text_bytes = 0;
    while (peer.received.size() >= sizeof(text_bytes)) {
        std::memcpy(&text_bytes, peer.received.data(), sizeof(text_bytes));
        if (text_bytes > kMaxTextBytes) closed = true;
        if (closed && text_bytes > kMaxTextBytes) break;
        if (peer.received.size() < sizeof(text_bytes) + text_bytes) break;
        messages.push_back({sender, peer.received.substr(sizeof(text_bytes), text_bytes)});
        peer.received.erase(0, sizeof(text_bytes) + text_bytes);
    }
    if (closed) messages.push_back({sender, "", true});
}

void WatchConnections::wake() {
    const uint64_t one = 1;
    static_cast<void>(!write(waker_.number(), &one, sizeof(one)));
}

}  // namespace argosy::watch
