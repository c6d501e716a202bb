#include "chapters/13_training/documents.hpp"

#include <algorithm>

#include "chapters/01_masking/masking.hpp"
#include "chapters/10_tokenizer/byte_level_training.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/13_training/run_checkpoint.hpp"
#include "tests/support/training.hpp"

using namespace llm;

namespace {

// Documents of 3, 2 and 4 tokens with their end-of-text tokens (10), and a fourth one that is
// cut.
const Id end_of_text = 10;
const std::vector<std::vector<Id>> documents = {{10, 1, 2}, {10, 5}, {10, 3, 9, 4}, {10, 7}};

IdMatrix row_of(const std::vector<Id>& tokens) {
    IdMatrix row = xt::zeros<Id>({std::size_t(1), tokens.size()});
    std::copy(tokens.begin(), tokens.end(), row.begin());
    return row;
}
IdMatrix packed_row() {
    std::vector<Id> tokens;
    for (const auto& document : documents)
        tokens.insert(tokens.end(), document.begin(), document.end());
    return row_of(tokens);
}

// The logits of the documents, each in a row of its own, below each other.
Matrix separate_logits(const Model& model) {
    std::vector<Real> values;
    for (const auto& document : documents) {
        const Tensor3 logits = model(row_of(document));
        values.insert(values.end(), logits.begin(), logits.end());
    }
    Matrix all = xt::zeros<Real>({std::size_t(11), model.config.vocab_size});
    std::copy(values.begin(), values.end(), all.begin());
    return all;
}

Matrix packed_logits(const Model& model, const AttentionInputs& inputs) {
    const Tensor3 logits = model_forward(model, packed_row(), inputs).output;  // (1, T, V)
    return reshape(logits, {logits.shape(1), logits.shape(2)});
}

}  // namespace

TEST_CASE("split_documents: the texts between separators, without empty ones") {
    using Texts = std::vector<std::string>;
    CHECK(split_documents("<e>one<e>two\n<e><e>three<e>", "<e>") ==
          Texts{"one", "two\n", "three"});
    CHECK(split_documents("one<e", "<e>") == Texts{"one<e"});
    CHECK(split_documents("\na\n\nb", "\n") == Texts{"a", "b"});
    CHECK_THROWS_WITH_AS(split_documents("a", ""), "split_documents: the separator is empty",
                         ValueError);
    CHECK(split_documents("", "<e>").empty());
    CHECK(split_documents("<e>", "<e>").empty());
}

TEST_CASE("pack_documents: each document once, in random order, after an end-of-text token") {
    std::vector<std::string> texts;
    for (int i = 0; i < 50; ++i) texts.push_back("text " + to_text(i * i));
    const Tokenizer tokenizer = train_byte_level_bpe(
        "text 0123456789", {.vocab_size = 257, .special_tokens = {"<|endoftext|>"}});
    const Id id = tokenizer.vocab.at("<|endoftext|>");
    std::vector<std::vector<Id>> orders;
    for (const std::uint32_t seed : {1u, 1u, 2u}) {
        Generator generator(seed);
        const std::vector<Id> tokens = pack_documents(texts, tokenizer, id, generator);
        orders.push_back(tokens);
        CHECK(tokens.front() == id);
        CHECK(tokens.back() == id);
        CHECK(std::count(tokens.begin(), tokens.end(), id) == 51);
        std::vector<std::string> found;
        for (auto begin = tokens.begin(); begin + 1 < tokens.end();) {
            const auto end = std::find(begin + 1, tokens.end(), id);
            found.push_back(tokenizer.decode({begin + 1, end}));
            begin = end;
        }
        CHECK(found != texts);
        CHECK(std::is_permutation(found.begin(), found.end(), texts.begin(), texts.end()));
    }
    CHECK(orders[0] == orders[1]);
    CHECK(orders[0] != orders[2]);
}

TEST_CASE("split_by_document holds out every tenth document as a whole") {
    std::vector<Id> tokens;
    for (Id document = 1; document <= 25; ++document)
        tokens.insert(tokens.end(), {end_of_text, 100 + document, 200 + document});
    tokens.push_back(end_of_text);
    const Dataset dataset = split_by_document(tokens, end_of_text, 5);
    CHECK(dataset.validation == std::vector<Id>{10, 110, 210, 10, 120, 220});
    CHECK(dataset.train.size() == tokens.size() - 6);
    CHECK(std::count(dataset.train.begin(), dataset.train.end(), end_of_text) == 24);
    CHECK_THROWS_WITH_AS(split_by_document(tokens, end_of_text, 6),
                         "training: 25 documents are too few: every tenth is held out, and "
                         "together these must have more than 6 tokens, not 6",
                         ValueError);
}

TEST_CASE("document ids count the end-of-text tokens of a row, and position ids restart") {
    const IdMatrix ids{{3, 4, 10, 5, 10, 10}, {10, 1, 1, 10, 1, 1}};
    const IdMatrix document = document_ids(ids, end_of_text);
    CHECK_CLOSE(document, (IdMatrix{{0, 0, 1, 1, 2, 3}, {1, 1, 1, 2, 2, 2}}), 0);
    CHECK_CLOSE(position_ids_of_documents(document),
                (IdMatrix{{0, 1, 0, 1, 0, 0}, {0, 1, 2, 0, 1, 2}}), 0);
}

TEST_CASE("mask_other_documents: a token attends to earlier tokens of its own document") {
    const IdMatrix ids{{0, 0, 1, 1, 1}, {1, 1, 1, 1, 2}};
    const Tensor4 mask = mask_other_documents(expand_mask(causal_mask(5, 5), 2), ids);
    for (const auto& [b, t, s] : every_index(2, 5, 5))
        CHECK(mask(b, 0, t, s) == (s <= t && ids(b, s) == ids(b, t) ? Real(0) : -infinity));
    CHECK_THROWS_WITH_AS(mask_other_documents(expand_mask(causal_mask(5, 5), 1), ids),
                         "documents: a mask of shape (1, 1, 5, 5) does not match document ids "
                         "of shape (2, 5)",
                         ValueError);
}

TEST_CASE("packed documents have the logits that each document has by itself") {
    for (const std::string name : {"mistral", "qwen3"}) {
        INFO(name);
        const Model model = models::load_model(fixture_path("09_full_model/" + name));
        const Matrix separate = separate_logits(model);
        const RotaryTable table = model.rotary_table(11);
        AttentionInputs inputs = document_attention_inputs(table, packed_row(), end_of_text);
        CHECK_CLOSE(packed_logits(model, inputs), separate, 1e-5);

        // RoPE depends on distances only: positions that do not restart give the same logits.
        inputs.position_ids = position_ids(1, 11);
        CHECK_CLOSE(packed_logits(model, inputs), separate, 1e-4);

        // With the causal mask alone, the first document is the same, and the others are not.
        inputs = causal_attention_inputs(table, 1, 11);
        const Matrix crossed = packed_logits(model, inputs);
        for (std::size_t t = 0; t < 11; ++t) {
            Real largest = 0;
            for (std::size_t v = 0; v < separate.shape(1); ++v)
                largest = std::max(largest, std::abs(crossed(t, v) - separate(t, v)));
            CHECK((largest > Real(1e-3)) == (t >= 3));
        }
    }
}

TEST_CASE("packed documents equal PyTorch with a block diagonal mask") {
    const Model model = fixture_model();
    const IdMatrix ids = id_fixture<2>("13_training/packed_ids");
    const IdMatrix targets = id_fixture<2>("13_training/packed_targets");
    const IdVector positions = id_fixture<1>("13_training/packed_positions");
    const Matrix mask = fixture<2>("13_training/packed_mask");  // (T, T)
    const AttentionInputs inputs =
        document_attention_inputs(model.rotary_table(13), ids, end_of_text);
    CHECK_CLOSE(inputs.position_ids, reshape(positions, {1, 13}), 0);
    CHECK_CLOSE(inputs.attention_mask, reshape(mask, {1, 1, 13, 13}), 0);

    const Tensor3 logits = model_forward(model, ids, inputs).output;
    CHECK_CLOSE(reshape(logits, {13, model.config.vocab_size}),
                fixture<2>("13_training/packed_logits"), 1e-5);
    Model gradient = zeros_like(model);
    const Vector loss = fixture<1>("13_training/packed_loss");
    CHECK(forward_backward(model, ids, targets, inputs, gradient) ==
          doctest::Approx(double(loss(0))).epsilon(1e-6));
    std::vector<Parameter> by_name = named_parameters(gradient);
    std::sort(by_name.begin(), by_name.end(),
              [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
    CHECK_CLOSE(all_values(by_name), fixture<1>("13_training/packed_gradients"), 1e-6);
}

TEST_CASE("the gradient of packed documents is the mean over the tokens of all documents") {
    const Model model = fixture_model();
    const IdMatrix row = packed_row();
    IdMatrix targets = row;
    for (std::size_t t = 0; t < 11; ++t) targets(0, t) = static_cast<Id>(t * t % 11);
    Model packed = zeros_like(model), sum = packed;
    const AttentionInputs inputs =
        document_attention_inputs(model.rotary_table(11), row, end_of_text);
    const double loss = forward_backward(model, row, targets, inputs, packed);
    CHECK(evaluate_loss(model, row, targets, inputs) == doctest::Approx(loss).epsilon(1e-6));

    double total = 0;
    std::size_t begin = 0;
    for (const auto& document : documents) {
        const std::size_t length = document.size();
        IdMatrix own = xt::zeros<Id>({std::size_t(1), length});
        for (std::size_t t = 0; t < length; ++t) own(0, t) = targets(0, begin + t);
        Model gradient = zeros_like(model);
        const double share = double(length) / 11;
        total += share * forward_backward(model, row_of(document), own, gradient);
        const auto part = named_parameters(gradient), all = named_parameters(sum);
        for (std::size_t p = 0; p < all.size(); ++p)
            for (std::size_t i = 0; i < all[p].values.size(); ++i)
                all[p].values[i] += static_cast<Real>(share) * part[p].values[i];
        begin += length;
    }
    CHECK(loss == doctest::Approx(total).epsilon(1e-6));
    CHECK_CLOSE(all_values(packed), all_values(sum), 1e-6);
}

TEST_CASE("a run trains and evaluates within documents, and does not resume across them") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "run.safetensors").string();
    const Model model = fixture_model();
    const std::vector<Id> tokens = square_tokens(200);
    TrainingArguments within = small_arguments(12), across = within;
    within.end_of_text_id = 4;
    std::vector<Model> gradients = {zeros_like(model)};
    TrainerState state = make_trainer_state(model, within), other = state;
    const double loss = train_step(state, within, tokens, gradients).loss;
    CHECK(loss != doctest::Approx(train_step(other, across, tokens, gradients).loss));

    // Every batch of the evaluation, with its own mask.
    double expected = 0;
    const std::vector<Batch> batches = evaluation_batches(tokens, 3, 5, 4);
    for (const auto& [input_ids, targets] : batches)
        expected +=
            evaluate_loss(model, input_ids, targets,
                          document_attention_inputs(model.rotary_table(5), input_ids, 4));
    CHECK(evaluate_loss(model, tokens, within, 4) == doctest::Approx(expected / 4));
    CHECK(evaluate_loss(model, tokens, across, 4) != doctest::Approx(expected / 4));

    save_checkpoint(state, within, tokens, file);
    CHECK_THROWS_WITH_AS(load_checkpoint(other, across, tokens, file),
                         doctest::Contains("--cross-documents yes (saved run: no)"), FileError);
}
