#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/13_training/optimizer.hpp"
#include "chapters/22_speculation/mtp_draft.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/files.hpp"
#include "tests/support/mtp_helpers.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

namespace {

const std::string module_file = fixture_path("22_speculation/mtp.safetensors");

// The ids of the fixture, (B, T + 2), as x_t and x_{t+1}: (B, T + 1) each.
MtpBatch batch_of_fixture(const Model& target) {
    const IdMatrix ids = id_fixture<2>("22_speculation/mtp_ids");
    const std::size_t seq_len = ids.shape(1) - 1;
    const IdMatrix input_ids = xt::view(ids, xt::all(), xt::range(0, seq_len));
    const IdMatrix next_ids = xt::view(ids, xt::all(), xt::range(1, seq_len + 1));
    return make_mtp_batch(target, input_ids, next_ids);
}

}  // namespace

TEST_CASE("an MTP module equals PyTorch: logits of the token after the next, loss, gradients") {
    const Model target = models::load_model(checkpoint("mistral"));
    const MtpModule module = load_mtp_module(module_file, target.config);
    const MtpBatch batch = batch_of_fixture(target);
    CHECK_CLOSE(mtp_logits(module, target, batch), fixture<3>("22_speculation/mtp_logits"),
                1e-5);

    MtpModule gradient = zeros_like(module);
    const double loss = forward_backward(module, target, batch, gradient);
    CHECK(std::abs(loss - double(fixture<1>("22_speculation/mtp_loss")(0))) < 1e-5);
    std::vector<Real> gradients;
    for (const Parameter& parameter : named_parameters(gradient))
        gradients.insert(gradients.end(), parameter.values.begin(), parameter.values.end());
    Vector all = xt::zeros<Real>({gradients.size()});
    std::ranges::copy(gradients, all.begin());
    CHECK_CLOSE(all, fixture<1>("22_speculation/mtp_gradients"), 1e-5);
}

TEST_CASE(
    "an MTP batch: position t has the hidden state of x_t, x_t+1 as input, x_t+2 as target") {
    const Model target = tiny_model(1);
    const IdMatrix input_ids{{1, 5, 2, 0}, {6, 3, 3, 4}}, next_ids{{5, 2, 0, 6}, {3, 3, 4, 1}};
    const MtpBatch batch = make_mtp_batch(target, input_ids, next_ids);
    CHECK(batch.targets == IdMatrix{{2, 0, 6}, {3, 4, 1}});
    CHECK_CLOSE(batch.embeddings, embedding(target.embed_tokens, {{5, 2, 0}, {3, 3, 4}}), 0);
    // The target's own logits of x_{t+1} follow from the hidden state of x_t.
    const Tensor3 logits = target(input_ids);
    const Tensor3 first_three = xt::view(logits, xt::all(), xt::range(0, 3), xt::all());
    CHECK_CLOSE(lm_head(target.head(), batch.hidden_states), first_three, 1e-5);
    CHECK_THROWS_WITH_AS(make_mtp_batch(target, IdMatrix{{1}}, IdMatrix{{5}}),
                         "multi-token prediction: a sequence needs at least 2 tokens",
                         ValueError);
}

TEST_CASE("an MTP module learns a text whose token after the next is certain") {
    const Model target = tiny_model(1);
    Generator generator(1);
    MtpModule module = make_mtp_module(target.config, generator);
    MtpModule gradient = zeros_like(module);
    IdMatrix input_ids = xt::zeros<Id>({2, 12}), next_ids = input_ids;
    for (Id t = 0; t < 12; ++t)
        for (const Id b : {0, 1}) {
            input_ids(b, t) = (t + 2 * b) % 7;
            next_ids(b, t) = (t + 2 * b + 1) % 7;
        }
    const MtpBatch batch = make_mtp_batch(target, input_ids, next_ids);
    AdamW optimizer;
    double loss = 0;
    for (int step = 0; step < 60; ++step) {
        zero_grad(gradient);
        loss = forward_backward(module, target, batch, gradient);
        if (step == 0) CHECK(loss > 1);
        optimizer.step(named_parameters(module), named_parameters(gradient), Real(0.01));
    }
    CHECK(loss < 0.05);
}

TEST_CASE("the first proposal of an MTP draft has the distribution of its module") {
    const Model target = tiny_model(1);
    const MtpModule module = tiny_mtp_module(3);
    const FastMtpModule fast = make_fast_mtp_module(module, tiny(1));
    const IdList text = {1, 5, 2, 0, 3, 6, 6, 4, 2, 1, 0, 5, 5, 3, 1, 2, 6, 0, 4, 4};
    const SamplingConfig plain;
    for (const std::size_t length : {2u, 3u, 7u, 20u}) {  // 20: more than a decode step
        CAPTURE(length);
        const IdList context(text.begin(), text.begin() + std::ptrdiff_t(length));
        TargetSequence sequence = make_target_sequence(tiny(1), 40);
        MtpDraft draft(fast, sequence);
        Generator generator(1);
        const Proposal proposal = draft.propose(context, 1, plain, generator);

        // The last position of a batch reads the last token as x_{t+1}.
        IdList padded = context;
        padded.push_back(0);
        const MtpBatch batch = make_mtp_batch(target, one_sequence(context),
                                              one_sequence(std::span(padded).subspan(1)));
        const Tensor3 logits = mtp_logits(module, target, batch);  // (1, T - 1, V)
        const Vector last = xt::view(logits, 0, length - 2);
        CHECK_CLOSE(proposal.probabilities.at(0), softmax(last), 1e-5);
    }
}

TEST_CASE("further proposals follow from the hidden states of the MTP module itself") {
    const Model target = tiny_model(1);
    const MtpModule module = tiny_mtp_module(3);
    const FastMtpModule fast = make_fast_mtp_module(module, tiny(1));
    TargetSequence sequence = make_target_sequence(tiny(1), 40);
    MtpDraft draft(fast, sequence);
    Generator generator(1);
    IdList ids = {1, 5, 2, 0, 3};
    const std::size_t num_cached = ids.size() - 1;
    const Proposal proposal = draft.propose(ids, 4, {}, generator);
    CHECK(proposal.size() == 4);
    CHECK(draft.sequence.state.seq_len == num_cached);

    // The same with the forward pass of training, once more from the beginning for each token.
    ids.push_back(0);
    MtpBatch batch = make_mtp_batch(target, one_sequence(std::span(ids).first(num_cached + 1)),
                                    one_sequence(std::span(ids).subspan(1)));
    for (std::size_t k = 0; k < proposal.size(); ++k) {
        CAPTURE(k);
        const std::size_t seq_len = num_cached + k;
        const AttentionInputs inputs =
            causal_attention_inputs(target.rotary_table(seq_len), 1, seq_len);
        const Tensor3 output =
            mtp_forward(module, batch.embeddings, batch.hidden_states, inputs).output;
        const Tensor3 logits = lm_head(target.head(), output);
        const Vector last = xt::view(logits, 0, seq_len - 1);
        CHECK_CLOSE(proposal.probabilities[k], softmax(last), 1e-5);

        const Tensor3 next_embedding = target.embed(IdMatrix{{proposal.ids[k]}});
        const Tensor3 own_state = last_position(output);
        const Tensor3 embeddings =
            xt::concatenate(xt::xtuple(batch.embeddings, next_embedding), 1);
        const Tensor3 states = xt::concatenate(xt::xtuple(batch.hidden_states, own_state), 1);
        batch.embeddings = embeddings;
        batch.hidden_states = states;
    }
}

TEST_CASE("an MTP draft that goes on in a text proposes what a fresh one would") {
    const FastMtpModule fast = make_fast_mtp_module(tiny_mtp_module(3), tiny(1));
    TargetSequence sequence = make_target_sequence(tiny(1), 40);
    MtpDraft draft(fast, sequence);
    // It goes on, repeats, is cut, differs at the end, and differs in the first token only.
    for (const IdList& context :
         {IdList{1, 5}, IdList{1, 5, 2, 0, 3}, IdList{1, 5, 2, 0, 3}, IdList{1, 5, 2},
          IdList{1, 5, 4, 0, 3, 3, 3}, IdList{2, 5, 4, 0, 3, 3, 3, 6}, IdList{6, 6}}) {
        CAPTURE(context);
        TargetSequence fresh_sequence = make_target_sequence(tiny(1), 40);
        MtpDraft fresh(fast, fresh_sequence);
        Generator generator(1), same(1);
        const Proposal expected = fresh.propose(context, 3, {}, generator);
        const Proposal proposal = draft.propose(context, 3, {}, same);
        CHECK(proposal.ids == expected.ids);
        for (std::size_t k = 0; k < 3; ++k)
            CHECK_CLOSE(proposal.probabilities[k], expected.probabilities[k], 1e-5);
    }
    Generator generator(1);
    CHECK(draft.propose({1}, 3, {}, generator).size() == 0);
    CHECK(draft.propose({1, 5}, 0, {}, generator).size() == 0);
    // Up to the last position of the cache.
    CHECK(draft.propose(IdList(39, 2), 9, {}, generator).size() == 3);
}

TEST_CASE("files of MTP modules are rejected by the name of what does not fit") {
    const Model target = models::load_model(checkpoint("mistral"));
    const Scratch scratch;
    const std::string file = (scratch.folder / "module.safetensors").string();
    MtpModule module = load_mtp_module(module_file, target.config);
    const auto rejected = [&](const std::vector<Parameter>& parameters, const Config& config,
                              const std::string& message) {
        save_parameters(parameters, file);
        CHECK_THROWS_WITH_AS(load_mtp_module(file, config), (file + ": " + message).c_str(),
                             FileError);
    };
    std::vector<Parameter> parameters = named_parameters(module);
    const Parameter last = parameters.back();
    parameters.pop_back();
    rejected(parameters, target.config, "tensor mtp.norm.weight of shape (16,) is missing");
    parameters.push_back(last);
    parameters.push_back({"mtp.layers.1.mlp.up_proj.weight", last.shape, last.values});
    rejected(parameters, target.config,
             "the model has no tensor mtp.layers.1.mlp.up_proj.weight");
    parameters.pop_back();
    Config wider = target.config;
    wider.intermediate_size = 24;
    save_parameters(parameters, file);
    CHECK_THROWS_AS(load_mtp_module(file, wider), FileError);
    CHECK_THROWS_AS(load_mtp_module((scratch.folder / "none").string(), wider), FileError);

    // In bfloat16 it takes half of the bytes.
    save_parameters(parameters, file, DType::bfloat16);
    const MtpModule rounded = load_mtp_module(file, target.config);
    CHECK_CLOSE(rounded.fc.weight, module.fc.weight, 4e-3);
}

TEST_CASE(
    "the shipped MTP module: the text of generate, and more than a third of two proposals "
    "accepted") {
    const Model model = models::load_model(asset("king_james"));
    const FastModel fast = make_fast_model(model, DType::float32);
    const FastMtpModule module = make_fast_mtp_module(
        load_mtp_module(asset("king_james_mtp/model.safetensors"), model.config), fast);
    const Tokenizer tokenizer =
        models::load_tokenizer(asset("king_james/tokenizer.json"), model.config.vocab_size);
    GenerationConfig config{.sampling = {.temperature = 0}, .max_new_tokens = 60};
    Generator unused(1);
    SpeculativeStatistics sum;
    for (const char* text : {"And the LORD said unto Moses", "In the beginning",
                             "The LORD is my shepherd; I shall not want."}) {
        const IdList prompt = tokenizer.encode(text);
        TargetSequence target = make_target_sequence(fast, 128);
        MtpDraft draft(module, target);
        const auto [generated, statistics] =
            generate_speculatively(target, draft, 2, prompt, config, unused);
        CachedSequence cached = make_cached_sequence(fast, 128);
        CHECK(generated.ids == generate(cached, prompt, config, unused).ids);
        sum.proposed += statistics.proposed;
        sum.accepted += statistics.accepted;
    }
    CHECK(double(sum.accepted) > 0.35 * double(sum.proposed));
}
