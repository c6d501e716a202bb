#include "chapters/28_model_parallel/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 28.1 — predict: a step has 12 micro-batches, and a pipeline has 4 stages. What share
// of the time, in percent, is lost? How many micro-batches does the first stage keep at most
// with GPipe's order, and how many with 1F1B?
IdVector predicted_pipeline() {
    TODO("predicted_pipeline");
    // return {?, ?, ?};
}

}  // namespace exercise
