#include "chapters/13_training/training_log.hpp"

#include <cstdlib>

#include "common/files/json_file.hpp"
#include "common/files/mapped_file.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// Rounded to six significant digits.
double rounded(double number) { return std::strtod(brief(number).c_str(), nullptr); }

}  // namespace

TrainingLog::TrainingLog(const std::string& file, std::size_t global_step) : file_(file) {
    // Keep the lines up to this step.
    std::string kept;
    for (const std::string& line : complete_lines(file)) {
        const JsonFile record(file, line);
        const std::size_t step = record.size("step");
        if (step > global_step) break;
        if (record.has("seconds")) seconds_ = record.number("seconds");
        if (record.has("validation_loss"))
            evaluations_.push_back({step, record.number("validation_loss")});
        kept += line + "\n";
        last_step_ = step;
    }
    write_file(file, [&](std::ostream& stream) { stream << kept; });
}

void TrainingLog::append_step(std::size_t step, const StepMetrics& metrics, std::size_t tokens,
                              double seconds) {
    append_to_file(file_, json_line({{"step", step},
                                     {"loss", rounded(metrics.loss)},
                                     {"learning_rate", rounded(double(metrics.learning_rate))},
                                     {"grad_norm", rounded(metrics.grad_norm)},
                                     {"tokens", tokens},
                                     {"seconds", rounded(seconds)}}));
    seconds_ = seconds;
    last_step_ = step;
}

void TrainingLog::append_evaluation(std::size_t step, double loss) {
    append_to_file(file_, json_line({{"step", step}, {"validation_loss", rounded(loss)}}));
    evaluations_.push_back({step, loss});
}

}  // namespace llm
