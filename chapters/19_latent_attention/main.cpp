// Chapter 19 — How small can a KV cache be? This program computes what attention layers cache
// and cost, and shows latent attention in its two orders of computation.
#include "chapters/19_latent_attention/demo/cost.hpp"
#include "chapters/19_latent_attention/demo/latent.hpp"
#include "common/system/options.hpp"

using namespace llm;

int main(int argc, char** argv) {
    std::string config;
    Options options("19_latent_attention", "How small can a KV cache be?");
    options.path("--config", config, "a config.json: what its attention caches and costs");
    return options.run(argc, argv, [&] {
        if (!config.empty()) return cost_of_config(config);
        Generator generator(options.seed());
        cached_numbers();
        absorb_by_hand();
        rope_between();
        shapes_of_a_layer(generator);
        two_orders(generator);
        orders_by_length();
        parameters_and_flops();
        grouped_as_latent(generator);
    });
}
