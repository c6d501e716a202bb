// Chapter 13 — How does a model learn?
#include <algorithm>
#include <cmath>

#include "chapters/11_generation/generation.hpp"
#include "chapters/13_training/ablations/experiments.hpp"
#include "chapters/13_training/walks.hpp"
#include "common/files/mapped_file.hpp"
#include "common/system/options.hpp"
#include "common/output/show.hpp"
#include "common/files/unicode.hpp"

using namespace llm;

// ---- the names ----

// In an order that the seed decides: the list is sorted, and would hold out whole initials.
std::vector<std::string> shuffled_names(Generator& generator) {
    std::vector<std::string> names = lines_of(read_text(asset("data/names.txt")));
    for (std::size_t i = names.size(); i > 1; --i)
        std::swap(names[i - 1], names[generator.next_32_bits() % i]);
    return names;
}

void what_comes_next(const std::vector<std::string>& names, const Task& task,
                     Generator& generator) {
    step("A text, and the same text one token later");
    std::string first, alphabet;
    for (std::size_t i = 0; i < 8; ++i) first += names[i] + " ";
    for (std::size_t id = 1; id < task.tokenizer.pieces.size(); ++id)
        alphabet += escaped(task.tokenizer.pieces[id]);
    show("names", with_commas(names.size()) + ", such as " + first);
    show("tokens to learn from", with_commas(task.corpus.training.size()));
    show("held out", with_commas(task.corpus.validation.size()));
    show("vocabulary", "<unk>" + alphabet);
    const Batch batch = random_batch(task.corpus.training, 2, 10, generator);
    show("inputs", batch.inputs);
    show("targets", batch.targets);
    const auto row = [&](const IdMatrix& ids) {
        return escaped(task.tokenizer.decode({ids.begin(), ids.begin() + 10}));
    };
    show("row 0 of the inputs", row(batch.inputs));
    show("row 0 of the targets", row(batch.targets));
}

void surprise(const Task& task, Generator& generator) {
    step("How surprised was it? The loss, and its gradient");
    const Matrix logits{{3, 1, 0, 0}, {0, 0, 0, 0}};
    const IdVector targets{1, 2};
    const Loss loss = cross_entropy(logits, targets);
    show("logits", logits);
    show("target_ids", targets);
    show("loss", fixed(loss.value, 4));
    show("logits_gradient", loss.gradient);

    const Batch batch = random_batch(task.corpus.training, 32, 16, generator);
    const double vocab_size = double(task.config.vocab_size);
    const auto untrained = [&](const Model& model) {
        return fixed(loss_of(model, batch.inputs, batch.targets), 4);
    };
    show("ln " + to_text(task.config.vocab_size) + ", the loss of a guess",
         fixed(std::log(vocab_size), 4));
    show("loss of an untrained model, drawn with 0.02",
         untrained(fresh_model(task.config, generator)));
    show("drawn as PyTorch does by default", untrained(make_model(task.config, generator)));
}

// All numbers together, against their gradients.
void small_step_down(const std::vector<Parameter>& parameters) {
    const double length = gradient_norm(parameters), rate = 0.01;
    for (const Parameter& parameter : parameters)
        for (std::size_t i = 0; i < parameter.numbers.size(); ++i)
            parameter.numbers[i] -= Real(rate) * parameter.gradients[i];
    show("a step of 0.01 times the gradient promises", fixed(-rate * length * length, 4));
}

// Of each tensor the number whose gradient is largest: the promise, and what the loss does.
void nudges(const Task& task, Generator& generator) {
    step("Nudge a number, and look at the loss");
    Model model = fresh_model(task.config, generator), gradient = zeros_like(model);
    const Batch batch = random_batch(task.corpus.training, 32, 16, generator);
    const auto loss = [&] { return loss_of(model, batch.inputs, batch.targets); };
    const double before = loss_and_gradients(model, batch.inputs, batch.targets, gradient);
    const std::vector<Parameter> parameters = parameters_of(model, gradient);
    std::vector<TableRow> rows;
    for (std::size_t p : {0, 1, 2, 3, 4, 5, 9}) {
        const auto& [name, numbers, gradients, decays] = parameters[p];
        const auto largest =
            std::max_element(gradients.begin(), gradients.end(),
                             [](Real a, Real b) { return std::abs(a) < std::abs(b); });
        Real& number = numbers[std::size_t(largest - gradients.begin())];
        const Real kept = number, nudge = Real(0.01);
        number = kept + nudge;
        const double above = loss();
        number = kept - nudge;
        const double slope = (above - loss()) / (2 * double(nudge));
        number = kept;
        rows.push_back({name, fixed(*largest, 4), fixed(slope, 4)});
    }
    show_table({"its largest gradient", "by backward", "by nudging"}, rows);
    show("loss before", fixed(before, 4));
    small_step_down(parameters);
    show("and changes it by", fixed(loss() - before, 4));
}

void ways_back() {
    step("What a way back drops, and what it adds up");
    const RMSNorm norm = make_rms_norm(4, 0);
    RMSNorm norm_gradient = norm;
    norm_gradient.weight.fill(0);
    const Matrix row{{2, 1, 0, -1}}, pull{{1, 0, 0, 0}};
    const Matrix norm_back = rms_norm_backward(norm, row, pull, norm_gradient);
    show("row", row);
    show("pull", pull);
    show("norm_back", norm_back);
    double along = 0;
    for (std::size_t c = 0; c < 4; ++c) along += double(row(0, c) * norm_back(0, c));
    show("along the row", fixed(std::abs(along), 4));

    const Matrix weights = softmax(row);
    const Matrix softmax_back = softmax_backward(weights, pull);
    show("weights", weights);
    show("softmax_back", softmax_back);

    // Four query heads read one key head: two tokens, D = 2.
    Generator generator(3);
    const Tensor4 queries = randn({1, 4, 2, 2}, generator),
                  keys = randn({1, 1, 2, 2}, generator);
    const Attention attention =
        grouped_query_attention(queries, keys, keys, expand_mask(causal_mask(2, 2), 1));
    const Tensor4 ones = xt::ones<Real>({1, 4, 2, 2});
    const AttentionGradient back =
        attention_backward(queries, keys, keys, attention.weights, ones);
    show("value_gradient", head_of(back.values, 0, 0));
    say("Four query heads of two tokens each read this value head, and each hands back a "
        "gradient "
        "of 1 for every number: 8 together, most of it to token 0, which both tokens see.");
}

// ---- the start: Xiong's question ----

void gradients_at_the_start(const Task& task, Generator& generator) {
    step("The gradient of the last layer, before the first step");
    ModelConfig config = task.config;
    config.hidden_size = 32;
    config.intermediate_size = llama_intermediate_size(32, 4);
    const Batch batch = random_batch(task.corpus.training, 4, 16, generator);
    std::vector<TableRow> rows;
    LinePlot last{"Gradient of the last layer's MLP", "layers", "length", {}};
    LinePlot all{"Gradient of each layer's MLP, 24 layers", "layer", "length", {}, true};
    for (const auto& [name, arrangement] : trained_arrangements()) {
        TableRow row = {name};
        last.lines.push_back({name, {}, {}});
        for (const std::size_t depth : {6u, 12u, 24u, 48u}) {
            config.num_hidden_layers = depth;
            const std::vector<double> lengths =
                gradients_at_start(config, arrangement, batch, 8);
            row.push_back(fixed(lengths.back(), 4));
            last.lines.back().x.push_back(double(depth));
            last.lines.back().y.push_back(lengths.back());
            if (depth != 24) continue;
            all.lines.push_back({name, {}, lengths});
            for (std::size_t n = 0; n < depth; ++n) all.lines.back().x.push_back(double(n));
        }
        rows.push_back(row);
    }
    show_table({"last layer, of", "6", "12", "24", "48 layers"}, rows);
    plot("start", {last, all});
}

// ---- how long a step is ----

void lengths_of_steps(const Schedule& schedule) {
    step("How long is a step?");
    std::vector<TableRow> rows;
    for (const Real g : {Real(0.001), Real(1), Real(1000)}) {
        Vector number{Real(0)}, gradient{g};
        const std::vector<Parameter> parameters = {{"w", number, gradient, false}};
        AdamW optimizer;
        optimizer.step(parameters, Real(0.01));
        rows.push_back({brief(double(g)), brief(-0.01 * double(g)), fixed(number(0), 4)});
    }
    show_table({"gradient", "0.01 times it", "AdamW's first step at 0.01"}, rows);
    Line line{"", {}, {}};
    for (std::size_t n = 0; n < schedule.steps; n += 1 + schedule.steps / 400) {
        line.x.push_back(double(n));
        line.y.push_back(double(schedule.at(n)));
    }
    const auto rate = [&](std::size_t step) { return fixed(double(schedule.at(step)), 5); };
    const std::size_t top = schedule.warmup_steps, half = top + (schedule.steps - top) / 2;
    show("learning rates of steps 1, " + to_text(top + 1) + ", " + to_text(half + 1) +
             " and the last",
         rate(0) + ", " + rate(top) + ", " + rate(half) + ", " + rate(schedule.steps - 1));
    plot("schedule", {LinePlot{"Learning rate", "step", "", {line}}});
}

// ---- invented names ----

std::vector<std::string> invent(const Model& model, const Task& task, std::size_t count,
                                Generator& generator) {
    const Id line_end = task.tokenizer.ids.at("\n");
    Writing writing;
    writing.max_new_tokens = task.config.max_position_embeddings - 2;
    writing.end_ids = {line_end};
    std::vector<std::string> names;
    while (names.size() < count)
        names.push_back(task.tokenizer.decode(generate(model, {line_end}, writing, generator)));
    return names;
}

void what_it_invents(const Model& model, const Task& task,
                     const std::vector<std::string>& names, Generator& generator) {
    step("Forty names, and where they come from");
    const std::string learned_from = task.tokenizer.decode(task.corpus.training);
    std::string fresh, never_shown, repeated;
    for (const std::string& name : invent(model, task, 40, generator)) {
        const bool is_known = std::find(names.begin(), names.end(), name) != names.end();
        const bool was_shown = learned_from.find("\n" + name + "\n") != std::string::npos;
        (was_shown ? repeated : is_known ? never_shown : fresh) += escaped(name) + " ";
    }
    const auto or_none = [](const std::string& list) { return list.empty() ? "none" : list; };
    say("In no list: " + or_none(fresh));
    say("In the held-out part, never shown to it: " + or_none(never_shown));
    say("It has seen them: " + or_none(repeated));
}

std::vector<std::string> learn_names(Task& task, Generator& generator) {
    const std::vector<std::string> names = shuffled_names(generator);
    std::string text = "\n";
    for (const std::string& name : names) text += name + "\n";
    learn_text(task, text, 0);
    return names;
}

void names_walk(Task task, Keeping keeping, Generator& generator) {
    const std::vector<std::string> names = learn_names(task, generator);
    if (keeping.folder.empty()) {
        keeping.folder = model_folder("names");
        keeping.replace = true;  // it takes a minute, and the seed brings it back
    }
    check_run(keeping);
    // The examples before the run have 16 tokens, whatever --seq-len says.
    std::size_t& longest = task.config.max_position_embeddings;
    longest = std::max<std::size_t>(longest, 16);
    Generator unused(0);  // a run that does not fit is refused before anything is printed
    if (keeping.resume) begun(task, fresh_model(task.config, unused), keeping);
    what_comes_next(names, task, generator);
    surprise(task, generator);
    nudges(task, generator);
    ways_back();
    gradients_at_the_start(task, generator);
    lengths_of_steps(task.plan.schedule);

    step("The run");
    Training training = begun(task, fresh_model(task.config, generator), keeping);
    Reports reports;
    reports.sample = [&](const Model& model) {
        Generator same(task.plan.seed);
        std::string line;
        for (const std::string& name : invent(model, task, 4, same))
            line += (line.size() + name.size() < 44 ? escaped(name) : "...") + " ";
        return line;
    };
    train(training, task, keeping, reports);

    step("What it has learned");
    against_counting(task, training.model);
    what_it_invents(training.model, task, names, generator);
}

// ---- options ----

// What --hidden-size and its like may change; 0: as it is.
struct Sizes {
    std::size_t hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0,
                num_attention_heads = 0, num_key_value_heads = 0, batch_size = 0, seq_len = 0,
                accumulate = 0, steps = 0;
    float learning_rate = 0;
};

void take(std::size_t& value, std::size_t wanted) {
    if (wanted > 0) value = wanted;
}

Task sized(Task task, const Sizes& wanted) {
    ModelConfig& config = task.config;
    Plan& plan = task.plan;
    take(config.hidden_size, wanted.hidden_size);
    config.intermediate_size = llama_intermediate_size(config.hidden_size, 4);
    take(config.intermediate_size, wanted.intermediate_size);
    take(config.num_hidden_layers, wanted.num_hidden_layers);
    take(config.num_attention_heads, wanted.num_attention_heads);
    take(config.num_key_value_heads, wanted.num_key_value_heads);
    take(plan.batch_size, wanted.batch_size);
    take(plan.seq_len, wanted.seq_len);
    take(plan.accumulate, wanted.accumulate);
    if (wanted.learning_rate > 0) plan.schedule.highest = wanted.learning_rate;
    plan.schedule.lowest = plan.schedule.highest / 10;
    set_steps(plan.schedule, wanted.steps > 0 ? wanted.steps : plan.schedule.steps);
    config.max_position_embeddings = plan.seq_len;
    config.use_qk_norm = false;
    task.config = complete(config);
    const std::size_t count = count_parameters(task.config).total();
    require(count <= 200'000'000, "training: {} parameters are too many for one machine",
            count);
    return task;
}

Task names_task() {
    Task task;
    task.config.hidden_size = 64;
    task.config.num_hidden_layers = 3;
    task.config.num_attention_heads = 4;
    task.config.num_key_value_heads = 2;
    task.plan.batch_size = 8;
    task.plan.seq_len = 32;
    task.plan.accumulate = 4;
    task.plan.schedule.highest = Real(0.003);
    task.plan.schedule.steps = 1500;
    return task;
}

Task text_task() {
    Task task;
    task.config.hidden_size = 192;
    task.config.num_hidden_layers = 4;
    task.config.num_attention_heads = 6;
    task.config.num_key_value_heads = 2;
    task.plan.batch_size = 2;
    task.plan.seq_len = 256;
    task.plan.accumulate = 4;
    task.plan.schedule.highest = Real(0.002);
    return task;
}

int main(int argc, char** argv) {
    Sizes sizes;
    Keeping keeping;
    std::string file;
    std::size_t vocab_size = 1024;
    float minutes = 5;
    bool experiments = false;
    Options options("13_training", "How does a model learn?");
    options.path("--text", file, "a text to learn from, UTF-8; without it: names");
    options.number("--minutes", minutes, 0.1, 10000, "how long to train on a text");
    options.needs("--minutes", "--text");
    options.count("--steps", sizes.steps, 0, 1 << 24, "how many steps instead, 0: what fits");
    options.folder("--folder", keeping.folder, "where run and model are kept");
    options.flag("--resume", keeping.resume, "go on with the run that is kept there");
    options.flag("--bfloat16", keeping.bfloat16, "keep the model in 16 bits");
    options.count("--vocab-size", vocab_size, 0, 1 << 16,
                  "tokens to learn for a text, 0: its characters");
    options.needs("--vocab-size", "--text");
    options.size("--hidden-size", sizes.hidden_size);
    options.size("--intermediate-size", sizes.intermediate_size);
    options.size("--num-hidden-layers", sizes.num_hidden_layers);
    options.size("--num-attention-heads", sizes.num_attention_heads);
    options.size("--num-key-value-heads", sizes.num_key_value_heads);
    options.size("--batch-size", sizes.batch_size);
    options.size("--seq-len", sizes.seq_len);
    options.count("--accumulate", sizes.accumulate, 1, 256, "batches of one step");
    options.number("--learning-rate", sizes.learning_rate, 0, 1, "the highest, 0: as it is");
    options.flag("--experiments", experiments, "train variants side by side (10 minutes)");

    return options.run(argc, argv, [&] {
        Generator generator(options.seed());
        Task task = sized(file.empty() ? names_task() : text_task(), sizes);
        task.plan.seed = options.seed();
        if (experiments) {
            learn_names(task, generator);
            return experiments_walk(task);
        }
        if (file.empty()) return names_walk(std::move(task), keeping, generator);
        text_walk(std::move(task), keeping, file, vocab_size,
                  sizes.steps > 0 ? 0 : double(minutes), generator);
    });
}
