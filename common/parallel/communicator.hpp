// Messages between the ranks of a group: threads of this process (thread_ranks.hpp), or
// processes on one machine or many (mpi_ranks.hpp). Source: MPI: A Message-Passing Interface
// Standard, version 3.1, chapters 3, 5 and 6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>

namespace llm {

// Numbers that a reduction adds.
using Numbers = std::variant<std::span<float>, std::span<double>>;

// A range of N numbers: `begin` to begin + size - 1.
struct Part {
    std::size_t begin, size;
};
// Part number `index` of N numbers that are divided among ranks. The first N % num_parts parts
// have one number more than the others. Throws ValueError unless index < num_parts.
Part part_of(std::size_t count, std::size_t num_parts, std::size_t index);

// A collective function that goes on while its caller computes.
class PendingReduction {
 public:
    virtual ~PendingReduction() = default;
    // MPI goes on with it only inside its functions, such as this one.
    virtual void progress() {}
    virtual void wait() {}
};

// The bytes that a rank has sent. A library chooses how it computes a collective function; what
// is counted is what the rank sends if that is a ring, the same with each transport: of N
// numbers, all but its own part in a reduce-scatter, all but the next rank's part in an
// all-gather, both in an all-reduce. A broadcast goes from the root to the next rank, and on.
struct BytesSent {
    std::uint64_t messages = 0;  // point to point
    std::uint64_t broadcast = 0, all_reduce = 0, reduce_scatter = 0, all_gather = 0;

    std::uint64_t collectives() const {
        return broadcast + all_reduce + reduce_scatter + all_gather;
    }
};

// A group of ranks, as one of them sees it. Each rank calls the functions of its own object,
// from one thread. A function that takes the number of a rank throws ValueError if there is no
// such rank.
class Communicator {
 public:
    virtual ~Communicator() = default;

    std::size_t rank() const { return rank_; }  // 0 to size() - 1
    std::size_t size() const { return size_; }

    // Point to point. Messages from one rank to another arrive in the order in which they are
    // sent. `send` may wait until the message is received, so two ranks that first send to each
    // other wait forever, MPI only if the messages are long. Throws ValueError if a message is
    // not as long as its receiver expects.
    template <class Number>
    void send(std::span<const Number> message, std::size_t destination) {
        check_rank(destination);
        send_bytes(std::as_bytes(message), destination);
        count(&BytesSent::messages, message.size_bytes());
    }
    template <class Number>
    void receive(std::span<Number> message, std::size_t source) {
        check_rank(source);
        receive_bytes(std::as_writable_bytes(message), source);
    }
    // Both at once, so that all ranks of a ring can call it.
    template <class Number>
    void send_receive(std::span<const Number> sent, std::size_t destination,
                      std::span<Number> received, std::size_t source) {
        check_rank(destination);
        check_rank(source);
        send_receive_bytes(std::as_bytes(sent), destination, std::as_writable_bytes(received),
                           source);
        count(&BytesSent::messages, sent.size_bytes());
    }
    // What this rank has sent, in this group and in groups that were split from it.
    const BytesSent& bytes_sent() const { return counter_->sent; }
    // The bytes of all messages that this rank has sent, without those of collective functions.
    std::uint64_t num_bytes_sent() const { return bytes_sent().messages; }

    // Collective functions, those of the library: all ranks of the group call them, in the same
    // order and with the same sizes.
    virtual void barrier() = 0;  // returns when all ranks have called it
    template <class Number>
    void broadcast(std::span<Number> values, std::size_t root) {  // those of root, on all ranks
        check_rank(root);
        if ((rank_ + 1) % size_ != root) count(&BytesSent::broadcast, values.size_bytes());
        broadcast_bytes(std::as_writable_bytes(values), root);
    }
    // The sums over all ranks, on each rank; NaN of one rank is NaN on all. Each rank gets the
    // same bits. The order of the additions depends on the number of ranks and, with MPI, on
    // the length and the place in the vector (findings/mpi_reductions_by_position.sh).
    void all_reduce(Numbers values);
    // Starts an all_reduce. The values must not be used before wait() has returned. Ranks that
    // share the memory of a process finish it at once.
    std::unique_ptr<PendingReduction> start_all_reduce(Numbers values);
    // The sums over all ranks, of which each rank gets its part_of; its other numbers do
    // not change.
    void reduce_scatter(Numbers values);
    // Each rank has its part_of the numbers; afterwards each has all.
    void all_gather(Numbers values);

    // A group of the ranks that pass the same color, in the order of their ranks.
    std::unique_ptr<Communicator> split(std::size_t color);

 protected:
    using Bytes = std::span<std::byte>;
    using ConstBytes = std::span<const std::byte>;

    Communicator(std::size_t rank, std::size_t size) : rank_(rank), size_(size) {}
    void check_rank(std::size_t other) const;

 private:
    virtual void send_bytes(ConstBytes message, std::size_t destination) = 0;
    virtual void receive_bytes(Bytes message, std::size_t source) = 0;
    virtual void send_receive_bytes(ConstBytes sent, std::size_t destination, Bytes received,
                                    std::size_t source) = 0;
    virtual void broadcast_bytes(Bytes values, std::size_t root) = 0;
    virtual void all_reduce_numbers(Numbers values) = 0;
    virtual std::unique_ptr<PendingReduction> start_all_reduce_numbers(Numbers values);
    virtual void reduce_scatter_numbers(Numbers values) = 0;
    virtual void all_gather_numbers(Numbers values) = 0;
    virtual std::unique_ptr<Communicator> split_group(std::size_t color) = 0;

    // What a group has sent is also counted in the group that it was split from.
    struct Counter {
        BytesSent sent;
        std::shared_ptr<Counter> parent;
    };
    void count(std::uint64_t BytesSent::*kind, std::uint64_t num_bytes);
    void count_all_reduce(const Numbers& values);
    // The bytes of all numbers but those of one rank's part.
    std::uint64_t bytes_without_part(const Numbers& values, std::size_t of_rank) const;

    std::size_t rank_, size_;
    std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
};

}  // namespace llm
