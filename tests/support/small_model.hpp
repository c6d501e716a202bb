// A model small enough for tests, and the checkpoints of tests/fixtures/09_full_model.
#pragma once

#include <string>

#include "chapters/09_full_model/model.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "tests/support/check.hpp"

namespace llm {

// The sizes of those checkpoints. B, T, H, Hkv, D and V differ, so that no swapped axes can go
// unnoticed.
inline Config small_config() {
    Config config = mini_llm_config();
    config.hidden_size = 16;
    config.intermediate_size = 20;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.vocab_size = 17;
    config.max_position_embeddings = 64;
    return config;
}

// A context so short that it is easily exceeded.
inline Config short_context_config(std::size_t head_dim) {
    Config config = small_config();
    config.head_dim = head_dim;
    config.rope_theta = 100;
    config.max_position_embeddings = 10;
    return config;
}

// The input of their expected logits.
const inline IdMatrix small_ids{{3, 16, 0, 5, 5}, {9, 1, 2, 3, 4}};  // (B, T)

// The same names in the same order, and equal values up to 1e-5.
inline void check_parameters(const std::vector<Parameter>& parameters,
                             const std::vector<Parameter>& expected) {
    REQUIRE(parameters.size() == expected.size());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        CAPTURE(parameters[p].name);
        REQUIRE(parameters[p].name == expected[p].name);
        Vector values = xt::zeros<Real>({parameters[p].values.size()});
        Vector expected_values = xt::zeros<Real>({expected[p].values.size()});
        std::copy_n(parameters[p].values.begin(), values.size(), values.begin());
        std::copy_n(expected[p].values.begin(), expected_values.size(),
                    expected_values.begin());
        CHECK_CLOSE(values, expected_values, 1e-5);
    }
}

inline std::string checkpoint(const std::string& name) {
    return fixture_path("09_full_model/" + name);
}
inline Tensor3 expected_logits(const std::string& name) {
    return fixture<3>("09_full_model/" + name + "_logits");
}

}  // namespace llm
