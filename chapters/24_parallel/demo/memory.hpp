// Chapter 24, demo: what each rank keeps in memory.
#pragma once

namespace llm {

void memory_of_ranks();
void memory_of_published_models();

}  // namespace llm
