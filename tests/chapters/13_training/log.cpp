#include "chapters/13_training/training_log.hpp"
#include "tests/support/training.hpp"

using namespace llm;

namespace {

const std::string three_lines =
    R"({"step":1,"loss":3.5,"learning_rate":0.001,"grad_norm":2.0,"tokens":8,"seconds":0.25})"
    "\n"
    R"({"step":2,"loss":3.25,"learning_rate":0.002,"grad_norm":1.5,"tokens":16,"seconds":0.75})"
    "\n"
    R"({"step":2,"validation_loss":3.125})"
    "\n";
const std::string fourth_line =
    R"({"step":3,"loss":"nan","learning_rate":0.002,"grad_norm":0.333333,"tokens":24,)"
    R"("seconds":1.0})"
    "\n";

void append_two_steps(const std::string& file) {
    TrainingLog log(file, 0);
    log.append_step(1, {3.5, 2, Real(0.001)}, 8, 0.25);
    log.append_step(2, {3.25, 1.5, Real(0.002)}, 16, 0.75);
    log.append_evaluation(2, 3.125);
    CHECK(content(file) == three_lines);  // also while the log is open
    log.append_step(3, {NAN, 1. / 3, Real(0.002)}, 24, 1);
    CHECK(log.seconds() == 1);
}

}  // namespace

TEST_CASE("a log has one JSON object per step and per evaluation") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "log.jsonl").string();
    append_two_steps(file);
    CHECK(content(file) == three_lines + fourth_line);
    CHECK(TrainingLog(file, 3).evaluations().size() == 1);
    CHECK(TrainingLog(file, 3).last_step() == 3);
    CHECK(TrainingLog(file, 5).last_step() == 3);  // cut: two completed steps have no line
    CHECK(content(file) == three_lines + fourth_line);
    CHECK_THROWS_AS(TrainingLog((scratch.folder / "none/log.jsonl").string(), 0), FileError);
}

TEST_CASE("the log of a resumed run is truncated to the step of its checkpoint") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "log.jsonl").string();
    for (const std::string rest : {"", "{", "{\"step\":", "{\"step\":4,\"loss\":1.0}"}) {
        INFO(rest);
        append_two_steps(file);
        overwrite(file, content(file) + rest);
        TrainingLog log(file, 2);
        CHECK(content(file) == three_lines);
        CHECK(log.seconds() == 0.75);
        REQUIRE(log.evaluations().size() == 1);
        CHECK(log.evaluations()[0].step == 2);
        CHECK(log.evaluations()[0].loss == 3.125);
        log.append_step(3, {NAN, 1. / 3, Real(0.002)}, 24, 1);
        CHECK(content(file) == three_lines + fourth_line);
    }
    overwrite(file, three_lines + fourth_line.substr(0, 30));
    TrainingLog(file, 3);
    CHECK(content(file) == three_lines);
    overwrite(file, "step 1\n");
    CHECK_THROWS_WITH_AS(TrainingLog(file, 2), (file + ": not valid JSON at column 1").c_str(),
                         FileError);
}
