#include "common/parallel/mpi_ranks.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <limits>
#include <type_traits>
#include <vector>

#include "common/tensors/shape.hpp"

namespace llm {
namespace {

// MPI 3.1 counts with int; longer messages are cut.
constexpr std::size_t max_count = 1u << 30;

template <class Number>
MPI_Datatype mpi_type() {
    return std::is_same_v<Number, float> ? MPI_FLOAT : MPI_DOUBLE;
}

std::size_t rank_in(MPI_Comm comm) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    return static_cast<std::size_t>(rank);
}
std::size_t size_of(MPI_Comm comm) {
    int size = 0;
    MPI_Comm_size(comm, &size);
    return static_cast<std::size_t>(size);
}

// Calls function(span) for parts that MPI can count.
template <class Element, class Function>
void for_each_piece(std::span<Element> elements, const Function& function) {
    for (std::size_t begin = 0; begin < elements.size(); begin += max_count)
        function(elements.subspan(begin, std::min(max_count, elements.size() - begin)));
}

class MpiReduction final : public PendingReduction {
 public:
    std::vector<MPI_Request> requests;

    void progress() override {
        int is_complete = 0;
        MPI_Testall(count(), requests.data(), &is_complete, MPI_STATUSES_IGNORE);
    }
    void wait() override { MPI_Waitall(count(), requests.data(), MPI_STATUSES_IGNORE); }

 private:
    int count() const { return static_cast<int>(requests.size()); }
};

class MpiRank final : public Communicator {
 public:
    MpiRank(MPI_Comm comm, bool is_owner)
        : Communicator(rank_in(comm), size_of(comm)), comm_(comm), is_owner_(is_owner) {}
    ~MpiRank() override {
        if (is_owner_) MPI_Comm_free(&comm_);
    }
    MpiRank(const MpiRank&) = delete;
    MpiRank& operator=(const MpiRank&) = delete;

    void barrier() override { MPI_Barrier(comm_); }

 private:
    void send_bytes(ConstBytes message, std::size_t destination) override {
        const int length = length_of(message.size());
        MPI_Send(message.data(), length, MPI_BYTE, static_cast<int>(destination), tag, comm_);
    }
    void receive_bytes(Bytes message, std::size_t source) override {
        MPI_Status status;
        MPI_Probe(static_cast<int>(source), tag, comm_, &status);
        check_length(status, message, source);
        MPI_Recv(message.data(), length_of(message.size()), MPI_BYTE, static_cast<int>(source),
                 tag, comm_, MPI_STATUS_IGNORE);
    }
    void send_receive_bytes(ConstBytes sent, std::size_t destination, Bytes received,
                            std::size_t source) override {
        MPI_Request request;
        MPI_Isend(sent.data(), length_of(sent.size()), MPI_BYTE, static_cast<int>(destination),
                  tag, comm_, &request);
        receive_bytes(received, source);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    void broadcast_bytes(Bytes values, std::size_t root) override {
        for_each_piece(values, [&](Bytes piece) {
            MPI_Bcast(piece.data(), static_cast<int>(piece.size()), MPI_BYTE,
                      static_cast<int>(root), comm_);
        });
    }

    void all_reduce_numbers(Numbers values) override {
        std::visit(
            [&]<class Number>(std::span<Number> own) {
                for_each_piece(own, [&](std::span<Number> piece) {
                    MPI_Allreduce(MPI_IN_PLACE, piece.data(), static_cast<int>(piece.size()),
                                  mpi_type<Number>(), MPI_SUM, comm_);
                });
            },
            values);
    }

    std::unique_ptr<PendingReduction> start_all_reduce_numbers(Numbers values) override {
        auto reduction = std::make_unique<MpiReduction>();
        std::visit(
            [&]<class Number>(std::span<Number> own) {
                for_each_piece(own, [&](std::span<Number> piece) {
                    MPI_Iallreduce(MPI_IN_PLACE, piece.data(), static_cast<int>(piece.size()),
                                   mpi_type<Number>(), MPI_SUM, comm_,
                                   &reduction->requests.emplace_back());
                });
            },
            values);
        return reduction;
    }

    void reduce_scatter_numbers(Numbers values) override {
        std::visit(
            [&]<class Number>(std::span<Number> own) {
                const auto [counts, begins] = parts("reduce_scatter", own.size());
                const Part part = part_of(own.size(), size(), rank());
                std::vector<Number> sums(part.size);
                MPI_Reduce_scatter(own.data(), sums.data(), counts.data(), mpi_type<Number>(),
                                   MPI_SUM, comm_);
                std::copy(sums.begin(), sums.end(), own.data() + part.begin);
            },
            values);
    }

    void all_gather_numbers(Numbers values) override {
        std::visit(
            [&]<class Number>(std::span<Number> own) {
                const auto [counts, begins] = parts("all_gather", own.size());
                MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, own.data(), counts.data(),
                               begins.data(), mpi_type<Number>(), comm_);
            },
            values);
    }

    std::unique_ptr<Communicator> split_group(std::size_t color) override {
        require(color <= std::numeric_limits<int>::max(), "split: the color {}", color);
        MPI_Comm part = MPI_COMM_NULL;
        MPI_Comm_split(comm_, static_cast<int>(color), static_cast<int>(rank()), &part);
        return std::make_unique<MpiRank>(part, true);
    }

    static int length_of(std::size_t num_bytes) {
        require(num_bytes <= std::numeric_limits<int>::max(),
                "a message of {} bytes: MPI has {} at most", num_bytes,
                std::numeric_limits<int>::max());
        return static_cast<int>(num_bytes);
    }
    void check_length(const MPI_Status& status, Bytes message, std::size_t source) const {
        int length = 0;
        MPI_Get_count(&status, MPI_BYTE, &length);
        require(length >= 0 && static_cast<std::size_t>(length) == message.size(),
                "rank {} expects {} bytes from rank {}, which sent {}", rank(), message.size(),
                source, length);
    }

    // How many numbers each rank has, and where they begin.
    struct Parts {
        std::vector<int> counts, begins;
    };
    Parts parts(std::string_view function, std::size_t count) const {
        require(count <= std::numeric_limits<int>::max(), "{}: {} numbers, MPI has {} at most",
                function, count, std::numeric_limits<int>::max());
        Parts parts;
        for (std::size_t other = 0; other < size(); ++other) {
            const Part part = part_of(count, size(), other);
            parts.counts.push_back(static_cast<int>(part.size));
            parts.begins.push_back(static_cast<int>(part.begin));
        }
        return parts;
    }

    static constexpr int tag = 0;
    MPI_Comm comm_;
    bool is_owner_;
};

}  // namespace

MpiRanks::MpiRanks() : num_exceptions_(std::uncaught_exceptions()) {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    world_ = std::make_unique<MpiRank>(MPI_COMM_WORLD, false);
}

std::size_t MpiRanks::num_on_machine() const {
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    const std::size_t count = size_of(machine);
    MPI_Comm_free(&machine);
    return count;
}

void MpiRanks::abort(int code) const {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::exit(code);
}

MpiRanks::~MpiRanks() {
    if (std::uncaught_exceptions() > num_exceptions_) MPI_Abort(MPI_COMM_WORLD, 1);
    world_.reset();
    MPI_Finalize();
}

}  // namespace llm
