// Random orders and random elements of a list.
#pragma once

#include <utility>
#include <vector>

#include "common/numbers/random.hpp"

namespace llm {

// Puts the elements in a random order. Source: Fisher and Yates; random.shuffle of Python.
template <class T>
void shuffle(std::vector<T>& items, Generator& generator) {
    for (std::size_t i = items.size(); i > 1; --i)
        std::swap(items[i - 1], items[generator.next_32_bits() % i]);
}

// `count` random elements, with replacement. Source: random.choices of Python.
template <class T>
std::vector<T> random_choices(const std::vector<T>& items, std::size_t count,
                              Generator& generator) {
    std::vector<T> chosen;
    for (std::size_t i = 0; i < count; ++i)
        chosen.push_back(items[generator.next_32_bits() % items.size()]);
    return chosen;
}

}  // namespace llm
