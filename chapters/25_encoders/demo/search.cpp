#include "chapters/25_encoders/demo/search.hpp"

#include <numeric>

#include "chapters/25_encoders/demo/vectors.hpp"
#include "chapters/25_encoders/retrieval.hpp"
#include "chapters/25_encoders/text_embedding.hpp"
#include "common/numbers/choices.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// Three adjacent letters as a word: "ada" is _ad, ada and da_.
std::vector<std::string> trigrams(const std::string& name) {
    const std::string framed = "_" + name + "_";
    std::vector<std::string> result;
    for (std::size_t i = 0; i + 3 <= framed.size(); ++i) result.push_back(framed.substr(i, 3));
    return result;
}

// Several searches of names; each returns the best 100.
struct NameSearch {
    static constexpr std::size_t depth = 100;
    const ModernBertModel& encoder;
    Bm25Index whole_names, index;
    Matrix vectors;  // (N, C)

    NameSearch(const ModernBertModel& used, const std::vector<std::string>& names)
        : encoder(used),
          whole_names(lists_of(names, false)),
          index(lists_of(names, true)),
          vectors(embed(used, Pooling::mean, encode_names(names))) {}

    static std::vector<std::vector<std::string>> lists_of(const std::vector<std::string>& names,
                                                          bool split) {
        std::vector<std::vector<std::string>> lists;
        for (const std::string& name : names)
            lists.push_back(split ? trigrams(name) : std::vector<std::string>{name});
        return lists;
    }

    Ranking by_name(const std::string& query) const {
        return ranking_of(whole_names.search({query}, depth));
    }
    Ranking by_trigrams(const std::string& query) const {
        return ranking_of(index.search(trigrams(query), depth));
    }
    Ranking by_vectors(const std::string& query) const { return by_vectors(of(query), 0); }
    // Query n of these vectors, (N, C).
    Ranking by_vectors(const Matrix& queries, std::size_t n) const {
        const Vector vector = xt::view(queries, n, xt::all());
        return ranking_of(semantic_search(vector, vectors, depth));
    }
    Matrix of(const std::string& query) const {
        return embed(encoder, Pooling::mean, encode_names({query}));  // (1, C)
    }
};

Ranking joined(const std::vector<Ranking>& rankings) {
    return ranking_of(reciprocal_rank_fusion(rankings));
}

// "89 (86 to 92)": the mean of a score over all queries in percent, and its 95 % interval.
std::string percent_with_interval(const std::vector<double>& scores, std::uint32_t seed) {
    const auto [mean, interval] = bootstrap_mean(scores, seed);
    return fixed(100 * mean, 0) + " (" + fixed(100 * interval.low, 0) + " to " +
           fixed(100 * interval.high, 0) + ")";
}

}  // namespace

void bm25_by_hand() {
    step("BM25: four documents, and the words of a query");
    const std::vector<std::string> documents = {"the river bank",
                                                "the bank lends money and the bank takes money",
                                                "a river", "the the the the"};
    std::vector<std::vector<std::string>> lists;
    for (const std::string& document : documents) lists.push_back(words(document));
    const Bm25Index index(lists);
    show_table({"word", "inverse document frequency"}, {{"the", fixed(index.idf("the"), 3)},
                                                        {"river", fixed(index.idf("river"), 3)},
                                                        {"bank", fixed(index.idf("bank"), 3)}});
    std::vector<TableRow> rows;
    for (const auto& [document, score] : index.search(words("The bank of the river"), 4))
        rows.push_back({to_text(document), fixed(score, 3), documents[document]});
    show_table({"document", "score", "text"}, rows);
}

void most_similar_names(const ModernBertModel& encoder, const Names& names,
                        const std::string& query) {
    const NameSearch search(encoder, names.held_out);
    const Ranking by_trigrams = search.by_trigrams(query);
    const Ranking by_vectors = search.by_vectors(query);
    const std::vector<Ranking> rankings = {by_trigrams, by_vectors,
                                           joined({by_trigrams, by_vectors})};
    std::vector<TableRow> rows;
    for (std::size_t rank = 0; rank < 5; ++rank) {
        rows.push_back({to_text(rank + 1)});
        for (const Ranking& ranking : rankings)
            rows.back().push_back(rank < ranking.size() ? names.held_out[ranking[rank]] : "");
    }
    step("The names most similar to " + query);
    show_table({"rank", "by trigrams", "by vectors", "joined"}, rows);
}

void recall_of_names(const ModernBertModel& encoder, const ModernBertModel& before,
                     const Names& names, std::uint32_t seed) {
    step("Recall: 1,000 misspelled names, of which each is searched among 1,000");
    const NameSearch search(encoder, names.held_out), untrained(before, names.held_out);
    Generator generator(seed);
    std::vector<std::string> queries;
    for (const std::string& name : names.held_out) queries.push_back(misspell(name, generator));
    const Matrix vectors = embed(encoder, Pooling::mean, encode_names(queries));  // (N, C)
    const Matrix untrained_vectors = embed(before, Pooling::mean, encode_names(queries));

    Ranking any_order(queries.size());
    std::iota(any_order.begin(), any_order.end(), std::size_t{0});
    struct Method {
        std::string name;
        std::vector<double> first = {}, first_three = {};
    };
    std::vector<Method> methods = {{"a random order"}, {"BM25, whole names"},
                                   {"BM25, trigrams"}, {"vectors, not trained for search"},
                                   {"vectors"},        {"trigrams and vectors joined"}};
    for (std::size_t n = 0; n < queries.size(); ++n) {
        shuffle(any_order, generator);
        const Ranking by_trigrams = search.by_trigrams(queries[n]);
        const Ranking by_vectors = search.by_vectors(vectors, n);
        const std::vector<Ranking> rankings = {
            any_order,   search.by_name(queries[n]),
            by_trigrams, untrained.by_vectors(untrained_vectors, n),
            by_vectors,  joined({by_trigrams, by_vectors})};
        for (std::size_t m = 0; m < methods.size(); ++m) {
            methods[m].first.push_back(recall_at(1, rankings[m], {{n, 1}}));
            methods[m].first_three.push_back(recall_at(3, rankings[m], {{n, 1}}));
        }
    }
    std::vector<TableRow> rows;
    for (const Method& method : methods)
        rows.push_back({method.name, percent_with_interval(method.first, seed),
                        percent_with_interval(method.first_three, seed)});
    show_table({"% found (95 % interval)", "first", "among three"}, rows);
}

}  // namespace llm
