/* Opens the model that its argument names, runs it on ones, prints what it gives, and makes each kind of mistake. */
#include "eutectic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints and frees the message of a call that must fail. */
static void mistake(const void *result, char **error) {
    if (result != NULL || *error == NULL) {
        printf("no error\n");
        exit(1);
    }
    printf("error: %s\n", *error);
    eutectic_string_free(*error);
    *error = NULL;
}

int main(int count, char **arguments) {
    char *error = NULL;
    if (count != 2) return 2;
    printf("version %s\n", eutectic_version());
    mistake(eutectic_open("nowhere.onnx", NULL, &error), &error);
    mistake(eutectic_open(NULL, NULL, &error), &error);
    mistake(eutectic_open(arguments[1], NULL, &error), &error);

    eutectic_options *options = eutectic_options_new();
    eutectic_options_set_backend(options, "cpu");
    eutectic_options_set_threads(options, 1);
    eutectic_options_set_dim(options, "batch", 3, 1);
    mistake(eutectic_open(arguments[1], options, &error), &error);
    eutectic_options_free(options);

    options = eutectic_options_new();
    eutectic_options_set_dim(options, "batch", 2, 2);
    eutectic_model *model = eutectic_open(arguments[1], options, &error);
    eutectic_options_free(options);
    if (model == NULL) {
        printf("error: %s\n", error);
        return 1;
    }
    const eutectic_tensor *wanted = eutectic_input(model, 0);
    printf("input %zu: %s, type %d, %zu axes of %lld and %lld\n", eutectic_input_count(model), wanted->name, (int)wanted->dtype,
           wanted->rank, (long long)wanted->dims[0], (long long)wanted->dims[1]);
    if (eutectic_input(model, 1) != NULL || eutectic_output_count(model) != 1) return 1;

    float values[24];
    for (int n = 0; n < 24; n++) values[n] = 1;
    eutectic_tensor x = {wanted->name, EUTECTIC_F32, 2, wanted->dims, values, sizeof values};
    eutectic_results *results = eutectic_run(model, &x, 1, &error);
    if (results == NULL) {
        printf("error: %s\n", error);
        return 1;
    }
    const eutectic_tensor *y = eutectic_results_get(results, 0);
    printf("output %s:", y->name);
    for (size_t n = 0; n < y->bytes / sizeof(float); n++) printf(" %.9g", ((const float *)y->data)[n]);
    printf("\n");
    eutectic_results_free(results);

    eutectic_tensor wrong = x;
    wrong.name = "nothing";
    mistake(eutectic_run(model, &wrong, 1, &error), &error);
    mistake(eutectic_run(model, NULL, 0, &error), &error);
    wrong = x;
    wrong.bytes = 4;
    mistake(eutectic_run(model, &wrong, 1, &error), &error);
    wrong = x;
    wrong.dtype = EUTECTIC_F64;
    wrong.bytes = 4;
    mistake(eutectic_run(model, &wrong, 1, &error), &error);
    wrong = x;
    wrong.dtype = 99;
    mistake(eutectic_run(model, &wrong, 1, &error), &error);
    mistake(eutectic_run(NULL, &x, 1, &error), &error);
    if (eutectic_run(model, &wrong, 1, NULL) != NULL) return 1;
    if (eutectic_clear_states(model, &error) != 1) return 1;
    eutectic_model_free(model);
    eutectic_model_free(NULL);
    return 0;
}
