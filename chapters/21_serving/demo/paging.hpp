// Chapter 21: the steps of the program about memory.
#pragma once

#include <cstddef>

namespace llm {

void one_step_for_many();
void reserved_memory(std::size_t page_size);
void pages_of_sequences();
void common_beginning();

}  // namespace llm
