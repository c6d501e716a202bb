// Chapter 14, file 4 of 13: direct preference optimization (DPO).
#pragma once

#include "chapters/14_fine_tuning/log_probs.hpp"

namespace llm {

// ln(1 / (1 + e^-x)), without overflow for any x. Source: torch.nn.functional.logsigmoid.
double log_sigmoid(double x);

// The loss of N pairs, and what is usually plotted while it falls. The rewards are implicit:
// beta * (policy - reference). The accuracy is the fraction of pairs whose chosen response has
// the larger reward, by more than the rounding of two forward passes. Names as in TRL's
// DPOTrainer.
struct DpoLoss {
    double loss;
    Vector chosen_gradient, rejected_gradient;  // (N): of the policy's log-probabilities
    Vector chosen_rewards, rejected_rewards;    // (N)
    double accuracy;
};

// The mean of -ln σ(β(ln(π(y_c) / π_ref(y_c)) - ln(π(y_r) / π_ref(y_r)))) over N pairs of a
// chosen response y_c and a rejected one y_r. The arguments are log-probabilities of whole
// responses. Throws ValueError if there are no pairs or the sizes differ. Source: Rafailov et
// al., 2023, equation 7.
DpoLoss dpo_loss(const Vector& policy_chosen,       // (N)
                 const Vector& policy_rejected,     // (N)
                 const Vector& reference_chosen,    // (N)
                 const Vector& reference_rejected,  // (N)
                 Real beta);

// The same for a batch of 2 N sequences: first the N chosen responses, then the N rejected ones
// (TRL's concatenated forward). Adds rpo_alpha times the SFT loss of the chosen responses,
// which keeps them probable (TRL's rpo_alpha). Throws ValueError if the number of sequences is
// odd or not that of the reference. Source of the SFT term: Pang et al., 2024, "Iterative
// reasoning preference optimization".
struct DpoTokenLoss {
    double loss;      // with the SFT term
    Matrix gradient;  // (2 N, T)
    DpoLoss dpo;      // without it
};
DpoTokenLoss dpo_token_loss(const Matrix& log_probs,            // (2 N, T)
                            const Matrix& response_mask,        // (2 N, T)
                            const Vector& reference_log_probs,  // (2 N): of whole responses
                            Real beta, Real rpo_alpha = 0);

}  // namespace llm
