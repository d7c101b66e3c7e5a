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

namespace argosy::watch {
namespace {

constexpr double kSecondsToConnect = 2, kSecondsToGreet = 5, kSecondsToSend = 2, kSecondsToAcknowledge = 2;
constexpr uint32_t kMaxTextBytes = 1 << 24;
constexpr size_t kMaxUnsentBytes = 64 << 20;

/// Maximum number of files that a rank opens beside the connections: libraries, sockets of MPI, checkpoints.
constexpr rlim_t kOtherFiles = 1024;

/// The only message of the handshake: a rank sends it, its parent sends it back, and the rank sends it again.
/// The parent accepts a connection only after the second copy, because the rank may have given it up before.
struct Greeting {
    uint64_t key;
    int32_t rank;
    int32_t zero = 0;  // padding, so that no byte is undefined
    bool operator==(const Greeting&) const = default;
};

/// The head of a frame; its text follows.
struct Head {
    uint32_t text_bytes;
    Frame::Kind kind;
    int32_t sender, receiver;
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

/// Never waits: the buffer of a new connection has room for the few bytes of a greeting.
bool sends(int socket, const Greeting& greeting) {
    return ::send(socket, &greeting, sizeof(greeting), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(greeting);
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

/// Waits for the parent to send the greeting back.
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

/// Lets this process open a file for each child, as far as its hard limit allows.
void raise_file_limit(int rank, int num_children) {
    rlimit limit = {};
    const rlim_t wanted = static_cast<rlim_t>(num_children) + kOtherFiles;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= wanted) return;
    spdlog::warn(
        "the watchdog of rank {} needs {} open files for {} ranks, but the hard limit on its node is {}: if "
        "the job hangs, ranks without a connection cannot be named; raise the limit (ulimit -Hn)",
        rank, wanted, num_children, limit.rlim_max);
}

}  // namespace

WatchConnections::WatchConnections(const TreePlace& place)
    : place_(place), waker_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), poller_(epoll_create1(EPOLL_CLOEXEC)) {
    poll_for(waker_.number(), EPOLLIN, EPOLL_CTL_ADD);
}

WatchConnections::ServerAddress WatchConnections::listen(bool one_node) {
    raise_file_limit(place_.rank, place_.num_children());
    listener_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const auto bind_to = [&](in_addr_t host) {
        const sockaddr_in own = address_of(host, 0);
        return bind(listener_.number(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0;
    };
    // A container's loopback interface may lack 127.0.0.1.
    const bool local = one_node && bind_to(htonl(INADDR_LOOPBACK));
    sockaddr_in own = {};
    socklen_t length = sizeof(own);
    if ((!local && !bind_to(htonl(INADDR_ANY))) || ::listen(listener_.number(), place_.num_children()) != 0 ||
        getsockname(listener_.number(), reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
        getrandom(&key_, sizeof(key_), 0) != sizeof(key_)) {
        throw RunError("the watchdog cannot listen for other ranks: {}; it needs TCP over IPv4",
                       std::strerror(errno));
    }
    poll_for(listener_.number(), EPOLLIN, EPOLL_CTL_ADD);
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

void WatchConnections::poll_for(int descriptor, uint32_t events, int operation) const {
    epoll_event event = {};
    event.events = events;
    event.data.fd = descriptor;
    epoll_ctl(poller_.number(), operation, descriptor, &event);
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
            poll_for(socket.number(), EPOLLIN, EPOLL_CTL_ADD);
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
    const bool is_child = greeting.rank >= place_.first_child() && greeting.rank < place_.end_of_children();
    if (greeting.key != key_ || !is_child) return true;
    if (!connection.answered) {
        connection.answered = true;
        return !sends(socket, greeting);
    }
    if (greeting_of(connection.received.substr(sizeof(greeting))) == greeting) {
        add_peer(greeting.rank, std::move(connection.socket));
    }
    return true;
}

void WatchConnections::join(const ServerAddress& server) {
    for (int i = 0; i < server.num_addresses && !has(place_.parent()); ++i) {
        Descriptor socket = connected_to(address_of(server.addresses[i], server.port));
        const Greeting own{server.key, place_.rank};
        if (socket.number() < 0 || !sends(socket.number(), own)) continue;
        if (receives_answer(socket.number(), own) && sends(socket.number(), own)) {
            poll_for(socket.number(), EPOLLIN, EPOLL_CTL_ADD);
            add_peer(place_.parent(), std::move(socket));
        }
    }
    if (!has(place_.parent())) {
        spdlog::warn(
            "the watchdog of rank {} cannot connect to rank {}'s by TCP (port {}, {} addresses tried): if "
            "the "
            "job hangs, this rank cannot be asked what it waits for{}",
            place_.rank, place_.parent(), ntohs(server.port), server.num_addresses,
            place_.num_children() > 0 ? ", nor can the ranks that reach rank 0 through it" : "");
    }
}

void WatchConnections::add_peer(int rank, Descriptor socket) {
    drop(rank);
    rank_of_peer_[socket.number()] = rank;
    peers_.emplace(rank, Peer{std::move(socket)});
}

void WatchConnections::drop(int neighbour) {
    const auto peer = peers_.find(neighbour);
    if (peer == peers_.end()) return;
    rank_of_peer_.erase(peer->second.socket.number());
    peers_.erase(peer);
}

void WatchConnections::send(int neighbour, const Frame& frame) {
    const auto found = peers_.find(neighbour);
    if (found == peers_.end() || found->second.unsent.size() > kMaxUnsentBytes) return;
    Peer& peer = found->second;
    const bool waits = !peer.unsent.empty();
    const Head head{static_cast<uint32_t>(frame.text.size()), frame.kind, frame.sender, frame.receiver};
    peer.unsent.append(reinterpret_cast<const char*>(&head), sizeof(head));
    peer.unsent += frame.text;
    if (waits) return;
    send_unsent(peer);
    if (!peer.unsent.empty()) poll_for(peer.socket.number(), EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
}

/// If the peer is gone, receive() reports it.
void WatchConnections::send_unsent(Peer& peer) const {
    size_t sent = 0;
    for (std::string& bytes = peer.unsent; sent < bytes.size();) {
        const ssize_t more = ::send(peer.socket.number(), bytes.data() + sent, bytes.size() - sent,
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
        if (more > 0) {
            sent += more;
        } else if (errno != EINTR) {
            if (errno != EAGAIN) sent = bytes.size();
            break;
        }
    }
    peer.unsent.erase(0, sent);
}

void WatchConnections::flush() {
    const double deadline = seconds_now() + kSecondsToSend;
    for (auto& [neighbour, peer] : peers_) {
        do {
            send_unsent(peer);
        } while (!peer.unsent.empty() && wait_for(peer.socket.number(), POLLOUT, deadline - seconds_now()));
    }
}

std::vector<WatchConnections::Arrival> WatchConnections::receive(double seconds) {
    std::vector<Arrival> arrivals;
    for (const int descriptor : ready_descriptors(seconds)) {
        if (descriptor == waker_.number()) {
            uint64_t count = 0;
            static_cast<void>(!::read(waker_.number(), &count, sizeof(count)));
        }
        const auto rank = rank_of_peer_.find(descriptor);
        if (rank == rank_of_peer_.end()) continue;
        Peer& peer = peers_.at(rank->second);
        if (!peer.unsent.empty()) {
            send_unsent(peer);
            if (peer.unsent.empty()) poll_for(descriptor, EPOLLIN, EPOLL_CTL_MOD);
        }
        read(rank->second, peer, arrivals);
    }
    for (const auto& [neighbour, frame] : arrivals) {
        if (frame.kind == Frame::Kind::Closed && frame.sender == neighbour) drop(neighbour);
    }
    return arrivals;
}

void WatchConnections::read(int neighbour, Peer& peer, std::vector<Arrival>& arrivals) const {
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
    size_t begin = 0;
    for (Head head{}; peer.received.size() - begin >= sizeof(head);) {
        std::memcpy(&head, peer.received.data() + begin, sizeof(head));
        if (head.text_bytes > kMaxTextBytes || head.sender < 0 || head.sender >= place_.size) {
            closed = true;
            break;
        }
        if (peer.received.size() - begin < sizeof(head) + head.text_bytes) break;
        arrivals.push_back({neighbour,
                            {head.kind, head.sender, head.receiver,
                             peer.received.substr(begin + sizeof(head), head.text_bytes)}});
        begin += sizeof(head) + head.text_bytes;
    }
    peer.received.erase(0, begin);
    if (closed) arrivals.push_back({neighbour, {Frame::Kind::Closed, neighbour, 0, ""}});
}

void WatchConnections::wake() {
    const uint64_t one = 1;
    static_cast<void>(!write(waker_.number(), &one, sizeof(one)));
}

}  // namespace argosy::watch
