/* Eutectic in C: opens a model, runs it, and reads its results.
 *
 *     char *error = NULL;
 *     eutectic_options *options = eutectic_options_new();
 *     eutectic_options_set_dim(options, "batch", 2, 2);
 *     eutectic_model *model = eutectic_open("model.onnx", options, &error);
 *     if (model == NULL) { fprintf(stderr, "%s\n", error); eutectic_string_free(error); return 1; }
 *
 *     int64_t dims[] = {2, 12};
 *     eutectic_tensor x = {"x", EUTECTIC_F32, 2, dims, values, sizeof values};
 *     eutectic_results *results = eutectic_run(model, &x, 1, &error);
 *     const eutectic_tensor *y = eutectic_results_get(results, 0);
 *
 * Link with -leutectic_c. Handles are opaque and belong to the caller, who frees each once; NULL may be freed. If a function with an
 * `error` fails, it returns NULL and sets `*error` to a message in UTF-8, which the caller frees with eutectic_string_free; `error` may be NULL.
 * A model has one run at a time: use it from one thread, or lock it. Different models can run at the same time.
 */
#ifndef EUTECTIC_H
#define EUTECTIC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. A Boolean is a byte, 0 or 1. */
typedef enum {
    EUTECTIC_BOOL = 0,
    EUTECTIC_I8 = 1,
    EUTECTIC_U8 = 2,
    EUTECTIC_I32 = 3,
    EUTECTIC_U32 = 4,
    EUTECTIC_I64 = 5,
    EUTECTIC_F16 = 6,
    EUTECTIC_BF16 = 7,
    EUTECTIC_F32 = 8,
    EUTECTIC_F64 = 9,
    EUTECTIC_F8E5M2 = 10,
    EUTECTIC_F8E4M3 = 11,
    /* A type that this version of the header does not know. */
    EUTECTIC_OTHER = -1
} eutectic_dtype;

/* A tensor: row-major, dense, in the byte order of the machine. */
typedef struct {
    const char *name;
    int32_t dtype; /* an eutectic_dtype */
    size_t rank;
    const int64_t *dims; /* `rank` numbers; -1 for a run-time extent, in a description */
    const void *data;    /* NULL in a description */
    size_t bytes;        /* of `data` */
} eutectic_tensor;

typedef struct eutectic_options eutectic_options;
typedef struct eutectic_model eutectic_model;
typedef struct eutectic_results eutectic_results;

/* Returns the version of the library, which lives as long as the program. */
const char *eutectic_version(void);

void eutectic_string_free(char *string);

/* Returns options: the backend "cpu", as many threads as there are cores, no dimension. */
eutectic_options *eutectic_options_new(void);
void eutectic_options_free(eutectic_options *options);
/* Names the backend: "cpu", "cuda" or "vulkan". */
void eutectic_options_set_backend(eutectic_options *options, const char *name);
/* Sets the number of threads; 0 for as many as there are cores. */
void eutectic_options_set_threads(eutectic_options *options, size_t threads);
/* Sets the length of an open dimension. If the bounds differ, each run has a length within them. */
void eutectic_options_set_dim(eutectic_options *options, const char *name, int64_t at_least, int64_t at_most);

/* Opens NAME.onnx, or a graph in text form, and compiles it. `options` may be NULL; they are read, not kept. */
eutectic_model *eutectic_open(const char *path, const eutectic_options *options, char **error);
void eutectic_model_free(eutectic_model *model);

/* Describe the inputs and the outputs, in the order of the model. A description lives as long as the model; NULL beyond the last one. */
size_t eutectic_input_count(const eutectic_model *model);
const eutectic_tensor *eutectic_input(const eutectic_model *model, size_t at);
size_t eutectic_output_count(const eutectic_model *model);
const eutectic_tensor *eutectic_output(const eutectic_model *model, size_t at);

/* Runs the model once on inputs by name, in any order. Data is read during the call only. */
eutectic_results *eutectic_run(eutectic_model *model, const eutectic_tensor *inputs, size_t count, char **error);
void eutectic_results_free(eutectic_results *results);
/* Returns an output by its place in the model; it lives as long as the results; NULL beyond the last one. */
const eutectic_tensor *eutectic_results_get(const eutectic_results *results, size_t at);

/* Sets the states, which persist between runs, to zeros. Returns 1, or 0 if it fails. */
int eutectic_clear_states(eutectic_model *model, char **error);

#ifdef __cplusplus
}
#endif

#endif
