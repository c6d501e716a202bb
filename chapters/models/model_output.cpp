#include "chapters/models/model_output.hpp"

#include <algorithm>

#include "chapters/11_generation/text_streamer.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/timer.hpp"
#include "common/tensors/argsort.hpp"

namespace llm::models {

void show_next_tokens(const std::vector<Id>& tokens, const Tensor3& logits) {
    step("Logits");
    show("input_ids", one_sequence(tokens));  // (1, T)
    show("logits", logits);
    const Vector last = xt::view(logits, 0, tokens.size() - 1, xt::all());  // (V)
    std::vector<TableRow> rows;
    for (const std::size_t id : argsort_descending(last, 5))
        rows.push_back({to_text(id), fixed(double(last(id)), 4)});
    show_table({"next token", "logit"}, rows);
}

void write_continuation(
    const Tokenizer& tokenizer, const std::vector<Id>& prompt_ids, GenerationConfig config,
    const std::function<void(const GenerationConfig&, const std::function<void(Id)>& on_token)>&
        generate) {
    config.eos_token_ids = tokenizer.eos_token_ids;
    step("The generated text");
    write_text(tokenizer.decode_bytes(prompt_ids));
    TextStreamer streamer(tokenizer, prompt_ids);
    std::size_t count = 0;
    const InterruptHandler handler;
    bool interrupted = false;
    const double seconds = fastest_seconds(1, [&] {
        try {
            generate(config, [&](Id id) {
                streamer.put(id);
                ++count;
            });
        } catch (const Interrupted&) {
            interrupted = true;
        }
    });
    end_text();
    show("tokens generated", to_text(count) + (interrupted ? " (stopped by Ctrl-C)" : ""));
    if (count > 0) show("tokens per second", fixed(double(count) / seconds, 0));
}

}  // namespace llm::models
