#include "chapters/apps/serve/api/completion.hpp"

#include "chapters/23_structured_output/tool_calls.hpp"
#include "common/files/unicode.hpp"

namespace llm::serve {

namespace {

using LogitsProcessor = std::function<Vector(const Vector& logits, std::span<const Id>)>;

// Penalties and biases, then the grammar's mask.
LogitsProcessor logits_processor(const CompletionRequest& request, const ApiModel& model) {
    LogitsProcessor mask;
    if (request.grammar)
        mask =
            constrained_logits(std::make_shared<TokenConstraint>(model.trie, request.grammar));
    if (!request.logit_changes.any()) return mask;
    return [mask, changes = request.logit_changes](const Vector& logits,
                                                   std::span<const Id> new_ids) {
        const Vector changed = changed_logits(changes, logits, new_ids);
        return mask ? mask(changed, new_ids) : changed;
    };
}

// The answers have seeds of their own, so that they differ.
std::vector<GenerationRequest> sequences_of(const CompletionRequest& request,
                                            const ApiModel& model) {
    std::vector<GenerationRequest> sequences;
    for (const std::vector<Id>& prompt : request.prompts)
        for (std::size_t i = 0; i < request.n; ++i) {
            GenerationRequest sequence{prompt};
            sequence.config.sampling = request.sampling;
            sequence.config.max_new_tokens = request.max_new_tokens;
            sequence.config.eos_token_ids = model.eos_token_ids;
            sequence.config.logits_processor = logits_processor(request, model);
            sequence.seed = request.seed.value_or(0) + std::uint32_t(sequences.size());
            sequences.push_back(std::move(sequence));
        }
    return sequences;
}

}  // namespace

Completion::Completion(const ApiModel& model, const CompletionRequest& request,
                       EngineLoop& loop, Clock::time_point deadline)
    : model_(model),
      log_probs_(request.top_logprobs.has_value()),
      has_tools_(!request.tools.empty()),
      deadline_(deadline) {
    for (const std::vector<Id>& prompt : request.prompts) {
        usage_.prompt_tokens += prompt.size();
        const std::vector<Id> continued = request.chat ? std::vector<Id>() : prompt;
        for (std::size_t i = 0; i < request.n; ++i)
            answers_.push_back(
                {AnswerText(model.tokenizer, continued, request.stop, model.bad_words,
                            has_tools_ ? tool_call_begin : "")});
    }
    num_open_ = answers_.size();
    try {
        open_.emplace(loop.submit(sequences_of(request, model), request.top_logprobs));
    } catch (const ServerStops& stops) {
        throw shutting_down(stops.what());
    } catch (const ServerBusy& busy) {
        throw too_many_requests(busy.what());
    }
}

std::optional<Choice> Completion::next_part(Clock::time_point until) {
    while (num_open_ > 0) {
        const auto event = open_->next_event(std::min(until, deadline_));
        if (!event && Clock::now() >= deadline_) return expire();
        if (!event) return {};
        if (std::optional<Choice> part = part_of(*event)) return part;
    }
    return {};
}

// The time is over: ends one answer, and the next call the next one.
std::optional<Choice> Completion::expire() {
    if (usage_.completion_tokens == 0) throw waited_too_long();
    for (std::size_t i = 0; i < answers_.size(); ++i)
        if (!answers_[i].has_ended) return end(i, answers_[i].text.finish(), "length");
    return {};
}

std::optional<Choice> Completion::part_of(const SequenceEvent& event) {
    Answer& answer = answers_[event.choice];
    if (const auto* ended = std::get_if<SequenceEnd>(&event.what)) {
        if (!ended->error.empty()) throw ApiError(500, "server_error", ended->error);
        if (ended->canceled) throw ApiError(503, "server_error", "the server is shutting down");
        return end(event.choice, answer.text.finish(),
                   ended->reason == StopReason::eos_token ? "stop" : "length");
    }
    const auto& token = std::get<SampledToken>(event.what);
    ++usage_.completion_tokens;
    if (log_probs_) answer.tokens.push_back(details(answer, token));
    const std::string text = answer.text.put(token.token.id);
    if (!answer.text.finish_reason().empty()) return end(event.choice, text, {});
    Choice part = part_with(event.choice, text, TextEnd::none);
    if (part.text.empty() && part.calls.empty()) return {};
    part.tokens = std::exchange(answer.tokens, {});
    return part;
}

// A part without tokens: the text, or what it has of content and tool calls.
Choice Completion::part_with(std::size_t index, const std::string& text, TextEnd end) {
    if (!has_tools_) return {index, text};
    ToolCallText& calls = answers_[index].calls;
    ToolCallText::Parts parts = calls.put(text);
    if (end != TextEnd::none) {
        ToolCallText::Parts last = calls.finish(end == TextEnd::cut);
        parts.content += last.content;
        parts.calls.insert(parts.calls.end(), last.calls.begin(), last.calls.end());
    }
    return {index, parts.content, {}, {}, parts.calls};
}

// The last part of an answer. What ended its text, if anything did, is the reason.
Choice Completion::end(std::size_t index, const std::string& text, const std::string& reason) {
    Answer& answer = answers_[index];
    answer.has_ended = true;
    --num_open_;
    open_->cancel(index);
    Choice part = part_with(index, text, reason == "length" ? TextEnd::cut : TextEnd::complete);
    part.tokens = std::exchange(answer.tokens, {});
    part.finish_reason = answer.text.finish_reason();
    if (part.finish_reason.empty())
        part.finish_reason =
            reason == "stop" && answer.calls.num_complete() > 0 ? "tool_calls" : reason;
    return part;
}

TokenDetails Completion::details(Answer& answer, const SampledToken& token) const {
    const auto text_of = [&](const TokenLogProb& each) {
        const std::vector<std::string>& bytes = model_.tokenizer.token_bytes;
        const auto id = std::size_t(each.id);  // the logits may have more rows than tokens
        return TokenText{id < bytes.size() ? bytes[id] : "", each.log_prob};
    };
    TokenDetails result{text_of(token.token), {}, answer.num_characters};
    for (const TokenLogProb& each : token.top) result.top.push_back(text_of(each));
    answer.num_characters += characters(replace_invalid_utf8(result.token.bytes)).size();
    return result;
}

}  // namespace llm::serve
