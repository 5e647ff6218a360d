// A measuring worker around the C interface of another tree engine; it speaks the protocol of `albacore bench engine`:
//   load MODEL DATA.f32 COLS THREADS -> ok;  check KIND N FILE -> ok;  run KIND BATCH TARGET_MS MIN_CALLS -> JSON
// Usage: peer xgboost|lightgbm|tl2cgen LIBRARY. For tl2cgen LIBRARY is the compiled model.
// What a caller can reuse is made before the clock starts (DMatrix objects of explanations), which favors the peer.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t ulong64;
enum { ROWS_MAX = 1 << 20, CALLS_MAX = 1 << 20 };

static void *library;
static const char *engine;
static float *rows;
static size_t count, columns;
static void *model;        // a Booster
static void *proxy;        // XGBoost: what predictions from memory ask for
static void **matrices;    // XGBoost: one DMatrix for each window
static size_t matrices_of; // rows of each
static double *doubles;    // LightGBM's results
static float *floats;      // tl2cgen's
static size_t width;       // of a row's result
static void *scratch;      // tl2cgen's row

static void fail(const char *what) {
    printf("error %s\n", what);
    fflush(stdout);
    exit(1);
}

static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (!found) fail(name);
    return found;
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void describe(char *text, size_t length, const float *at, size_t n) {
    snprintf(text, length, "{\"data\": [%lu, true], \"shape\": [%zu, %zu], \"typestr\": \"<f4\", \"version\": 3}",
             (unsigned long)at, n, columns);
}

// Prediction types of XGBoost and of LightGBM.
static int kind_of(const char *kind, int is_xgboost) {
    if (!strcmp(kind, "predict")) return 0;
    if (!strcmp(kind, "contribs")) return is_xgboost ? 2 : 3;
    if (!strcmp(kind, "interactions") && is_xgboost) return 4;
    return -1;
}

static const char *xgboost_call(int kind, size_t first, size_t n, const float **out, size_t *length) {
    char array[256], config[256];
    const ulong64 *shape;
    ulong64 dimensions;
    int code;
    if (kind == 0) {
        static int (*predict)(void *, const char *, const char *, void *, const ulong64 **, ulong64 *, const float **);
        if (!predict) predict = symbol("XGBoosterPredictFromDense");
        describe(array, sizeof array, rows + first * columns, n);
        code = predict(model, array,
                       "{\"type\": 0, \"iteration_begin\": 0, \"iteration_end\": 0, \"missing\": NaN, "
                       "\"strict_shape\": false, \"cache_id\": 0}",
                       proxy, &shape, &dimensions, out);
    } else {
        static int (*predict)(void *, void *, const char *, const ulong64 **, ulong64 *, const float **);
        if (!predict) predict = symbol("XGBoosterPredictFromDMatrix");
        snprintf(config, sizeof config,
                 "{\"type\": %d, \"training\": false, \"iteration_begin\": 0, \"iteration_end\": 0, "
                 "\"strict_shape\": false}",
                 kind);
        code = predict(model, matrices[first / n % (count / n)], config, &shape, &dimensions, out);
    }
    if (code) return ((const char *(*)(void))symbol("XGBGetLastError"))();
    *length = 1;
    for (ulong64 i = 0; i < dimensions; i++) *length *= shape[i];
    return NULL;
}

static const char *tl2cgen_call(size_t first, size_t n) {
    static void (*predict)(void *, int, float *);
    if (!predict) predict = symbol("predict");
    int32_t missing = -1;
    for (size_t row = 0; row < n; row++) {
        float *entries = scratch;
        memcpy(entries, rows + (first + row) * columns, columns * sizeof(float));
        for (size_t i = 0; i < columns; i++)
            if (isnan(entries[i])) memcpy(entries + i, &missing, 4);
        memset(floats + row * width, 0, width * sizeof(float)); // it adds to what is there
        predict(entries, 0, floats + row * width);
    }
    return NULL;
}

static const char *lightgbm_call(int kind, size_t first, size_t n) {
    static int (*predict)(void *, const void *, int, int32_t, int32_t, int, int, int, int, const char *, int64_t *, double *);
    if (!predict) predict = symbol("LGBM_BoosterPredictForMat");
    int64_t length;
    if (predict(model, rows + first * columns, 0, n, columns, 1, kind, 0, -1, "num_threads=1", &length, doubles))
        return ((const char *(*)(void))symbol("LGBM_GetLastError"))();
    width = length / n;
    return NULL;
}

static const char *call(const char *kind, size_t first, size_t n, const float **out, size_t *length) {
    int is_xgboost = !strcmp(engine, "xgboost"), type = kind_of(kind, is_xgboost);
    if (type < 0 || (type && !strcmp(engine, "tl2cgen"))) return "this engine has no such kind";
    if (is_xgboost) return xgboost_call(type, first, n, out, length);
    if (!strcmp(engine, "lightgbm")) return lightgbm_call(type, first, n);
    return tl2cgen_call(first, n);
}

// Creates the objects for calls with windows of n rows. Explanations of XGBoost take DMatrix
// objects.
static void prepare(const char *kind, size_t n) {
    if (strcmp(engine, "xgboost") || !strcmp(kind, "predict") || matrices_of == n) return;
    int (*create)(const char *, const char *, void **) = symbol("XGDMatrixCreateFromDense");
    int (*release)(void *) = symbol("XGDMatrixFree");
    for (size_t i = 0; matrices && i < count / matrices_of; i++) release(matrices[i]);
    free(matrices);
    matrices = calloc(count / n + 1, sizeof *matrices);
    matrices_of = n;
    for (size_t i = 0; i < count / n; i++) {
        char array[256];
        describe(array, sizeof array, rows + i * n * columns, n);
        if (create(array, "{\"missing\": NaN, \"nthread\": 1}", &matrices[i])) fail("XGDMatrixCreateFromDense");
    }
}

static void load(const char *path, const char *data, size_t of_columns) {
    FILE *file = fopen(data, "rb");
    if (!file) fail(data);
    columns = of_columns;
    rows = malloc((size_t)4 * ROWS_MAX);
    count = fread(rows, 4 * columns, ROWS_MAX / columns, file);
    fclose(file);
    if (!strcmp(engine, "xgboost")) {
        int (*create)(void *, ulong64, void **) = symbol("XGBoosterCreate");
        int (*read)(void *, const char *) = symbol("XGBoosterLoadModel");
        int (*set)(void *, const char *, const char *) = symbol("XGBoosterSetParam");
        int (*make)(void **) = symbol("XGProxyDMatrixCreate");
        if (create(NULL, 0, &model) || read(model, path) || set(model, "nthread", "1") || make(&proxy)) fail(path);
    } else if (!strcmp(engine, "lightgbm")) {
        int (*read)(const char *, int *, void **) = symbol("LGBM_BoosterCreateFromModelfile");
        int iterations;
        if (read(path, &iterations, &model)) fail(path);
        doubles = malloc(sizeof(double) * (size_t)1 << 26);
    } else {
        int32_t (*targets)(void) = dlsym(library, "get_num_target");
        void (*classes)(int32_t *) = dlsym(library, "get_num_class");
        int32_t of_class[16] = {1};
        if (targets && classes && targets() <= 16) classes(of_class);
        width = of_class[0];
        floats = malloc(4 * width * ROWS_MAX);
        scratch = malloc(4 * columns);
    }
    printf("ok\n");
}

static void check(const char *kind, size_t n, const char *path) {
    const float *out = floats;
    size_t length = 0;
    FILE *file = fopen(path, "wb");
    if (!file) fail(path);
    prepare(kind, n);
    const char *error = call(kind, 0, n, &out, &length);
    if (error) fail(error);
    if (!strcmp(engine, "xgboost")) fwrite(out, 4, length, file);
    else if (!strcmp(engine, "tl2cgen")) fwrite(floats, 4, n * width, file);
    else
        for (size_t i = 0; i < n * width; i++) {
            float value = doubles[i];
            fwrite(&value, 4, 1, file);
        }
    fclose(file);
    printf("ok\n");
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run(const char *kind, size_t n, double target, size_t calls) {
    static double times[CALLS_MAX];
    const float *out;
    size_t length, first = 0, done = 0;
    prepare(kind, n);
    const char *error = call(kind, 0, n, &out, &length); // warms up
    if (error) fail(error);
    double start = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID), sum = 0;
    while (done < CALLS_MAX && (done < calls || seconds(CLOCK_MONOTONIC) - start < target)) {
        double before = seconds(CLOCK_MONOTONIC);
        call(kind, first, n, &out, &length);
        times[done] = 1e9 * (seconds(CLOCK_MONOTONIC) - before) / n;
        sum += times[done++];
        first = first + 2 * n > count ? 0 : first + n;
    }
    cpu = 1e9 * (seconds(CLOCK_THREAD_CPUTIME_ID) - cpu) / n / done;
    qsort(times, done, sizeof *times, ascending);
    printf("{\"med\": %.1f, \"min\": %.1f, \"mean\": %.1f, \"cpu\": %.1f, \"calls\": %zu}\n", times[done / 2], times[0],
           sum / done, cpu, done);
}

int main(int argc, char **argv) {
    char line[4096], a[2048], b[1024];
    size_t x, y;
    double target;
    if (argc != 3) return 64;
    engine = argv[1];
    library = dlopen(argv[2], RTLD_NOW);
    if (!library) fail(dlerror());
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "load %2047s %1023s %zu %zu", a, b, &x, &y) == 4) load(a, b, x);
        else if (sscanf(line, "check %2047s %zu %1023s", a, &x, b) == 3) check(a, x, b);
        else if (sscanf(line, "run %2047s %zu %lf %zu", a, &x, &target, &y) == 4) run(a, x, target / 1000, y);
        else printf("error unknown order: %s", line);
    }
    return 0;
}
