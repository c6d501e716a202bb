#include "chapters/14_fine_tuning/fine_tuner.hpp"

#include <algorithm>

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/training_loop.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/parallel.hpp"

namespace llm {

FineTuner make_fine_tuner(const Model& model, const std::optional<LoraAdapter>& adapter) {
    FineTuner tuner{model, {}, {}};
    tuner.optimizer.weight_decay = 0;
    if (adapter) {
        tuner.lora = LoraTraining{model, *adapter};
        merge_lora(model, *adapter, tuner.model);
    }
    return tuner;
}

Matrix batch_log_probs(const Model& model, const ResponseBatch& batch) {
    return token_log_probs(model(batch.input_ids), batch.targets);
}

namespace {

// Copies rows begin to end - 1.
template <class T>
xt::xtensor<T, 2> rows_between(const xt::xtensor<T, 2>& matrix, std::size_t begin,
                               std::size_t end) {
    return xt::view(matrix, xt::range(begin, end), xt::all());
}

// Some sequences of the batch, with what their backward pass needs.
struct BatchPart {
    std::size_t begin, end;  // rows of the batch
    IdMatrix targets;        // (end - begin, T)
    ForwardPass<ModelActivations> forward;
};

// Computes the log-probabilities of a part and writes them to its rows.
void forward_part(const Model& model, const ResponseBatch& batch, BatchPart& part,
                  Matrix& log_probs) {  // (B, T)
    InterruptHandler::throw_if_interrupted();
    if (part.begin == part.end) return;
    part.targets = rows_between(batch.targets, part.begin, part.end);
    part.forward = model_forward(model, rows_between(batch.input_ids, part.begin, part.end));
    const Matrix rows = token_log_probs(part.forward.output, part.targets);
    const std::size_t seq_len = log_probs.shape(1);
    std::copy_n(rows.data(), rows.size(), log_probs.data() + part.begin * seq_len);
}

void backward_part(const Model& model, const BatchPart& part,
                   const Matrix& log_probs_gradient,  // (B, T)
                   Model& gradient) {
    zero_grad(gradient);
    if (part.begin == part.end) return;
    const Matrix upstream = rows_between(log_probs_gradient, part.begin, part.end);
    const auto& [logits, activations] = part.forward;
    model_backward(model, activations, token_log_probs_backward(logits, part.targets, upstream),
                   gradient);
}

// Updates all parameters, or those of the adapter. Returns the norm before clipping.
double update_parameters(FineTuner& tuner, Model& model_gradient, Real learning_rate,
                         double max_grad_norm) {
    const auto step = [&](const std::vector<Parameter>& parameters,
                          const std::vector<Parameter>& gradient) {
        const double norm = clip_grad_norm(gradient, max_grad_norm);
        tuner.optimizer.step(parameters, gradient, learning_rate);
        return norm;
    };
    if (!tuner.lora)
        return step(named_parameters(tuner.model), named_parameters(model_gradient));
    LoraAdapter& adapter = tuner.lora->adapter;
    LoraAdapter gradient = zeros_like(adapter);
    lora_backward(adapter, model_gradient, gradient);
    const double norm = step(named_parameters(adapter), named_parameters(gradient));
    merge_lora(tuner.lora->base, adapter, tuner.model);
    return norm;
}

}  // namespace

FineTuningMetrics fine_tuning_step(FineTuner& tuner, const ResponseBatch& batch,
                                   const LossOfLogProbs& loss, Real learning_rate,
                                   double max_grad_norm, std::vector<Model>& gradients) {
    const std::size_t num_parts = gradients.size(), batch_size = batch.targets.shape(0);
    require(num_parts > 0, "fine_tuning_step: there are no gradients");
    std::vector<BatchPart> parts(num_parts);
    for (std::size_t i = 0; i < num_parts; ++i) {
        parts[i].begin = i * batch_size / num_parts;
        parts[i].end = (i + 1) * batch_size / num_parts;
    }

    // The loss needs the log-probabilities of the whole batch: all forward passes come first.
    Matrix log_probs(batch.targets.shape());  // (B, T)
    parallel_for(num_parts,
                 [&](std::size_t i) { forward_part(tuner.model, batch, parts[i], log_probs); });
    const TokenLoss token_loss = loss(log_probs);
    parallel_for(num_parts, [&](std::size_t i) {
        backward_part(tuner.model, parts[i], token_loss.gradient, gradients[i]);
    });
    sum_gradients(gradients, 1);  // the loss already divides by the tokens
    const double norm = update_parameters(tuner, gradients[0], learning_rate, max_grad_norm);
    return {token_loss.loss, norm};
}

}  // namespace llm
