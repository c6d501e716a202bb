// Chapter 24 — How do many machines train one model? This program adds gradients in a ring,
// takes a step of training on several ranks, and divides optimizer, gradient and model.
#include "chapters/24_parallel/demo/memory.hpp"
#include "chapters/24_parallel/demo/messages.hpp"
#include "chapters/24_parallel/demo/training.hpp"
#include "common/system/options.hpp"

using namespace llm;

int main(int argc, char** argv) {
    Options options("24_parallel", "How do many machines train one model?");
    std::size_t num_ranks = 3;
    options.count("--ranks", num_ranks, 2, 5, "ranks, except where a step names their number");
    return options.run(argc, argv, [&] {
        two_ranks();
        around_the_ring(num_ranks);
        bytes_sent();
        order_of_additions();
        share_of_each_rank(num_ranks, options.seed());
        one_step_on_ranks(options.seed());
        wrong_mean_of_means(num_ranks, options.seed());
        rank_that_leaves_early(num_ranks);
        maximum_of_nan();
        stages_of_zero(num_ranks, options.seed());
        wrong_clipping(num_ranks, options.seed());
        wrong_tied_embedding(num_ranks, options.seed());
        memory_of_ranks();
        memory_of_published_models();
    });
}
