// Times llama2.c for ./learn bench, which compiles this with its run.c and calls it: sequences of
// 200 tokens, one at a time. Prints a line for each: seconds, a tab, the options, a tab, the name
// of the benchmark. (run.c's own report has milliseconds: a tenth of a run of a small model.)
// Usage: MODEL.bin LOGITS OPTIONS, where LOGITS has the expected logits of the last token.
#define TESTING  // leaves out main of run.c
#include "run.c"

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    Transformer transformer;
    build_transformer(&transformer, argv[1]);
    const float* logits = NULL;
    double total = 0;
    for (int count = 0; total < 0.6 || count < 5; ++count) {
        const double begin = now();
        for (int pos = 0; pos < 200; ++pos)
            logits = forward(&transformer, pos * 7919 % 512, pos);
        const double seconds = now() - begin;
        printf("%.9f\t%s\t200 tokens\n", seconds, argv[3]);
        total += seconds;
    }

    FILE* file = fopen(argv[2], "rb");
    float expected, difference = 0;
    int num_logits = 0;
    for (; file && fread(&expected, sizeof expected, 1, file) == 1; ++num_logits)
        difference = fmaxf(difference, fabsf(logits[num_logits] - expected));
    if (num_logits != transformer.config.vocab_size) return 1;
    printf("%.9f\t%s\tlargest difference\n", difference, argv[3]);
    return 0;
}
