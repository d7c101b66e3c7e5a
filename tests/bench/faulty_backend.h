// A backend that runs every operation on another one, and breaks it in one of the ways in which a network or
// a library might.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/backend.h"
#include "bench/collective.h"

namespace argosy::bench {

enum class Fault { None, SkipCollective, LoseContribution, LoseLastElement };

class FaultyBackend : public Backend {
  public:
    FaultyBackend(std::unique_ptr<Backend> inner, Fault its_fault)
        : fault(its_fault), inner_(std::move(inner)) {}

    Fault fault;

    int rank() const override { return inner_->rank(); }
    int size() const override { return inner_->size(); }
    Memory allocate(size_t bytes) const override { return inner_->allocate(bytes); }
    void write(std::byte* to, std::span<const std::byte> from) const override { inner_->write(to, from); }
    void read(std::span<std::byte> to, const std::byte* from) const override { inner_->read(to, from); }
    bool result_at_start() const override { return inner_->result_at_start(); }

    void all_gather(const Call& call) override { run("all_gather", call, &Backend::all_gather); }
    void all_reduce(const Call& call) override { run("all_reduce", call, &Backend::all_reduce); }
    void all_to_all(const Call& call) override { run("alltoall", call, &Backend::all_to_all); }
    void broadcast(const Call& call) override { run("broadcast", call, &Backend::broadcast); }
    void reduce_scatter(const Call& call) override { run("reduce_scatter", call, &Backend::reduce_scatter); }
    void send_receive(const Call& call) override { run("sendrecv", call, &Backend::send_receive); }

    void wait() override {
        inner_->wait();
        if (std::byte* const end = std::exchange(lost_end_, nullptr)) flip(end - 1);
    }
    void start_clock() override { inner_->start_clock(); }
    void end_iteration() override { inner_->end_iteration(); }
    std::vector<double> iteration_seconds() override { return inner_->iteration_seconds(); }
    std::vector<std::string> connections() const override { return inner_->connections(); }

  private:
    void run(const char* name, const Call& call, void (Backend::*operation)(const Call&)) {
        const Chunks chunks = collective_named(name).chunks(size());
        const size_t chunk_bytes = call.count * size_bytes(call.type);
        if (fault == Fault::SkipCollective) return;
        if (fault == Fault::LoseContribution && rank() == 0) {
            const std::vector<std::byte> zeros(chunks.input * chunk_bytes);
            write(const_cast<std::byte*>(call.in), zeros);
        }
        ((*inner_).*operation)(call);
        lost_end_ = fault == Fault::LoseLastElement ? call.out + chunks.output * chunk_bytes : nullptr;
    }
    void flip(std::byte* at) const {
        std::byte byte;
        read({&byte, 1}, at);
        byte = ~byte;
        write(at, {&byte, 1});
    }

    std::unique_ptr<Backend> inner_;
    std::byte* lost_end_ = nullptr;  // the end of the output whose last element wait() breaks
};

}  // namespace argosy::bench
