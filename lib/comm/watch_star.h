// Short texts between rank 0 and each other rank over TCP, outside of MPI and NCCL: they come through where
// those hang. On loopback where all ranks are on one node. What comes from anywhere else is not listened to.
// After the constructor one thread calls all of it but wake().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mpi/comm.h"

namespace argosy::comm {

/// A file descriptor of this process, closed with it.
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

class WatchStar {
  public:
    /// COLLECTIVE over `world`. A rank that does not find rank 0 within seconds says so, and is apart: nobody
    /// can tell it anything, and nobody misses it.
    explicit WatchStar(const mpi::Comm& world);

    int rank() const { return rank_; }
    int size() const { return size_; }
    /// On rank 0: whether that rank is there; else whether rank 0 is.
    bool reaches(int rank) const { return peers_.contains(rank_ == 0 ? rank : 0); }

    /// Rank 0 sends to any, the others to rank 0. Lost where the peer is gone; one that does not take it all
    /// is apart from then on.
    void send(int rank, const std::string& text);

    /// That rank is apart from now on.
    void drop(int rank) { peers_.erase(rank); }

    struct Message {
        int sender;
        std::string text;
        bool closed = false;  // its last: the connection is gone
    };
    /// What has come; waits for it for so long at most, or until wake().
    std::vector<Message> receive(double seconds);

    /// By any thread.
    void wake();

  private:
    struct Peer {
        Descriptor socket;
        std::string received;
    };
    struct Card;
    struct Guest;

    void listen_for(const mpi::Comm& world);
    void join(const Card& card);
    void receive_guests(uint64_t key, const mpi::Comm& world);
    void accept_all(std::vector<Guest>& guests) const;
    bool hear(std::vector<Guest>& guests, uint64_t key);
    void read(int sender, Peer& peer, std::vector<Message>& messages);

    int rank_, size_;
    Descriptor listener_, waker_;
    std::map<int, Peer> peers_;  // of rank 0 all others, of those rank 0
};

}  // namespace argosy::comm
