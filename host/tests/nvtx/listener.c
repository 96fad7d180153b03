/* What a profiler is to NVTX: loaded through NVTX_INJECTION64_PATH, it writes a line for each range that begins, by its name, or ends,
   to the file that NVTX_LISTENER_LOG names. Numbers and types are those of NVTX 3's nvtxTypes.h. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXPORT_CALLBACKS = 1, MODULE_CORE = 1, RANGE_PUSH_A = 9, RANGE_POP = 11 };

typedef void (*function)(void);

struct callbacks {
    size_t struct_size;
    int (*module_functions)(int module, function ***table, unsigned *size);
};

static FILE *log_file;
static int depth;

static int range_push(const char *name) {
    fprintf(log_file, "%*s%s\n", 2 * depth, "", name);
    return depth++;
}

static int range_pop(void) {
    return --depth;
}

/* Called once, before the first range. */
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id)) {
    const struct callbacks *callbacks = export_table(EXPORT_CALLBACKS);
    const char *path = getenv("NVTX_LISTENER_LOG");
    function **table;
    unsigned size;
    if (!callbacks || !path || !callbacks->module_functions(MODULE_CORE, &table, &size) || size <= RANGE_POP) {
        return 0;
    }
    log_file = fopen(path, "w");
    if (!log_file) {
        return 0;
    }
    *table[RANGE_PUSH_A] = (function)range_push;
    *table[RANGE_POP] = (function)range_pop;
    return 1;
}
