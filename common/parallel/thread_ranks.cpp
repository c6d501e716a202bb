#include "common/parallel/thread_ranks.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/parallel/ranks_in_turn.hpp"
#include "common/parallel/shared_memory_rank.hpp"
#include "common/system/blas.hpp"
#include "common/tensors/shape.hpp"

namespace llm {
namespace {

// Ends the calls of the other ranks after one has thrown.
struct OtherRankFailed {};

// What a rank waits for.
struct Waiting {
    std::function<bool()> is_over;
    std::string reason;
};

// All ranks of a call of run_ranks. One mutex protects this and the groups.
class Ranks {
 public:
    explicit Ranks(std::size_t num_ranks) : waiting_(num_ranks), is_running_(num_ranks, true) {}

    std::mutex mutex;

    // Waits until is_over() is true. Throws if it cannot become true.
    void wait(std::unique_lock<std::mutex>& lock, std::size_t rank, const std::string& reason,
              const std::function<bool()>& is_over) {
        waiting_[rank] = {is_over, reason};
        if (all_wait()) fail(deadlock());
        changed_.wait(lock, [&] { return has_failed_ || is_over(); });
        waiting_[rank] = {};
        if (has_failed_) throw OtherRankFailed();
    }
    void notify() { changed_.notify_all(); }

    // A call has returned or thrown.
    void end(std::size_t rank, std::exception_ptr error) {
        const std::lock_guard lock(mutex);
        is_running_[rank] = false;
        if (error) fail(error);
        if (all_wait()) fail(deadlock());
    }
    void rethrow_failure() const {
        if (failure_) std::rethrow_exception(failure_);
    }

 private:
    // Whether no running rank can go on, and there is one.
    bool all_wait() const {
        bool some_wait = false;
        for (std::size_t rank = 0; rank < waiting_.size(); ++rank) {
            if (!is_running_[rank]) continue;
            if (!waiting_[rank].is_over || waiting_[rank].is_over()) return false;
            some_wait = true;
        }
        return some_wait;
    }
    std::exception_ptr deadlock() const {
        std::vector<std::string> reasons;
        for (std::size_t rank = 0; rank < waiting_.size(); ++rank)
            reasons.push_back(is_running_[rank] ? waiting_[rank].reason : "");
        return std::make_exception_ptr(std::runtime_error(deadlock_message(reasons)));
    }
    void fail(std::exception_ptr error) {
        if (!has_failed_) failure_ = std::move(error);
        has_failed_ = true;
        notify();
    }

    std::condition_variable changed_;
    std::vector<Waiting> waiting_;  // of each rank; empty while it runs
    std::vector<bool> is_running_;
    bool has_failed_ = false;
    std::exception_ptr failure_;
};

// What the members of a group share.
struct Group {
    Group(Ranks& all_ranks, std::vector<std::size_t> member_ranks)
        : ranks(all_ranks),
          members(std::move(member_ranks)),
          messages(members.size() * members.size()),
          passed(members.size()) {}

    // A message that waits for its receiver. Its sender waits, too, so there is at most one
    // from one rank to another.
    struct Message {
        std::span<const std::byte> bytes;
        bool is_sent = false;
    };
    Message& message(std::size_t source, std::size_t destination) {
        return messages[source * members.size() + destination];
    }

    Ranks& ranks;
    const std::vector<std::size_t> members;  // their ranks in run_ranks
    std::vector<Message> messages;
    std::size_t num_in_barrier = 0, num_barriers = 0;
    std::vector<Passed> passed;                           // to a collective function
    std::map<std::size_t, std::shared_ptr<Group>> parts;  // by color
};

class ThreadRank final : public SharedMemoryRank {
 public:
    ThreadRank(std::shared_ptr<Group> group, std::size_t rank)
        : SharedMemoryRank(rank, group->members.size()), group_(std::move(group)) {}

    void barrier() override {
        std::unique_lock lock(group_->ranks.mutex);
        const std::size_t number = group_->num_barriers;
        if (++group_->num_in_barrier == size()) {
            group_->num_in_barrier = 0;
            ++group_->num_barriers;
            group_->ranks.notify();
        }
        wait(lock, "for all ranks of a group of " + std::to_string(size()),
             [&] { return group_->num_barriers > number; });
    }

 private:
    void send_bytes(ConstBytes message, std::size_t destination) override {
        std::unique_lock lock(group_->ranks.mutex);
        put(message, destination);
        wait_until_received(lock, destination);
    }
    void receive_bytes(Bytes message, std::size_t source) override {
        std::unique_lock lock(group_->ranks.mutex);
        take(lock, message, source);
    }
    void send_receive_bytes(ConstBytes sent, std::size_t destination, Bytes received,
                            std::size_t source) override {
        std::unique_lock lock(group_->ranks.mutex);
        put(sent, destination);
        take(lock, received, source);
        wait_until_received(lock, destination);
    }
    std::vector<Passed> exchange(Passed own) override {
        group_->passed[rank()] = own;
        barrier();
        return group_->passed;
    }
    void end_exchange() override { barrier(); }
    std::unique_ptr<Communicator> join(std::size_t color,
                                       const std::vector<std::size_t>& members) override {
        if (members[0] == rank()) {
            std::vector<std::size_t> threads;
            for (const std::size_t member : members) threads.push_back(group_->members[member]);
            const std::lock_guard lock(group_->ranks.mutex);
            group_->parts[color] = std::make_shared<Group>(group_->ranks, threads);
        }
        barrier();
        const std::shared_ptr<Group> part = group_->parts.at(color);
        barrier();
        const auto own = std::find(members.begin(), members.end(), rank());
        return std::make_unique<ThreadRank>(part, std::size_t(own - members.begin()));
    }

    void put(ConstBytes message, std::size_t destination) {
        group_->message(rank(), destination) = {message, true};
        group_->ranks.notify();
    }
    void take(std::unique_lock<std::mutex>& lock, Bytes message, std::size_t source) {
        Group::Message& sent = group_->message(source, rank());
        wait(lock, "for a message from rank " + std::to_string(source),
             [&] { return sent.is_sent; });
        require(sent.bytes.size() == message.size(),
                "rank {} expects {} bytes from rank {}, which sent {}", rank(), message.size(),
                source, sent.bytes.size());
        lock.unlock();
        if (!message.empty()) std::memcpy(message.data(), sent.bytes.data(), message.size());
        lock.lock();
        sent = {};
        group_->ranks.notify();
    }
    void wait_until_received(std::unique_lock<std::mutex>& lock, std::size_t destination) {
        const Group::Message& sent = group_->message(rank(), destination);
        wait(lock, "until rank " + std::to_string(destination) + " receives its message",
             [&] { return !sent.is_sent; });
    }
    void wait(std::unique_lock<std::mutex>& lock, const std::string& reason,
              const std::function<bool()>& is_over) {
        group_->ranks.wait(lock, group_->members[rank()], reason, is_over);
    }

    std::shared_ptr<Group> group_;
};

}  // namespace

void run_ranks(std::size_t num_ranks, const std::function<void(Communicator&)>& body) {
    require(num_ranks > 0, "run_ranks: 0 ranks");
    Ranks ranks(num_ranks);
    std::vector<std::size_t> members(num_ranks);
    for (std::size_t rank = 0; rank < num_ranks; ++rank) members[rank] = rank;
    const auto world = std::make_shared<Group>(ranks, members);
    const auto run = [&](std::size_t rank) {
        std::exception_ptr error;
        try {
            ThreadRank communicator(world, rank);
            body(communicator);
        } catch (const OtherRankFailed&) {
        } catch (...) {
            error = std::current_exception();
        }
        ranks.end(rank, error);
    };
    if (num_ranks > 1) require_thread_safe_blas();
    std::vector<std::thread> threads;
    for (std::size_t rank = 1; rank < num_ranks; ++rank) threads.emplace_back(run, rank);
    run(0);
    for (std::thread& thread : threads) thread.join();
    ranks.rethrow_failure();
}

}  // namespace llm
