// Chapter 15 — What makes it fast?
#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/10_tokenizer/tokenizer_json.hpp"
#include "chapters/15_fast/fast_model.hpp"
#include "chapters/15_fast/matmul.hpp"
#include "common/files/mapped_file.hpp"
#include "common/numbers/statistics.hpp"
#include "common/system/options.hpp"
#include "common/system/parallel.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"
#include "common/files/unicode.hpp"

using namespace llm;

// Psalm 23: a text for the model to read.
const std::string psalm =
    "The LORD is my shepherd; I shall not want.\n"
    "He maketh me to lie down in green pastures: he leadeth me beside the still waters.\n"
    "He restoreth my soul: he leadeth me in the paths of righteousness for his name's sake.\n"
    "Yea, though I walk through the valley of the shadow of death, I will fear no evil: for "
    "thou art with me; thy rod and thy staff they comfort me.\n"
    "Thou preparest a table before me in the presence of mine enemies: thou anointest my head "
    "with oil; my cup runneth over.\n"
    "Surely goodness and mercy shall follow me all the days of my life: and I will dwell in "
    "the house of the LORD for ever.";

// Times, unless they are not wanted: they differ from run to run.
struct Clock {
    bool running = true;
    Limits limits{};

    double seconds(int runs, const std::function<void()>& work) const {
        return running ? fastest_seconds(runs, work) : 0;
    }
    std::string cell(double number, int decimals) const {
        return running ? fixed(number, decimals) : "-";
    }
    std::string percent(double part, double whole) const {
        return running ? fixed(100 * part / whole, part < 0.1 * whole ? 1 : 0) : "-";
    }
};

void limits_of_this_machine(Clock& clock) {
    step("What this machine can do at best");
    if (clock.running) clock.limits = measure_limits();
    const auto& [one_core, all_cores, reading] = clock.limits;
    show_table({"limit", "measured by", "at best"},
               {{"arithmetic, one core", "a product of two 1024 x 1024 matrices",
                 clock.cell(one_core, 0) + " GFLOP/s"},
                {"arithmetic, all cores", "the same", clock.cell(all_cores, 0) + " GFLOP/s"},
                {"memory", "reading 134 MB", clock.cell(reading, 1) + " GB/s"}});
    show("operations in the time of one byte", clock.cell(all_cores / reading, 1));
}

void one_product(const Clock& clock, Generator& generator) {
    step("One product, five ways");
    const Matrix inputs = randn({32, 384}, generator);    // (N, in)
    const Matrix weight = randn({1536, 384}, generator);  // (out, in)
    show_shape("inputs", inputs);
    show_shape("weight", weight);
    const Matrix expected = product_by_blas(inputs, weight);
    const std::vector<std::pair<std::string, Product>> ways = {
        {"loops, down the columns", product_down_the_columns},
        {"loops, along the rows", product_along_the_rows},
        {"xtensor's expression", product_by_expression},
        {"in lanes", product_in_lanes},
        {"BLAS", product_by_blas}};
    std::vector<TableRow> rows;
    bool equal = true;
    for (const auto& way : ways) {
        const Product product = way.second;
        equal = equal && largest_difference(product(inputs, weight), expected) < 1e-3;
        const double seconds =
            clock.seconds(product == product_by_blas ? 9 : 1, [&] { product(inputs, weight); });
        const double speed = 2e-9 * double(inputs.size() * weight.shape(0)) / seconds;
        rows.push_back({way.first, clock.cell(1000 * seconds, 2), clock.cell(speed, 1),
                        clock.percent(speed, clock.limits.all_cores)});
    }
    show_table({"way", "ms", "GFLOP/s", "% of the limit"}, rows);
    show("within 1e-3 of each other", equal);
}

void whole_forward(const Clock& clock, const Model& model, const std::vector<Id>& ids) {
    step("The same forward of a whole model, rung by rung");
    const IdMatrix input_ids = one_sequence(ids);  // (1, T)
    show_shape("input_ids", input_ids);
    const double operations = operations_of_prefill(model.config, ids.size());
    show("million operations", fixed(operations / 1e6, 1));
    std::vector<TableRow> rows;
    Matrix logits;  // (T, V)
    double first = 0;
    const auto rung = [&](const std::string& name, int runs, const auto& forward) {
        if (!clock.running) forward();
        const double seconds = clock.seconds(runs, forward);
        if (first == 0) first = seconds;
        rows.push_back({name, clock.cell(1000 * seconds, 1), clock.cell(first / seconds, 1),
                        clock.percent(operations / seconds / 1e9, clock.limits.all_cores)});
    };
    rung("loops", 1, [&] { forward_with(product_along_the_rows, model, input_ids); });
    rung("xtensor's expressions", 1,
         [&] { forward_with(product_by_expression, model, input_ids); });
    rung("lanes", 1, [&] { forward_with(product_in_lanes, model, input_ids); });
    rung("BLAS: chapter 09", 3, [&] { model(input_ids); });
    for (const Weights kind : all_weights) {
        const FastModel fast = make_fast(model, kind);
        FastState state = make_state(fast, ids.size());
        rung("fused, in blocks: " + name_of(kind), 5, [&] {
            state.length = 0;
            compute_logits(fast, ids, state, LogitsOf::all);
        });
        if (kind == Weights::float32) logits = state.logits;
    }
    show_table({"rung", "ms", "times as fast", "% of the limit"}, rows);

    const Matrix expected =
        reshape(model(input_ids), {ids.size(), model.config.vocab_size});  // (T, V)
    show("float32: logits within 1e-3 of chapter 09's",
         largest_difference(logits, expected) < 1e-3);
}

void softmax_in_pieces() {
    step("A softmax that reads its scores in pieces");
    const Vector scores = {1, 3, 2, 0, 5, 4};
    show("scores", scores);
    OnlineSoftmax softmax;
    std::vector<TableRow> rows;
    for (std::size_t begin = 0; begin < scores.size(); begin += 2) {
        std::array<Real, 2> piece = {scores(begin), scores(begin + 1)};
        const std::string read = brief(piece[0]) + " " + brief(piece[1]);
        const Real factor = softmax.add(piece, 1);
        rows.push_back({read, brief(softmax.maximum), fixed(factor, 4), fixed(piece[0], 4),
                        fixed(piece[1], 4), fixed(softmax.sum, 4)});
    }
    show_table({"scores", "maximum", "factor", "weight", "weight", "sum"}, rows);
    Vector at_once = scores;
    show("sum of all at once", fixed(exponentials({at_once.data(), at_once.size()}, 1, 5), 4));
}

void attention_in_tiles(Generator& generator) {
    step("Attention without its matrix");
    const std::size_t seq_len = 500, head_dim = 64;
    const Matrix queries = randn({seq_len, head_dim}, generator);  // (T, D)
    const Matrix keys = randn({seq_len, head_dim}, generator);
    const Matrix values = randn({seq_len, head_dim}, generator);
    Matrix context = xt::zeros<Real>({seq_len, head_dim});
    attend_blockwise(rows_of(queries), rows_of(keys), rows_of(values), 0, rows_of(context));
    const Matrix mask = causal_mask(seq_len, seq_len);
    const HeadAttention expected = attention(queries, keys, values, mask);
    show_shape("chapter 05's weights, of one head", expected.weights);
    show("contexts within 1e-5 of chapter 05's",
         largest_difference(context, expected.context) < 1e-5);

    // How much of a tile's scores is seen, in percent? What nobody sees is not computed.
    const std::size_t num_tiles = (seq_len + tile_size - 1) / tile_size;
    Matrix tiles = xt::zeros<Real>({num_tiles, num_tiles});
    for (std::size_t i = 0; i < num_tiles; ++i)
        for (std::size_t j = 0; j < num_tiles; ++j) tiles(i, j) = j < i ? 100 : j == i ? 51 : 0;
    show("tiles", tiles);
    plot("tiles", {Heatmap{"Percent of each tile's scores that are seen", "tile of 64 keys",
                           "tile of 64 queries", tiles}});

    std::vector<TableRow> rows;
    for (const std::size_t length : {512u, 2048u, 8192u, 131072u}) {
        const double whole = 4.0 * 6 * double(length) * double(length);
        const double kept = 4.0 * 3 * 6 * 64 * double(length);
        rows.push_back({with_commas(length), fixed(whole / 1e6, 1), fixed(kept / 1e6, 1)});
    }
    show_table({"tokens", "MB: weights of 6 heads", "MB: their queries, keys, values"}, rows);
}

// The largest error of weights of about one size.
void plot_errors(Generator& generator) {
    const Matrix weights = uniform({256, group_size}, Real(-0.2), Real(0.2), generator);
    std::vector<Line> lines;
    for (const Weights kind : {Weights::int8, Weights::bfloat16}) {
        const Matrix error = unpack(pack(weights, kind)) - weights;
        Line line{name_of(kind), {}, std::vector<double>(80)};
        for (std::size_t bin = 0; bin < 80; ++bin) line.x.push_back((double(bin) - 39.5) / 200);
        for (std::size_t i = 0; i < weights.size(); ++i) {
            const auto bin = static_cast<std::size_t>((weights.data()[i] + Real(0.2)) * 200);
            double& largest = line.y[std::min(bin, std::size_t{79})];
            largest = std::max(largest, 1000 * std::abs(double(error.data()[i])));
        }
        lines.push_back(line);
    }
    plot("errors", {LinePlot{"What rounding does to a weight", "weight",
                             "largest error, in thousandths", lines}});
}

void one_row(Generator& generator) {
    step("Eight weights in fewer bytes");
    const Matrix row = randn({1, group_size}, generator) * Real(0.05);  // (1, 64)
    const PackedMatrix halves = pack(row, Weights::bfloat16), bytes = pack(row, Weights::int8);
    const auto first = [](const Matrix& matrix) {
        return Vector(xt::view(matrix, 0, xt::range(0, 8)));
    };
    show("weights", first(row));
    show("as_bfloat16", first(unpack(halves)));
    Vector numbers = xt::zeros<Real>({8});
    std::copy_n(bytes.bytes.begin(), 8, numbers.begin());
    show("whole_numbers", numbers);
    show("scale of these 64", fixed(bytes.scales[0], 6));
    show("as_int8", first(unpack(bytes)));
    plot_errors(generator);
}

// Nats per token that the model is surprised by this text.
double loss_of(ConstRows logits, const std::vector<Id>& ids) {
    double loss = 0;
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
        std::vector<Real> row(logits[t].begin(), logits[t].end());
        const Real right = row[static_cast<std::size_t>(ids[t + 1])], most = largest(row);
        loss += std::log(exponentials(row, 1, most)) - (right - most);
    }
    return loss / double(ids.size() - 1);
}

void what_it_costs(const Model& model, const std::vector<Id>& ids) {
    step("A whole model in fewer bytes");
    std::vector<TableRow> rows;
    Matrix expected;
    for (const Weights kind : all_weights) {
        const FastModel fast = make_fast(model, kind);
        FastState state = make_state(fast, ids.size());
        const ConstRows logits = compute_logits(fast, ids, state, LogitsOf::all);
        if (expected.size() == 0) expected = state.logits;
        const Matrix error = state.logits - expected;
        std::size_t same = 0;
        for (std::size_t t = 0; t < ids.size(); ++t) {
            const auto best = [&](std::span<const Real> row) {
                return std::max_element(row.begin(), row.end()) - row.begin();
            };
            same += best(logits[t]) == best(rows_of(expected)[t]);
        }
        rows.push_back({name_of(kind), fixed(double(fast.weight_memory()) / 1e6, 2),
                        fixed(root_mean_square(error), 4),
                        fixed(100.0 * double(same) / double(ids.size()), 1),
                        fixed(loss_of(logits, ids), 4)});
    }
    show_table({"weights", "MB", "error of logits", "% same choice", "loss"}, rows);
    show("size of the logits", fixed(root_mean_square(expected), 4));
}

void one_token(const Clock& clock, const Matrix& weight, Generator& generator) {
    step("One token against a large matrix");
    const Vector input = uniform({384}, -1, 1, generator);
    Vector output = xt::zeros<Real>({32000});
    LimitWork other;
    const auto numbers = [](auto& vector) { return std::span(vector.data(), vector.size()); };
    std::vector<TableRow> rows;
    double first = 0;
    for (const Weights kind : all_weights) {
        const PackedMatrix packed = pack(weight, kind);
        double seconds = infinity;
        for (int run = 0; run < 5; ++run) {
            other.read();  // so that the weights do not lie in a cache
            seconds = std::min(seconds, clock.seconds(1, [&] {
                project_token(packed, numbers(input), numbers(output));
            }));
        }
        if (first == 0) first = seconds;
        const double bytes = double(packed.memory()), speed = bytes / seconds / 1e9;
        rows.push_back({name_of(kind), fixed(bytes / 1e6, 1), clock.cell(1000 * seconds, 2),
                        clock.cell(speed, 1), clock.percent(speed, clock.limits.reading),
                        clock.cell(first / seconds, 1)});
    }
    show_table({"weights", "MB", "ms", "GB/s", "% of the limit", "times as fast"}, rows);
}

void more_tokens(const Clock& clock, const Matrix& weight, Generator& generator) {
    if (!clock.running) return;
    step("More tokens for the same bytes");
    const PackedMatrix packed = pack(weight, Weights::float32);
    const double most = clock.limits.all_cores, one_token = clock.limits.reading / 2;
    const Line roof{"at most", {1, most / one_token, 128}, {one_token, most, most}};
    Line one_by_one{"token by token, in lanes", {}, {}}, together{"all at once, BLAS", {}, {}};
    std::vector<TableRow> rows;
    for (std::size_t count = 1; count <= 128; count *= 2) {
        Matrix inputs = uniform({count, 384}, -1, 1, generator);
        Matrix outputs = xt::zeros<Real>({count, std::size_t{32000}});
        const double operations = 2e-9 * double(count) * double(weight.size());
        const double by_memory = one_token * double(count);
        together.y.push_back(operations / fastest_seconds(2, [&] {
                                 multiply_rows(rows_of(inputs), rows_of(weight),
                                               rows_of(outputs));
                             }));
        if (count <= 4)
            one_by_one.y.push_back(operations / fastest_seconds(2, [&] {
                                       for (std::size_t t = 0; t < count; ++t)
                                           project_token(packed, rows_of(inputs)[t],
                                                         rows_of(outputs)[t]);
                                   }));
        for (Line* line : {&one_by_one, &together}) line->x.push_back(double(count));
        rows.push_back({to_text(count), count <= 4 ? fixed(one_by_one.y.back(), 1) : "",
                        fixed(together.y.back(), 1), fixed(std::min(most, by_memory), 1),
                        by_memory < most ? "memory" : "arithmetic"});
    }
    show_table({"tokens", "one by one", "all at once", "GFLOP/s at most", "limited by"}, rows);
    plot("roofline", {LinePlot{"N tokens and a matrix of (32000, 384)",
                               "tokens",
                               "GFLOP/s",
                               {roof, together, one_by_one},
                               true,
                               true}});
}

// Goes on with the ids, always with the likeliest token.
std::vector<Id> write_fast(const FastModel& model, std::vector<Id> ids, std::size_t count,
                           const std::vector<Id>& ends) {
    const std::size_t length =
        std::min(ids.size() + count, model.config.max_position_embeddings);
    FastState state = make_state(model, length);
    ConstRows logits = compute_logits(model, ids, state);
    while (ids.size() < length) {
        const std::span<const Real> row = logits[0];
        const Id id = std::max_element(row.begin(), row.end()) - row.begin();
        if (std::ranges::find(ends, id) != ends.end()) break;
        ids.push_back(id);
        if (ids.size() < length) logits = compute_logits(model, std::span(&id, 1), state);
    }
    return ids;
}

std::vector<Id> write_slowly(const Model& model, const std::vector<Id>& prompt,
                             std::size_t count, const std::vector<Id>& ends) {
    Writing writing;
    writing.sampling.temperature = 0;
    writing.max_new_tokens = count;
    writing.end_ids = ends;
    Generator unused(1);
    std::vector<Id> ids = prompt;
    const std::vector<Id> written = generate(model, prompt, writing, unused);
    ids.insert(ids.end(), written.begin(), written.end());
    return ids;
}

void it_writes(const Clock& clock, const Model& model, const Tokenizer& tokenizer,
               const std::vector<Id>& prompt, std::size_t count) {
    step("It writes, always the likeliest token");
    std::vector<TableRow> rows;
    std::vector<Id> expected;
    double slow = 0;
    const auto row = [&](const std::string& name, int runs, const auto& write) {
        std::vector<Id> ids;
        const double seconds = fastest_seconds(runs, [&] { ids = write(); });
        if (expected.empty()) expected = ids, slow = seconds;
        const auto differs = std::ranges::mismatch(ids, expected).in1;
        const double written = double(ids.size() - prompt.size());
        rows.push_back({name, clock.cell(written / seconds, 0), clock.cell(slow / seconds, 1),
                        to_text(std::size_t(differs - ids.begin()) - prompt.size())});
    };
    row("chapter 10", 1, [&] { return write_slowly(model, prompt, count, tokenizer.ends); });
    for (const Weights kind : all_weights) {
        const FastModel fast = make_fast(model, kind);
        row(name_of(kind), 2, [&] { return write_fast(fast, prompt, count, tokenizer.ends); });
    }
    write_text(tokenizer.decode(expected));
    end_text();
    show_table({"weights", "tokens per second", "times as fast", "tokens as in chapter 10"},
               rows);
}

void walk(Clock clock, const Model& model, const Tokenizer& tokenizer, Generator generator) {
    const std::vector<Id> ids = tokenizer.encode(psalm);
    limits_of_this_machine(clock);
    one_product(clock, generator);
    whole_forward(clock, model, std::vector<Id>(ids.begin(), ids.begin() + 64));
    softmax_in_pieces();
    attention_in_tiles(generator);
    one_row(generator);
    what_it_costs(model, ids);
    const Matrix weight = uniform({32000, 384}, -1, 1, generator);  // (out, in)
    one_token(clock, weight, generator);
    more_tokens(clock, weight, generator);
}

int main(int argc, char** argv) {
    bool no_clock = false;
    std::string model_path, tokenizer_path, prompt = "And the LORD said unto Moses";
    std::size_t max_new_tokens = 100;
    Options options("15_fast", "What makes it fast?");
    options.flag("--no-clock", no_clock, "leave out all that differs from run to run");
    options.path("--model", model_path, "write with another: a folder, or a llama2.c file");
    options.path("--tokenizer", tokenizer_path, "its tokenizer, if it does not lie beside it");
    options.needs("--tokenizer", "--model");
    options.text("--prompt", prompt, "the text to go on with");
    options.count("--max-new-tokens", max_new_tokens, 1, 1 << 20, "tokens to write");

    return options.run(argc, argv, [&] {
        const bool own_model = !model_path.empty();
        if (!own_model) model_path = asset("king_james");
        const Model model = load_model(model_path);
        const std::size_t vocab_size = model.config.vocab_size;
        if (tokenizer_path.empty()) tokenizer_path = tokenizer_beside(model_path, vocab_size);
        const Tokenizer tokenizer = load_tokenizer(tokenizer_path, vocab_size);
        const std::vector<Id> ids = tokenizer.encode(prompt);
        require(!ids.empty(), "--prompt: there is no token to begin with");
        check_input(model.config, one_sequence(ids));
        const Clock clock{!no_clock};
        if (!own_model) walk(clock, model, tokenizer, Generator(options.seed()));
        it_writes(clock, model, tokenizer, ids, max_new_tokens);
    });
}
