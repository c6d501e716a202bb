// Chapter 11 — How does a model write?
#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/11_generation/inspection.hpp"
#include "chapters/10_tokenizer/tokenizer_json.hpp"
#include "common/files/mapped_file.hpp"
#include "common/numbers/statistics.hpp"
#include "common/system/options.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"
#include "common/files/unicode.hpp"

using namespace llm;

// A token that can be seen: ▁ for a space.
std::string visible(const std::string& piece) { return replaced(escaped(piece), " ", "▁"); }

std::vector<std::string> visible_pieces(const Tokenizer& tokenizer, std::span<const Id> ids) {
    std::vector<std::string> pieces;
    for (const Id id : ids) {
        const std::string& piece = tokenizer.pieces[static_cast<std::size_t>(id)];
        pieces.push_back(piece.empty() ? "<" + to_text(id) + ">" : visible(piece));
    }
    return pieces;
}

std::string percent(double share) { return share == 0 ? "-" : fixed(100 * share, 1); }

// What may come next.
struct Choice {
    std::vector<std::string> tokens;
    Vector logits;         // (V)
    std::vector<Id> seen;  // in the text so far
};

// The 12 likeliest tokens behind a text.
Choice choice_behind(const Model& model, const Tokenizer& tokenizer,
                     const std::vector<Id>& ids) {
    KvCache cache = make_cache(model, ids.size());
    const Matrix logits = next_logits(model, one_sequence(ids), cache);  // (1, V)
    Vector left = xt::view(logits, 0, xt::all());                        // (V)
    Choice choice{{}, xt::zeros<Real>({12}), {}};
    for (std::size_t i = 0; i < 12; ++i) {
        const Id id = likeliest(left);
        choice.tokens.push_back(visible_pieces(tokenizer, std::array{id})[0]);
        choice.logits(i) = std::exchange(left(static_cast<std::size_t>(id)), -infinity);
        if (std::find(ids.begin(), ids.end(), id) != ids.end())
            choice.seen.push_back(static_cast<Id>(i));
    }
    return choice;
}

using Rules = std::vector<std::pair<std::string, Vector>>;  // a name, and the logits it leaves
Rules rules_for(const Choice& choice) {
    const Vector& logits = choice.logits;
    return {{"temp. 0.5", with_temperature(logits, 0.5f)},
            {"temp. 2", with_temperature(logits, 2)},
            {"top-k 4", keep_top_k(logits, 4)},
            {"top-p 0.7", keep_top_p(logits, 0.7f)},
            {"min-p 0.25", keep_min_p(logits, 0.25f)},
            {"penalty 1.3", penalize_repetition(logits, choice.seen, 1.3f)}};
}

void from_logits_to_a_token(const Choice& choice) {
    show("logits", choice.logits);
    const Vector probabilities = probabilities_of(choice.logits);
    show("probabilities", probabilities);

    step("What the rules leave of it, in percent of these 12");
    TableRow headings = {"token", "as it is"};
    std::vector<TableRow> rows;
    for (std::size_t token = 0; token < choice.tokens.size(); ++token)
        rows.push_back({choice.tokens[token], percent(probabilities(token))});
    const Series before{"as it is", numbers_of(probabilities)};
    std::vector<Panel> panels;
    for (const auto& [name, logits] : rules_for(choice)) {
        const Vector left = probabilities_of(logits);
        headings.push_back(name);
        for (std::size_t token = 0; token < rows.size(); ++token)
            rows[token].push_back(percent(left(token)));
        panels.push_back(BarChart{
            name, "probability", choice.tokens, {before, {name, numbers_of(left)}}, 0.4});
    }
    show_table(headings, rows);
    plot("rules", panels);
}

void draws(const Choice& choice, const Sampling& sampling, Generator& generator) {
    step("1000 draws with your options, or temperature 0.8 and top-p 0.9");
    std::vector<int> counts(choice.tokens.size());
    for (int i = 0; i < 1000; ++i)
        ++counts[static_cast<std::size_t>(
            next_token(choice.logits, choice.seen, sampling, generator))];
    std::vector<TableRow> rows;
    for (std::size_t token = 0; token < counts.size(); ++token)
        rows.push_back({choice.tokens[token], to_text(counts[token])});
    show_table({"token", "drawn"}, rows);
}

// The first layer with these new tokens: its attention, and the shapes on the way as a column.
Attention first_layer(const Model& model, std::span<const Id> new_ids, KvCache& cache,
                      TableRow& shapes) {
    const PreNormBlock& block = model.layers[0];
    const Tensor3 hidden_states = block.attention_norm(model.embed(one_sequence(new_ids)));
    const Placement placement = placement_behind(cache, 1, new_ids.size());
    const Attention attention =
        attend(block.self_attn, hidden_states, placement, cache.layers[0]);
    const std::size_t first = std::exchange(cache.length, cache.length + new_ids.size());
    shapes = {
        to_text(hidden_states.shape()),     to_text(first) + " to " + to_text(cache.length - 1),
        to_text(attention.context.shape()), to_text(cache.layers[0].keys.shape()),
        to_text(placement.mask.shape()),    to_text(attention.weights.shape())};
    return attention;
}

void prefill_and_decode(const Model& model, const std::vector<Id>& ids) {
    step("A cache: prefill and decode");
    const std::span<const Id> prompt(ids.data(), ids.size() - 1), new_token(&ids.back(), 1);
    show("input_ids", one_sequence(ids));
    const TableRow names = {"hidden_states",     "positions", "contexts",
                            "keys in the cache", "mask",      "weights"};
    KvCache cache = make_cache(model, ids.size());
    TableRow prefill, decode;
    first_layer(model, prompt, cache, prefill);
    const Attention attention = first_layer(model, new_token, cache, decode);
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < names.size(); ++i)
        rows.push_back({names[i], prefill[i], decode[i]});
    show_table({"", "prefill", "decode"}, rows);
    show("decode_mask", causal_mask(1, ids.size()));
    show("decode_weights", head_of(attention.weights, 0, 0));

    step("The same logits, for a fraction of the work");
    cache = make_cache(model, ids.size());
    next_logits(model, one_sequence(prompt), cache);
    const Matrix cached_logits = next_logits(model, one_sequence(new_token), cache);
    KvCache empty = make_cache(model, ids.size());
    show("cached_logits", cached_logits);
    show(
        "within 1e-4 of those of the whole text at once",
        largest_difference(cached_logits, next_logits(model, one_sequence(ids), empty)) < 1e-4);
}

void the_wrong_mask(const Model& model, const std::vector<Id>& ids) {
    step("Wrong: the mask aligned at the top left");
    KvCache cache = make_cache(model, ids.size());
    TableRow shapes;
    first_layer(model, std::span(ids).first(ids.size() - 1), cache, shapes);
    Placement placement = placement_behind(cache, 1, 1);
    Matrix wrong_mask = causal_mask(1, ids.size());
    for (std::size_t s = 1; s < ids.size(); ++s) wrong_mask(0, s) = -infinity;
    placement.mask = expand_mask(wrong_mask, 1);
    const PreNormBlock& block = model.layers[0];
    const Tensor3 hidden_states =
        block.attention_norm(model.embed(one_sequence(std::span(ids).last(1))));
    const Attention attention =
        attend(block.self_attn, hidden_states, placement, cache.layers[0]);
    show("wrong_mask", wrong_mask);
    show("wrong_weights", head_of(attention.weights, 0, 0));
    say("The mask's first row belongs to the first token of a text, and the new token gets it: "
        "it sees that token and nothing else.");
}

void work(const Model& model) {
    step("Work for one token, in millions of operations");
    std::vector<TableRow> rows;
    Line cached{"with a cache", {}, {}}, uncached{"without", {}, {}};
    const std::size_t head = 2 * model.config.vocab_size * model.config.hidden_size;
    double all = 0;
    for (std::size_t position = 0; position < model.config.max_position_embeddings;
         ++position) {
        const std::size_t one = operations_per_token(model.config, position);
        all += double(one - head) / 1e6;  // without a cache all earlier tokens again
        const double again = all + double(head) / 1e6;
        cached.x.push_back(double(position));
        cached.y.push_back(double(one) / 1e6);
        uncached.x.push_back(double(position));
        uncached.y.push_back(again);
        if (((position + 1) & position) == 0 && (position == 0 || position >= 15))
            rows.push_back({to_text(position), fixed(cached.y.back(), 2), fixed(again, 1),
                            fixed(again / cached.y.back(), 0)});
    }
    show_table({"position", "with a cache", "without", "times"}, rows);
    plot("work", {LinePlot{"Work for one token",
                           "position",
                           "millions of operations",
                           {cached, uncached},
                           true}});
}

void measure(const Model& model) {
    step("Time for one token on this machine, in milliseconds");
    std::vector<TableRow> rows;
    Line cached{"with a cache", {}, {}}, uncached{"without", {}, {}};
    const std::size_t last = std::min<std::size_t>(model.config.max_position_embeddings, 512);
    for (std::size_t position = 0; position < last; position += position < 32 ? 16 : 48) {
        const std::vector<Id> ids(position + 1, 1);
        const KvCache empty = make_cache(model, position + 1);
        KvCache before = empty;
        if (position > 0)
            next_logits(model, one_sequence(std::span(ids).first(position)), before);
        std::vector<KvCache> caches(5, before);
        std::size_t next = 0;
        const double with_cache =
            fastest_seconds(5, [&] { next_logits(model, IdMatrix{{1}}, caches[next++]); });
        const double without = fastest_seconds(3, [&] {
            KvCache cache = empty;
            next_logits(model, one_sequence(ids), cache);
        });
        for (auto& [line, seconds] : {std::pair<Line&, double>{cached, with_cache},
                                      std::pair<Line&, double>{uncached, without}}) {
            line.x.push_back(double(position));
            line.y.push_back(1 / seconds);
        }
        rows.push_back({to_text(position), fixed(1000 * with_cache, 2),
                        fixed(1000 * without, 2), fixed(without / with_cache, 1)});
    }
    show_table({"position", "with a cache", "without", "times"}, rows);
    plot("speed",
         {LinePlot{"Speed", "position", "tokens per second", {cached, uncached}, true}});
}

// Counted in: low 5 times, lower 2, newest 6, widest 3 (the example of Sennrich et al.). Of all
// pairs of neighbours the most frequent one is joined, and again.
struct Joined {
    Id left, right, both;
    int count;
};
void pairs() {
    step("Words from pieces: byte-pair encoding");
    const std::vector<std::string> pieces = {"l", "o",  "w",   "e",  "s",   "t",  "n",
                                             "i", "es", "est", "lo", "low", "ne", "new"};
    const std::vector<Joined> learned = {{3, 4, 8, 9},   {8, 5, 9, 9},  {0, 1, 10, 7},
                                         {10, 2, 11, 7}, {6, 3, 12, 6}, {12, 2, 13, 6}};
    Merges merges;
    const auto piece = [&](Id id) { return pieces[static_cast<std::size_t>(id)]; };
    const auto spelled = [&](const std::vector<Id>& ids) {
        std::string text;
        for (const Id id : join_pairs(ids, merges))
            text += (text.empty() ? "" : " ") + piece(id);
        return text;
    };
    const std::vector<Id> lowest = {0, 1, 2, 3, 4, 5}, newest = {6, 3, 2, 3, 4, 5};
    std::vector<TableRow> rows = {{"", "", spelled(lowest), spelled(newest)}};
    for (const auto& [left, right, both, count] : learned) {
        merges[{left, right}] = {double(merges.size()), both};
        rows.push_back({piece(left) + " + " + piece(right), to_text(count), spelled(lowest),
                        spelled(newest)});
    }
    show_table({"merge", "count", "lowest", "newest"}, rows);
}

void bytes() {
    step("Any text, from 256 bytes");
    const std::string text = "naïve café\n";
    std::string alphabet, names;
    for (const char byte : text) {
        alphabet += byte_alphabet(static_cast<unsigned char>(byte));
        if (byte < 0) names += byte_name(static_cast<unsigned char>(byte));
    }
    show("text", escaped(text));
    show("as GPT-2 writes its bytes", alphabet);
    show("as SentencePiece falls back on ï and é", names);
}

// ---- a text, and what led to it ----

void tokens_of(const Tokenizer& tokenizer, const std::string& prompt) {
    step("The prompt, as the model reads it");
    const auto stages = tokenizer.stages(prompt, true);
    for (std::size_t n = 0; n < tokenizer.steps.size() && !prompt.empty(); ++n) {
        std::string line;
        for (const std::string& word : stages[n + 1]) line += visible(word) + "|";
        show(tokenizer.steps[n].name, line);
    }
    const std::vector<Id> ids = tokenizer.encode(prompt);
    const std::vector<std::string> pieces = visible_pieces(tokenizer, ids);
    std::string line;
    for (std::size_t i = 0; i < ids.size(); ++i)
        line += to_text(ids[i]) + ":" + pieces[i] + " ";
    say(line);
}

void how_sure(const Model& model, const Tokenizer& tokenizer, const std::vector<Id>& ids,
              std::size_t prompt_len, const Tensor3& stream) {
    step("How sure was it of each token, before any rule?");
    const std::vector<std::string> pieces = visible_pieces(tokenizer, ids);
    std::vector<TableRow> rows;
    BarChart chart{"Probability of each token", "probability", {}, {{"", {}}}};
    for (std::size_t t = prompt_len; t < ids.size(); ++t) {
        Vector probabilities = logit_lens(model, stream, t - 1);
        const auto id = static_cast<std::size_t>(ids[t]);
        const Real p = probabilities(id);
        probabilities(id) = -1;
        const Id other = likeliest(probabilities);
        rows.push_back({to_text(t), pieces[t], fixed(p, 3),
                        visible_pieces(tokenizer, std::array{other})[0],
                        fixed(probabilities(static_cast<std::size_t>(other)), 3)});
        chart.names.push_back(pieces[t]);
        chart.series[0].values.push_back(p);
    }
    show_table({"position", "token", "p", "or else", "p"}, rows);
    plot("probabilities", {chart});
}

void where_it_looked(const std::vector<std::string>& pieces, const Inside& inside,
                     std::size_t t) {
    step("What did it look at when it wrote " + pieces[t + 1] + " at " + to_text(t + 1) + "?");
    const std::vector<std::string> seen(pieces.begin(),
                                        pieces.begin() + static_cast<std::ptrdiff_t>(t) + 1);
    std::vector<TableRow> rows;
    std::vector<Heatmap> maps;
    for (std::size_t n = 0; n < inside.attention.size(); ++n) {
        const Matrix weights = weights_of_query(inside.attention[n], t);
        const auto best = static_cast<std::size_t>(
            std::max_element(weights.begin(), weights.end()) - weights.begin());
        const std::size_t h = best / (t + 1), s = best % (t + 1);
        rows.push_back(
            {to_text(n), to_text(h), pieces[s], to_text(s), fixed(weights(h, s), 2)});
        Matrix map = xt::zeros<Real>({t + 1, weights.shape(0)});  // tokens below each other
        for (std::size_t i = 0; i < map.size(); ++i)
            map(i / weights.shape(0), i % weights.shape(0)) =
                weights(i % weights.shape(0), i / weights.shape(0));
        maps.push_back({"Layer " + to_text(n), "head", "", map, {}, seen});
    }
    show_table({"layer", "its sharpest head", "looked at", "position", "weight"}, rows);
    const std::size_t last = maps.size() - 1;
    plot("attention", {maps[0], maps[(last + 1) / 2], maps[last]});
}

void how_it_came_about(const Model& model, const Tokenizer& tokenizer,
                       const std::vector<Id>& ids, const Inside& inside, std::size_t t) {
    step("What would it have written after fewer layers?");
    std::vector<TableRow> rows;
    Line written, size;
    for (std::size_t n = 0; n < inside.stream.size(); ++n) {
        const Vector probabilities = logit_lens(model, inside.stream[n], t);
        const Id best = likeliest(probabilities);
        const Real* row = inside.stream[n].data() + t * model.config.hidden_size;
        const double stream_size = root_mean_square({row, model.config.hidden_size});
        const Real p = probabilities(static_cast<std::size_t>(ids[t + 1]));
        rows.push_back({to_text(n), fixed(stream_size, 2),
                        visible_pieces(tokenizer, std::array{best})[0],
                        fixed(probabilities(static_cast<std::size_t>(best)), 3), fixed(p, 3)});
        for (Line* line : {&written, &size}) line->x.push_back(double(n));
        written.y.push_back(p);
        size.y.push_back(stream_size);
    }
    show_table({"layers", "size of the stream", "it would write", "p", "p of what it wrote"},
               rows);
    plot("stream",
         {LinePlot{"Probability of the token it wrote", "layers passed", "", {written}},
          LinePlot{"Size of the stream", "layers passed", "root mean square", {size}}});
}

// What is to be written, and at which position to look inside.
struct Request {
    std::string prompt;
    std::vector<Id> ids;  // of the prompt
    std::size_t look_at;
    bool timed;
};

// Throws ShapeError if the model cannot do that.
Request request(const Model& model, const Tokenizer& tokenizer, const std::string& prompt,
                std::size_t look_at, bool timed) {
    const std::vector<Id> ids = tokenizer.encode(prompt);
    require(!ids.empty(), "generate: this model needs a --prompt to begin with");
    check_input(model.config, one_sequence(ids));
    if (look_at == 0) look_at = ids.size() + 12;
    require(look_at >= ids.size() && look_at < ids.size() + 16,
            "with this prompt, --look-at takes a position from {} to {}, not {}", ids.size(),
            ids.size() + 15, look_at);
    return {prompt, ids, look_at, timed};
}

void write_with(const Model& model, const Tokenizer& tokenizer, const Writing& writing,
                const Request& wanted, Generator& generator) {
    tokens_of(tokenizer, wanted.prompt);
    std::vector<Id> ids = wanted.ids;
    const std::size_t prompt_len = ids.size();

    step("The text");
    std::string written = tokenizer.decode(ids);
    write_text(written);
    const double seconds = fastest_seconds(1, [&] {
        generate(model, ids, writing, generator, [&](Id id) {
            ids.push_back(id);
            const std::string text = tokenizer.decode(ids);
            write_text(text.substr(written.size()));
            written = text;
        });
    });
    end_text();
    const std::size_t count = ids.size() - prompt_len;
    const std::string reason = count == writing.max_new_tokens ? "the limit"
                               : ids.size() == model.config.max_position_embeddings
                                   ? "the model's last position"
                                   : "it ended the text";
    show("tokens written", to_text(count) + " (" + reason + ")");
    if (count == 0) return;
    if (wanted.timed) show("tokens per second", fixed(double(count) / seconds, 0));

    if (prompt_len > 512) return say("This prompt is too long to look inside.");
    if (ids.size() > prompt_len + 16) ids.resize(prompt_len + 16);
    const std::vector<std::string> pieces = visible_pieces(tokenizer, ids);
    const Inside inside = look_inside(model, ids);
    how_sure(model, tokenizer, ids, prompt_len, inside.stream.back());
    const std::size_t position = std::min(wanted.look_at, ids.size() - 1);
    where_it_looked(pieces, inside, position - 1);
    how_it_came_about(model, tokenizer, ids, inside, position - 1);
}

void walk(const Model& model, const Tokenizer& tokenizer, const Sampling& sampling,
          Generator generator) {
    const std::string text = "And the king and the people went to the";
    const std::vector<Id> ids = tokenizer.encode(text);
    step("What may come next, after \"" + text + "\"");
    const Choice choice = choice_behind(model, tokenizer, ids);
    from_logits_to_a_token(choice);
    draws(choice, sampling, generator);
    prefill_and_decode(model, ids);
    the_wrong_mask(model, ids);
    work(model);
    pairs();
    bytes();
}

int main(int argc, char** argv) {
    std::string model_path, tokenizer_path, prompt;
    Writing writing;
    std::size_t look_at = 0;
    bool no_cache = false, measured = false;
    Sampling& sampling = writing.sampling;
    sampling.temperature = 0.8f;
    sampling.top_p = 0.9f;
    writing.max_new_tokens = 100;
    Options options("11_generation", "How does a model write?");
    options.path("--model", model_path,
                 "another: a folder of Hugging Face, or a llama2.c file");
    options.path("--tokenizer", tokenizer_path, "its tokenizer, if it does not lie beside it");
    options.needs("--tokenizer", "--model");
    options.text("--prompt", prompt, "the text to go on with");
    options.count("--max-new-tokens", writing.max_new_tokens, 0, 1 << 20, "tokens to write");
    options.number("--temperature", sampling.temperature, 0, 100, "0: always the likeliest");
    options.count("--top-k", sampling.top_k, 0, 1 << 24, "tokens to choose from, 0: all");
    options.number("--top-p", sampling.top_p, 0, 1, "their probability together");
    options.number("--min-p", sampling.min_p, 0, 1, "the least, as a share of the likeliest");
    options.number("--repetition-penalty", sampling.repetition_penalty, 0.01, 100,
                   "above 1: tokens that occurred come less often");
    options.flag("--no-cache", no_cache, "compute the whole text again for every token");
    options.count("--look-at", look_at, 0, 1 << 20, "position to explain, 0: the 13th new one");
    options.flag("--measure", measured, "time a token with and without cache");

    return options.run(argc, argv, [&] {
        Generator generator(options.seed());
        writing.use_cache = !no_cache;
        require(sampling.temperature == 0 || sampling.temperature >= Real(0.01),
                "--temperature takes 0, or a number from 0.01 to 100, not {}",
                brief(double(sampling.temperature)));
        const bool own_model = !model_path.empty();
        if (!own_model) model_path = asset("king_james");
        const Model model = load_model(model_path);
        const std::size_t vocab_size = model.config.vocab_size;
        if (tokenizer_path.empty()) tokenizer_path = tokenizer_beside(model_path, vocab_size);
        const Tokenizer tokenizer = load_tokenizer(tokenizer_path, vocab_size);
        writing.end_ids = tokenizer.ends;
        if (!own_model && prompt.empty()) prompt = "And the LORD said unto Moses";
        const Request wanted =
            request(model, tokenizer, prompt, look_at, own_model || measured);
        if (!own_model) walk(model, tokenizer, sampling, Generator(options.seed()));
        write_with(model, tokenizer, writing, wanted, generator);
        if (measured) measure(model);
    });
}
