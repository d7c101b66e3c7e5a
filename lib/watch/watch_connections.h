// Sends short texts between rank 0 and each other rank (a star) over TCP, outside of MPI and NCCL, so that
// they arrive even when MPI or NCCL hangs. If all ranks are on one node, the connections use loopback.
// Connections that do not present the job's random key are dropped. After the constructor, one thread calls
// all members except wake().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mpi/comm.h"

namespace argosy::watch {

/// A file descriptor that the destructor closes.
class Descriptor {
  public:
    explicit Descriptor(int number = -1) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept;
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor();
    int number() const { return number_; }

  private:
    int number_;
};

class WatchConnections {
  public:
    /// COLLECTIVE over `world`. A rank that cannot connect to rank 0 within seconds logs a warning and stays
    /// unconnected ("apart"): the rank receives no texts, and rank 0 does not count it as missing.
    explicit WatchConnections(const mpi::Comm& world);

    int rank() const { return rank_; }
    int size() const { return size_; }
    /// On rank 0: whether `rank` is connected. On other ranks: whether rank 0 is connected.
    bool reaches(int rank) const { return peers_.contains(rank_ == 0 ? rank : 0); }

    /// Rank 0 sends to any rank, the others only to rank 0. A text to a peer that is gone is lost. A peer
    /// that does not accept the whole text is disconnected.
    void send(int rank, const std::string& text);

    /// Disconnects that rank.
    void drop(int rank) { peers_.erase(rank); }

    struct Message {
        int sender;
        std::string text;
        bool closed = false;  // the sender's last message: the connection is gone
    };
    /// Returns the messages that have arrived. Waits at most `seconds` for the first one, or until wake().
    std::vector<Message> receive(double seconds);

    /// Makes a waiting receive() return. Any thread may call this.
    void wake();

  private:
    struct Peer {
        Descriptor socket;
        std::string received;
    };
    struct ServerAddress;
    struct PendingConnection;

    void listen_for(const mpi::Comm& world);
    void join(const ServerAddress& card);
    void receive_guests(uint64_t key, const mpi::Comm& world);
    void accept_all(std::vector<PendingConnection>& guests) const;
    bool hear(std::vector<PendingConnection>& guests, uint64_t key);
    void read(int sender, Peer& peer, std::vector<Message>& messages);

    int rank_, size_;
    Descriptor listener_, waker_;
    std::map<int, Peer> peers_;  // on rank 0: all other ranks; on the others: rank 0
};

}  // namespace argosy::watch
