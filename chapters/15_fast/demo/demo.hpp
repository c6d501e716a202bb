// The demos of chapter 15's program.
#pragma once

#include "chapters/15_fast/roofline.hpp"
#include "common/output/show.hpp"

namespace llm {

// Whether run times are measured, and the roofline that they are compared with. With
// --no-timing all times are shown as "-", since they differ from run to run.
struct Timing {
    bool enabled = true;
    Roofline roofline{};

    // Seconds of the fastest run; runs nothing and returns 0 if timing is disabled.
    double seconds(int runs, const std::function<void()>& function) const;
    std::string cell(double value, int decimals) const;
    std::string percent(double part, double whole) const;
};

// matmul.cpp
void show_roofline(Timing& timing);
void matmul_variants(const Timing& timing, Generator& generator);
void forward_variants(const Timing& timing, const Model& model,
                      const std::vector<Id>& ids);  // T
// attention.cpp
void online_softmax();
void attention_in_tiles(Generator& generator);

// bandwidth.cpp
void decode_matvec(const Timing& timing, const Matrix& weight,  // (out, in)
                   Generator& generator);
void batched_matmul(const Timing& timing, const Matrix& weight,  // (out, in)
                    Generator& generator);

}  // namespace llm
