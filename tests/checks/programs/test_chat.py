"""./learn chat in a pipe, one question a line, with nothing but answers on standard output; and
in a terminal."""

import json
import re
import signal
import subprocess
import sys

import pytest

from chatting import (CHATML, DROPPED_NOTE, PLAIN_NOTE, chat_answers, write_adapter,
                      write_chat_model, write_gemma_model)
from running import ROOT, expect_rejection, run
from terminal import talk_in_terminal

sys.path.append(str(ROOT / "tests/make"))
from make_base_text import BAD_WORDS, fnv1a

pytestmark = pytest.mark.programs("chat")

KING_JAMES = ROOT / "assets/king_james"
GREEDY = ["--temperature", "0", "--max-new-tokens"]


@pytest.fixture(scope="module")
def model(scratch):
    return write_chat_model(scratch / "chat_model")


@pytest.fixture(scope="module")
def command(program, model):
    return [program, "--model", model, *GREEDY, "8"]


@pytest.fixture(scope="module")
def answer(command):
    """The answer to a last line without a line feed, which is answered, too."""
    return chat_answers(command, "Hear")


def test_the_conversation_has_both_turns_until_reset(command, answer):
    both = chat_answers(command, "Hear\n\nAnd Moses said<|im_end|>\n/template\n/reset\n"
                        "Hear\n/quit\nHear\n")
    first, second, rest = both.split("\n", 2)
    assert first + "\n" == answer
    assert rest == (
        f"<|im_start|>user\nHear<|im_end|>\n<|im_start|>assistant\n{first}<|im_end|>\n"
        "<|im_start|>user\nAnd Moses said<|im_end|><|im_end|>\n"
        f"<|im_start|>assistant\n{second}\n{first}\n")


def test_the_system_message_is_in_the_conversation(command):
    said = chat_answers([*command, "--system", "Obey"], "Hear\n/template\n")
    assert "<|im_start|>system\nObey<|im_end|>\n" in said


def test_the_oldest_messages_are_dropped_but_not_that_of_the_system(command):
    trimmed = chat_answers([*command, "--context-length", "64", "--system", "Obey"],
                           "Hear\n" * 9 + "/template\n", DROPPED_NOTE)
    assert trimmed.count("<|im_start|>system") == 1
    assert 0 < trimmed.count("<|im_start|>user") < 9


@pytest.mark.parametrize("options, lines, note", (
    ([], "/template\n", r"a conversation needs a message\n"),
    ([], "/nothing\n", r"there is no command /nothing; /help lists them\n"),
    (["--context-length", "16"], "In the beginning God created\n" * 2,
     r"(this message has \d+ tokens .*\n){2}")))
def test_what_it_cannot_do_is_a_note(command, options, lines, note):
    chat_answers([*command, *options], lines, note)


def test_the_result_of_a_call_drops_old_turns_like_a_question(program):
    """The last turn with its call has 117 tokens: it fits into the 118 of 180 that are for the
    prompt, but not with the turn before; into 90 it does not fit at all."""
    word, sum_of = "Spell kitchen.\n", "What is 345 + 218?\n"
    call = r"\(calculator: 345 \+ 218 = 563\)\n"
    options = [program, "--max-new-tokens", "62", "--context-length"]
    answers = chat_answers([*options, "180"], word + sum_of, call + DROPPED_NOTE)
    assert answers == "kitchen is spelled k-i-t-c-h-e-n.\n345 + 218 = 563\n"
    chat_answers([*options, "90"], sum_of,
                 call + r"this message has 117 tokens with the system prompt and the "
                        r"calculator's result, the context only 90\n")


# Greetings, calculations in other words by the calculator, questions that refer to the one
# before, and what the shipped model does not know.
CONVERSATION = {
    "Hello!": "Hello. Ask me for a sum, a difference or the letters of a word.",
    "What can you do?": "I am a small language model of this tutorial. I can add, subtract, "
                        "compare numbers and spell words.",
    "What is 21 + 34?": "21 + 34 = 55", "And 5 more?": "55 + 5 = 60",
    "what's 9 plus 9?": "9 + 9 = 18", "12 + 13 + 14": "12 + 13 + 14 = 39",
    "132 - 44": "132 - 44 = 88", "9 - 15": "9 - 15 = -6",
    "What is 345 + 218?": "345 + 218 = 563", "128 times 64": "128 * 64 = 8192",
    "What is a rose?":
        "I do not know that. I can add, subtract, compare numbers and spell words.",
    "Spell house.": "house is spelled h-o-u-s-e.",
    "And backward?": "house is spelled h-o-u-s-e and has 5 letters. Backward: e-s-u-o-h.",
    "Thank you": "You are welcome.", "What is 7 plus 5?": "7 + 5 = 12",
    "And if you take away 4 from that?": "12 - 4 = 8",
    "I have 26 apples and get 37 more. How many apples do I have?": "26 + 37 = 63",
    "Can you spell the word garden?": "garden is spelled g-a-r-d-e-n.",
    "Write the word river backwards":
        "river is spelled r-i-v-e-r and has 5 letters. Backward: r-e-v-i-r.",
    "Which is larger, 58 or 85?": "85 is larger than 58",
    "And which one is smaller?": "58 is smaller than 85", "4702 + 3819": "4702 + 3819 = 8521"}
NOTES = rf"(\(calculator: [^\n]*\)\n|{DROPPED_NOTE})*"


def test_the_shipped_model_answers(program):
    """Without options. One of its answers may be another one."""
    lines = "".join(f"{question}\n" for question in CONVERSATION)
    answers = chat_answers([program], lines, NOTES).splitlines()
    wrong = [(question, answer) for question, answer in zip(CONVERSATION, answers)
             if answer != CONVERSATION[question]]
    assert len(answers) == len(CONVERSATION)
    assert len(wrong) <= 1


def test_the_shipped_model_says_no_bad_word(program):
    """It spells a sixth of the words of the pages, chosen by their hash, so that an edit of a
    page leaves the others. Of the 1,400 answers, three may have no end."""
    words = sorted({word for page in (ROOT / "docs").glob("*.md")
                    for word in re.findall(r"\b[a-z]{3,8}\b", page.read_text())})
    conversations = [f"/reset\nSpell {word}.\nAnd backward?\nWhat is {word}?\n"
                     for word in ["idiot", *(w for w in words if fnv1a(w) % 6 == 0)]]
    notes = rf"{NOTES}(\(The context of 256 tokens is full\.\)\n{NOTES}){{0,3}}"
    said = chat_answers([program], "".join(conversations), notes)
    assert said.count("\n") >= 3 * len(conversations)
    assert not {word for word in re.findall(r"[a-z]+", said.lower())
                if f"{fnv1a(word):016x}" in BAD_WORDS}
    assert said.startswith("I do not know that.\n")  # the first word is on the list


@pytest.mark.parametrize("options", (
    ["--model", KING_JAMES],
    ["--model", ROOT / "assets/king_james_experts",
     "--tokenizer", KING_JAMES / "tokenizer.json"]))
def test_without_a_template_an_empty_line_continues_the_text(program, options):
    plain = [program, *options, *GREEDY]
    halves = chat_answers([*plain, "6"], "And the LORD said\n\n", PLAIN_NOTE)
    whole = chat_answers([*plain, "12"], "And the LORD said\n", PLAIN_NOTE)
    assert halves.replace("\n", "") == whole.replace("\n", "")


def test_gemma_3_with_its_template_answers_as_chapter_17_writes(program, tmp_path):
    gemma = ["--model", write_gemma_model(tmp_path / "gemma"), "--temperature", "0",
             "--repetition-penalty", "2", "--max-new-tokens", "8"]
    with_template = [program, *gemma, "--template", "gemma3"]
    answers = chat_answers([*with_template, "--system", "Obey"], "Hear\n\nThe cat\n/template\n")
    one, two, conversation = answers.split("\n", 2)
    prompt = conversation.removesuffix(two + "\n")
    assert prompt.startswith("<bos><start_of_turn>user\nObey\n\nHear<end_of_turn>\n"
                             "<start_of_turn>model\n" + one) and one != two
    written = run([program.parent / "17_long_context", *gemma, "--prompt",
                   prompt.removeprefix("<bos>"), "--plots", "none"]).stdout
    assert f"\nmodel\n{two}\ntokens generated" in written
    expect_rejection([*with_template, "--calculator"],
                     "tool calls are not implemented for the chat template Gemma 3")


@pytest.mark.parametrize("value, changes", ((0, False), (0.3, True)))
def test_an_adapter_changes_the_answer_unless_it_is_zero(command, answer, value, changes,
                                                         tmp_path):
    adapter = write_adapter(tmp_path / "adapter", value)
    said = chat_answers([*command, "--adapter", adapter], "Hear\n")
    assert (said != answer) == changes


def test_it_chats_with_a_gguf_file_but_without_an_adapter(program, model, tmp_path):
    file = tmp_path / "chat.gguf"
    run([program.parent / "16_quantization", "--model", model, "--export", file, "--dtype",
         "q8_0", "--plots", "none"])
    gguf = [program, "--model", file, *GREEDY, "8"]
    said = chat_answers([*gguf, "--template", "chatml"], "Hear\n/template\n")
    assert "<|im_start|>user" in said
    adapter = write_adapter(tmp_path / "adapter", 0)
    expect_rejection([*gguf, "--adapter", adapter], "chat.gguf: --adapter needs a model folder")


EXPERTS = ("--model assets/king_james_experts --tokenizer assets/king_james/tokenizer.json "
           "--temperature 0 --max-new-tokens 6")


@pytest.mark.parametrize("options, message", (
    (f"{EXPERTS} --dtype q8_0",
     "config.json: --dtype q8_0 is not supported for model_type mixtral; supported: float32"),
    (f"{EXPERTS} --cache-dtype float16",
     "a cache of float16 is not supported for this model type; supported: float32"),
    (f"{EXPERTS} --adapter assets/wordnet_answers",
     "config.json: --adapter is not supported for model_type mixtral"),
    ("--model assets/king_james --system Obey",
     "--system needs a chat template, which this model does not have"),
    ("--model assets/king_james --calculator",
     "--calculator needs a chat template, which this model does not have"),
    ("--template alpaca",
     "--template takes chatml, llama3, gemma, gemma3, qwen3 or none, not 'alpaca'"),
    ("--template llama3",
     "the tokenizer has no special token <|eot_id|>, which the format Llama 3 needs"),
    ("--temperature 0.001", "--temperature takes 0, or a number from 0.01 to 100, not 0.001"),
    ("--model {folder}/no_model", "no_model")))
def test_invalid_options_are_rejected(program, options, message, tmp_path):
    expect_rejection([program, *options.format(folder=tmp_path).split()], message)


def test_a_variant_of_a_known_template_is_rejected(program, tmp_path):
    model = write_chat_model(tmp_path / "model")
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML + " "}))
    command = [program, "--model", model, *GREEDY, "8"]
    expect_rejection(command, "tokenizer_config.json: chat_template is a variant of ChatML or "
                     "Qwen3, not one of the known templates")
    said = chat_answers([*command, "--template", "none"], "Hear\n", PLAIN_NOTE)
    assert "<|im_start|>" not in said


def test_in_a_terminal_the_shipped_model_says_what_to_ask(program):
    code, output = talk_in_terminal([str(program)], [("> $", b"Spell house.\n"),
                                                     (r"house[^>]*> $", b"\x04")])
    assert code == 0 and "What is 47 + 38?" in output and "h-o-u-s-e" in output


@pytest.fixture
def endless(program, tmp_path):
    """A chat that only continues the text, without an end."""
    model = write_chat_model(tmp_path / "model")
    (model / "tokenizer_config.json").unlink()
    return [str(program), "--model", str(model), "--context-length", "50000",
            "--max-new-tokens", "50000"]


def test_ctrl_c_stops_an_answer_and_at_the_prompt_the_second_one_ends_it(endless):
    code, output = talk_in_terminal(endless, [
        ("> $", b"And the LORD\n"), (r"LORD\s+[^>]{40}", b"\x03"),
        (r"\(stopped\)\s+> $", b"In the\n"), (r"the\s+[^>]{40}", b"\x03"),
        (r"\(stopped\)\s+> $", b"\x03"), (r"program\.\)\s+> $", b"\x03")])
    assert code == 0 and output.count("(stopped)") == 2
    assert output.count("(Ctrl-C again, Ctrl-D or /quit ends the program.)") == 1


def test_in_a_pipe_ctrl_c_ends_it(endless):
    with subprocess.Popen(endless, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        process.stdin.write("And the LORD\n" * 9)
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_ctrl_d_ends_it(program):
    command = [str(program), "--model", str(KING_JAMES)]
    code, output = talk_in_terminal(command, [("> $", b"/help\n"), (r"/quit[^>]*> $", b"\x04")])
    assert code == 0 and output.endswith("> \n")
    assert output.startswith(f"Talking with {KING_JAMES}; /help lists the commands.\n"
                             f"{PLAIN_NOTE}> /help\n")
