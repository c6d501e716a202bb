// Answers that go wrong, one in each way that the report of ./learn exercise must survive.
// check_exercises.py runs them.
#include <cstdlib>
#include <memory>

#include "common/system/exercise.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

std::size_t negative_size() { return static_cast<std::size_t>(-9); }
const char* text_of(bool condition) { return condition ? "with bias" : "without bias"; }

}  // namespace

TEST_CASE("0.1 write a null pointer") {
    volatile int* nowhere = nullptr;
    *nowhere = 1;
}

TEST_CASE("0.2 write an endless loop") {
    const volatile bool forever = true;
    while (forever) {
    }
}

TEST_CASE("0.3 write an abort") { std::abort(); }

TEST_CASE("0.4 write the end of the program") { std::exit(0); }

TEST_CASE("0.5 write a wrong shape") {
    INFO("a layer ", text_of(true));
    CHECK_CLOSE(counting({2, 3}), counting({3, 2}), 0);
}

TEST_CASE("0.6 write a negative size") {
    INFO("an offset of -10");
    const std::array<std::size_t, 2> shape{negative_size(), 1};
    require(false, "reshape: (0,) does not fit into {}", shape);
}

TEST_CASE("0.7 write too many values") {
    const std::unique_ptr<char[]> values(new char[std::size_t{5} << 30]);
    CHECK(values != nullptr);
}

TEST_CASE("0.8 write a wrong value") {
    const std::vector<Id> ids{1, 2};
    CHECK(ids == std::vector<Id>{1, 3});
}

TEST_CASE("0.9 predict a value") {
    const int prediction = 7;
    CHECK(prediction == 6 * 7);
}

TEST_CASE("0.10 predict a tensor") { CHECK_CLOSE(Vector{7}, Vector{42}, 0); }

TEST_CASE("0.11 predict too few numbers") { CHECK_CLOSE(Vector{7}, (Vector{7, 42}), 0); }

TEST_CASE("0.12 write nothing") { TODO("nothing"); }

TEST_CASE("0.13 write the right answer") { CHECK(counting({2}).size() == 2); }
