// Chapter 25: what a token of an encoder sees, and what follows from it.
#pragma once

namespace llm {

void bank_of_the_river();
void masks_of_encoders();
void one_more_word();

}  // namespace llm
