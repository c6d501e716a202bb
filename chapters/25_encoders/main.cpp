// Chapter 25 — What else can read a text? This program shows what a token of an encoder sees,
// trains a small encoder to fill in masked letters, and searches texts with words and vectors.
#include "common/system/options.hpp"

using namespace llm;

int main(int argc, char** argv) {
    Options options("25_encoders", "What else can read a text?");
    return options.run(argc, argv, [&] {});
}
