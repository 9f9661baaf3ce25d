/* <rmm/rmm.h> as C programs see it: compiled as C11, linked with the library alone. Each function is a sentence; the program says which
 * check failed and ends with how many did. */
#define _POSIX_C_SOURCE 200809L
#include <rmm/rmm.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int num_failed = 0;

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            num_failed++;                                                                             \
            printf("%s:%d: %s: not %s\n  last error: %s\n", __FILE__, __LINE__, __func__, #condition, \
                   rmm_last_error());                                                                 \
        }                                                                                             \
    } while (0)

enum { mib = 1 << 20 };

static int says(const char* part) { return strstr(rmm_last_error(), part) != NULL; }

static rmm_resource* open_or_end(const char* kind, const char* options, rmm_resource* upstream) {
    rmm_resource* resource = NULL;
    if (rmm_open(kind, options, upstream, &resource) != RMM_OK) {
        printf("cannot open %s: %s\n", kind, rmm_last_error());
        exit(1);
    }
    return resource;
}

static void the_library_is_the_one_of_the_header(void) { CHECK(rmm_c_version() == RMM_C_VERSION); }

static void every_kind_serves_every_default_stream(void) {
    static const struct {
        const char* kind;
        const char* options;
        int needs_upstream;
    } kinds[] = {{"cuda", NULL, 0},
                 {"managed", "", 0},
                 {"pinned", NULL, 0},
                 {"cuda_async", "initial=1MiB,maximum=64MiB release_threshold=0", 0},
                 {"cuda_async_managed", NULL, 0},
                 {"system", NULL, 0},
                 {"sam_headroom", "headroom=1MiB", 0},
                 {"pool", "initial=1MiB maximum=50% release_threshold=32MiB name=first", 0},
                 {"pool", NULL, 0},
                 {"arena", "size=4MiB name=\"of, two \"\"words\"\"\"", 0},
                 {"fixed_size", "block=1MiB,blocks=2", 0},
                 {"binning", "min_exponent=10 max_exponent=20", 0},
                 {"binning", NULL, 0},
                 {"vmm", "maximum=64MiB ipc=0 rdma=false", 0},
                 {"pinned_pool", "initial=1MiB", 0},
                 {"aligned", "alignment=4096 threshold=1kB", 1},
                 {"limiting", "limit=16MiB", 1},
                 {"prefetch", NULL, 1},
                 {"statistics", NULL, 1},
                 {"thread_safe", NULL, 1},
                 {"tracking", "stacks=true", 1}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        rmm_resource* upstream = kinds[i].needs_upstream ? open_or_end("cuda", NULL, NULL) : NULL;
        rmm_resource* resource = open_or_end(kinds[i].kind, kinds[i].options, upstream);
        rmm_release(upstream); /* the resource has its own reference */
        CHECK(strcmp(rmm_kind(resource), kinds[i].kind) == 0);
        CHECK(rmm_device(resource) == 0);
        for (size_t stream = 0; stream < 3; stream++) {
            struct CUstream_st* const handle = (struct CUstream_st*)stream;
            void* small = NULL;
            void* large = NULL;
            CHECK(rmm_allocate(resource, 1000, 0, handle, &small) == RMM_OK && small != NULL);
            CHECK(rmm_allocate(resource, mib, 256, handle, &large) == RMM_OK && large != NULL && large != small);
            CHECK((uintptr_t)small % 256 == 0 && (uintptr_t)large % 256 == 0);
            CHECK(rmm_deallocate(resource, large, mib, handle) == RMM_OK);
            CHECK(rmm_deallocate(resource, small, 1000, handle) == RMM_OK);
            CHECK(rmm_deallocate(resource, NULL, 1000, handle) == RMM_OK);
        }
        rmm_release(resource);
    }
}

static void a_log_goes_into_a_file_whose_name_is_quoted(void) {
    char name[] = "/tmp/rmm c, \"log\" XXXXXX", options[200] = "flush=1 file=\"", line[100] = "";
    const int made = mkstemp(name);
    CHECK(made >= 0);
    size_t end = strlen(options);
    for (const char* c = name; *c != 0; c++) {
        if (*c == '"') options[end++] = '"';
        options[end++] = *c;
    }
    options[end++] = '"';
    options[end] = 0;
    rmm_resource* cuda = open_or_end("cuda", NULL, NULL);
    rmm_resource* log = open_or_end("logging", options, cuda);
    void* block = NULL;
    CHECK(rmm_allocate(log, 1000, 0, NULL, &block) == RMM_OK);
    CHECK(rmm_deallocate(log, block, 1000, NULL) == RMM_OK);
    rmm_release(log);
    rmm_release(cuda);
    FILE* file = fopen(name, "r");
    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL && strstr(line, "Action") != NULL);
    if (file != NULL) fclose(file);
    close(made);
    unlink(name);
}

static void wrong_arguments_are_named_with_what_is_right(void) {
    rmm_resource* cuda = open_or_end("cuda", NULL, NULL);
    rmm_resource* none = cuda;
    static const struct {
        const char *kind, *options, *said;
    } wrong[] = {{"heap", NULL, "there are cuda, managed"},
                 {"pool", "inital=1MiB", "'inital' is unknown; known are initial, maximum, release_threshold, name"},
                 {"cuda", "size=1", "'size' is unknown; known is none"},
                 {"pool", "maximum=1MiB maximum=2MiB", "'maximum' stands twice"},
                 {"pool", "maximum", "'maximum' is not followed by '='"},
                 {"pool", "=1", "not followed"},
                 {"pool", "maximum=much", "'maximum': "},
                 {"pool", "maximum=99999999999999999999999", "'maximum': "},
                 {"pool", "name=\"a", "quotes of 'name' do not end"},
                 {"pool", "name=\"a\"b", "behind the double quotes"},
                 {"fixed_size", "blocks=-1", "'blocks' is '-1'"},
                 {"binning", "min_exponent=3", "'max_exponent' is needed"},
                 {"sam_headroom", NULL, "headroom=1GiB"},
                 {"limiting", "limit=1MiB", "needs an upstream"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        none = cuda;
        CHECK(rmm_open(wrong[i].kind, wrong[i].options, NULL, &none) == RMM_INVALID_ARGUMENT);
        CHECK(none == NULL && says(wrong[i].said));
    }
    CHECK(rmm_open("limiting", NULL, cuda, &none) == RMM_INVALID_ARGUMENT && says("limit=8GiB"));
    CHECK(rmm_open("tracking", "stacks=maybe", cuda, &none) == RMM_INVALID_ARGUMENT && says("0, 1, false or true"));
    CHECK(rmm_open("vmm", NULL, cuda, &none) == RMM_INVALID_ARGUMENT && says("takes no upstream"));
    /* The host driver has none of it. */
    CHECK(rmm_open("vmm", "ipc=1", NULL, &none) != RMM_OK && says("file descriptor"));
    CHECK(rmm_open("vmm", "fabric=1", NULL, &none) != RMM_OK && says("fabric"));
    CHECK(rmm_open("vmm", "rdma=true", NULL, &none) != RMM_OK && says("RDMA"));
    CHECK(rmm_open("vmm", "multicast=1", NULL, &none) != RMM_OK && says("multicast"));
    CHECK(rmm_open("cuda", NULL, NULL, NULL) == RMM_INVALID_ARGUMENT && says("out is null"));
    CHECK(rmm_open(NULL, NULL, NULL, &none) == RMM_INVALID_ARGUMENT && says("kind is null"));
    /* What the resource itself refuses. */
    CHECK(rmm_open("pool", "initial=1000", NULL, &none) == RMM_LOGIC_ERROR && says("multiple of 256"));
    CHECK(rmm_open("binning", "min_exponent=3 max_exponent=900", NULL, &none) == RMM_LOGIC_ERROR);
    CHECK(rmm_open("aligned", "alignment=1000", cuda, &none) == RMM_LOGIC_ERROR && none == NULL);
    void* block = &none;
    CHECK(rmm_allocate(cuda, 100, 512, NULL, &block) == RMM_INVALID_ARGUMENT && block == NULL && says("'aligned'"));
    CHECK(rmm_allocate(cuda, 100, 3, NULL, &block) == RMM_INVALID_ARGUMENT);
    CHECK(rmm_allocate(NULL, 100, 0, NULL, &block) == RMM_INVALID_ARGUMENT && says("resource is null"));
    CHECK(rmm_allocate(cuda, 100, 0, NULL, NULL) == RMM_INVALID_ARGUMENT);
    CHECK(rmm_deallocate(NULL, &block, 1, NULL) == RMM_INVALID_ARGUMENT);
    CHECK(rmm_trim(NULL, 0, NULL) == RMM_INVALID_ARGUMENT);
    CHECK(rmm_set_name(cuda, "x") == RMM_INVALID_ARGUMENT && says("no name"));
    CHECK(rmm_set_name(cuda, NULL) == RMM_INVALID_ARGUMENT);
    CHECK(rmm_get_statistics(cuda, NULL) == RMM_INVALID_ARGUMENT);
    CHECK(rmm_push_counters(cuda, NULL) == RMM_INVALID_ARGUMENT && says("'statistics'"));
    CHECK(rmm_memory_info(7, NULL, NULL) == RMM_INVALID_ARGUMENT && says("device 7"));
    CHECK(rmm_memory_report(0, NULL, NULL) == RMM_INVALID_ARGUMENT);
    CHECK(rmm_set_device_resource(1, cuda) == RMM_INVALID_ARGUMENT && says("belongs to device 0"));
    CHECK(rmm_retain(NULL) == NULL && rmm_upstream(NULL) == NULL && rmm_device(NULL) == -1 && rmm_kind(NULL)[0] == 0);
    rmm_release(NULL);
    rmm_release(cuda);
}

static void out_of_memory_has_its_figures_as_fields(void) {
    rmm_resource* pool = open_or_end("pool", "initial=512KiB maximum=1MiB name=small", NULL);
    void *block = NULL, *more = pool;
    CHECK(rmm_allocate(pool, 400 * 1024, 0, NULL, &block) == RMM_OK);
    CHECK(rmm_allocate(pool, 2 * mib, 0, NULL, &more) == RMM_OUT_OF_MEMORY && more == NULL);
    CHECK(says("out_of_memory") && says("small"));
    rmm_shortage s = {sizeof s};
    CHECK(rmm_last_shortage(&s) == RMM_OK);
    CHECK(s.requested_bytes == 2 * mib && s.pool_maximum_bytes == mib && s.limit == RMM_LIMIT_MAXIMUM && s.device == 0);
    CHECK(s.pool_in_use_bytes == 400 * 1024 && s.device_total_bytes > s.device_free_bytes && s.struct_size == sizeof s);
    /* A program that knows less gets no more than it knows; one that knows more gets zeros. */
    rmm_shortage older;
    memset(&older, 0x55, sizeof older);
    older.struct_size = offsetof(rmm_shortage, device_free_bytes);
    CHECK(rmm_last_shortage(&older) == RMM_OK);
    CHECK(older.requested_bytes == 2 * mib && older.struct_size == offsetof(rmm_shortage, device_free_bytes));
    CHECK(((unsigned char*)&older.device_free_bytes)[0] == 0x55);
    struct {
        rmm_shortage known;
        size_t later[4];
    } newer;
    memset(&newer, 0x55, sizeof newer);
    newer.known.struct_size = sizeof newer;
    CHECK(rmm_last_shortage(&newer.known) == RMM_OK && newer.known.requested_bytes == 2 * mib);
    CHECK(newer.later[0] == 0 && newer.later[3] == 0);
    /* A success changes nothing, another failure does. */
    CHECK(rmm_deallocate(pool, block, 400 * 1024, NULL) == RMM_OK && rmm_last_shortage(&s) == RMM_OK);
    rmm_resource* none = NULL;
    CHECK(rmm_open("heap", NULL, NULL, &none) == RMM_INVALID_ARGUMENT && rmm_last_shortage(&s) == RMM_INVALID_ARGUMENT);
    rmm_statistics unsized = {3};
    CHECK(rmm_get_statistics(pool, &unsized) == RMM_INVALID_ARGUMENT && says("sizeof(*out)"));
    rmm_release(pool);
}

static void resources_stand_on_each_other_and_go_in_any_order(void) {
    rmm_resource* pool = open_or_end("pool", "initial=0 name=below", NULL);
    rmm_resource* limit = open_or_end("limiting", "limit=8MiB", pool);
    rmm_resource* counted = open_or_end("statistics", NULL, limit);
    rmm_resource* up = rmm_upstream(counted);
    CHECK(up == limit);
    rmm_release(up);
    rmm_release(limit);
    rmm_release(pool);
    void *first = NULL, *second = NULL;
    CHECK(rmm_allocate(counted, 1000, 0, NULL, &first) == RMM_OK);
    rmm_statistics s = {sizeof s};
    CHECK(rmm_push_counters(counted, &s) == RMM_OK && s.bytes_now == 1000 && s.blocks_now == 1);
    CHECK(rmm_allocate(counted, mib, 0, NULL, &second) == RMM_OK);
    CHECK(rmm_allocate(counted, 9 * mib, 0, NULL, &(void*){NULL}) == RMM_OUT_OF_MEMORY &&
          says("Exceeded memory limit"));
    CHECK(rmm_get_statistics(counted, &s) == RMM_OK && s.known == RMM_KNOWS_COUNTERS && s.bytes_total == mib);
    CHECK(rmm_deallocate(counted, second, mib, NULL) == RMM_OK);
    CHECK(rmm_pop_counters(counted, &s) == RMM_OK && s.bytes_now == 0 && s.bytes_peak == mib && s.blocks_total == 1);
    CHECK(rmm_pop_counters(counted, NULL) == RMM_LOGIC_ERROR && says("cannot pop"));
    CHECK(rmm_pop_counters(counted, &s) == RMM_LOGIC_ERROR && s.bytes_peak == mib && s.blocks_total == 1);
    up = rmm_upstream(counted);
    CHECK(rmm_get_statistics(up, &s) == RMM_OK && s.known == RMM_KNOWS_ALLOCATED && s.allocated_bytes == 1024 &&
          s.limit_bytes == 8 * mib);
    rmm_resource* bottom = rmm_upstream(up);
    CHECK(rmm_get_statistics(bottom, &s) == RMM_OK && s.known == RMM_KNOWS_POOL && s.num_blocks == 1 &&
          s.held_bytes >= s.in_use_bytes && s.in_use_bytes == 1024);
    rmm_resource* cuda = rmm_upstream(bottom);
    CHECK(strcmp(rmm_kind(cuda), "cuda") == 0 && rmm_upstream(cuda) == NULL);
    rmm_release(cuda);
    rmm_release(bottom);
    rmm_release(up);
    CHECK(rmm_deallocate(counted, first, 1000, NULL) == RMM_OK);
    size_t given_back = 0;
    CHECK(rmm_trim(counted, 0, &given_back) == RMM_OK && given_back >= mib); /* the pool's, two below */
    CHECK(rmm_trim(counted, 0, &given_back) == RMM_OK && given_back == 0);
    rmm_release(counted);
}

static void the_resource_of_a_device_is_set_and_asked_for(void) {
    rmm_resource *initial = NULL, *now = NULL;
    CHECK(rmm_get_device_resource(-1, &initial) == RMM_OK && strcmp(rmm_kind(initial), "external") == 0);
    rmm_resource* cuda = open_or_end("cuda", NULL, NULL);
    rmm_resource* counted = open_or_end("statistics", NULL, cuda);
    CHECK(rmm_set_device_resource(0, counted) == RMM_OK);
    CHECK(rmm_get_device_resource(0, &now) == RMM_OK && now == counted);
    rmm_release(now);
    rmm_release(counted); /* the library has one */
    CHECK(rmm_torch_allocate(0, 0, NULL) == NULL);
    void* block = rmm_torch_allocate(1000, 0, NULL);
    CHECK(block != NULL);
    rmm_statistics s = {sizeof s};
    CHECK(rmm_get_statistics(counted, &s) == RMM_OK && s.bytes_now == 1000);
    rmm_torch_deallocate(block, 1000, 0, NULL);
    rmm_torch_deallocate(NULL, 0, 0, NULL);
    CHECK(rmm_get_statistics(counted, &s) == RMM_OK && s.bytes_now == 0);
    CHECK(rmm_torch_allocate((ptrdiff_t)1 << 50, 0, NULL) == NULL && says("out_of_memory"));
    CHECK(rmm_torch_allocate(100, 9, NULL) == NULL && says("device 9"));
    CHECK(rmm_set_device_resource(0, NULL) == RMM_OK);
    CHECK(rmm_get_device_resource(0, &now) == RMM_OK && strcmp(rmm_kind(now), "external") == 0);
    /* What C++ owns can be used and stood upon as well. */
    counted = open_or_end("statistics", NULL, now);
    CHECK(rmm_allocate(counted, 10, 0, NULL, &block) == RMM_OK && rmm_deallocate(counted, block, 10, NULL) == RMM_OK);
    rmm_release(counted);
    rmm_release(now);
    rmm_release(cuda);
    rmm_release(initial);
}

static void hooks_without_stream_and_size_find_both(void) {
    rmm_resource* cuda = open_or_end("cuda", NULL, NULL);
    rmm_resource* counted = open_or_end("statistics", NULL, cuda);
    struct CUstream_st* const per_thread = (struct CUstream_st*)(uintptr_t)2;
    CHECK(rmm_set_hook_stream(per_thread) == NULL);
    void* blocks[100];
    for (size_t i = 0; i < 100; i++) {
        blocks[i] = rmm_cupy_allocate(counted, 100 + i, 0);
        CHECK(blocks[i] != NULL);
    }
    CHECK(rmm_set_hook_stream(NULL) == per_thread);
    for (size_t i = 0; i < 100; i++) rmm_cupy_deallocate(counted, blocks[i], 0);
    rmm_statistics s = {sizeof s};
    CHECK(rmm_get_statistics(counted, &s) == RMM_OK && s.bytes_now == 0 && s.blocks_total == 100);
    CHECK(rmm_cupy_allocate(counted, 0, 0) == NULL);
    CHECK(rmm_cupy_allocate(counted, 10, 1) == NULL && says("device 1"));
    CHECK(rmm_cupy_allocate(NULL, 10, 0) == NULL && says("resource is null"));
    rmm_cupy_deallocate(counted, blocks[0], 0);
    CHECK(says("twice"));
    rmm_cupy_deallocate(counted, NULL, 0);
    rmm_release(counted);
    rmm_release(cuda);
}

struct source {
    int code, num_live, num_closed;
    size_t last_bytes;
};

static int take(void* user, size_t bytes, struct CUstream_st* stream, void** out) {
    struct source* s = user;
    (void)stream;
    if (s->code != RMM_OK) return s->code;
    s->num_live++;
    s->last_bytes = bytes;
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return RMM_OK;
}
static void give(void* user, void* pointer, size_t bytes, struct CUstream_st* stream) {
    struct source* s = user;
    (void)stream;
    s->num_live--;
    s->last_bytes = bytes;
    free(pointer);
}
static void close_source(void* user) { ((struct source*)user)->num_closed++; }

static void functions_of_the_caller_are_a_resource(void) {
    struct source s = {0};
    rmm_resource* own = NULL;
    CHECK(rmm_open_callbacks(take, NULL, close_source, &s, &own) == RMM_INVALID_ARGUMENT && own == NULL);
    CHECK(rmm_open_callbacks(take, give, close_source, &s, &own) == RMM_OK && strcmp(rmm_kind(own), "callbacks") == 0);
    rmm_resource* tracked = open_or_end("tracking", NULL, own);
    rmm_release(own);
    void* block = NULL;
    CHECK(rmm_allocate(tracked, 1000, 0, NULL, &block) == RMM_OK && s.num_live == 1 && s.last_bytes == 1000);
    s.code = RMM_OUT_OF_MEMORY;
    rmm_shortage shortage = {sizeof shortage};
    CHECK(rmm_allocate(tracked, 77, 0, NULL, &(void*){NULL}) == RMM_OUT_OF_MEMORY && says("returned 1"));
    CHECK(rmm_last_shortage(&shortage) == RMM_OK && shortage.requested_bytes == 77);
    s.code = 42;
    CHECK(rmm_allocate(tracked, 77, 0, NULL, &(void*){NULL}) == RMM_BAD_ALLOC && says("returned 42"));
    rmm_statistics of = {sizeof of};
    CHECK(rmm_get_statistics(tracked, &of) == RMM_OK && of.known == RMM_KNOWS_ALLOCATED && of.allocated_bytes == 1000);
    CHECK(rmm_deallocate(tracked, block, 1000, NULL) == RMM_OK && s.num_live == 0 && s.num_closed == 0);
    rmm_release(tracked);
    CHECK(s.num_closed == 1);
}

static void texts_are_cut_to_the_room_that_there_is(void) {
    rmm_resource* pool = open_or_end("pool", "initial=1MiB name=reported", NULL);
    size_t size = 0;
    CHECK(rmm_memory_report(0, NULL, &size) == RMM_OK && size > 20);
    char* text = malloc(size);
    size_t room = size;
    CHECK(rmm_memory_report(0, text, &room) == RMM_OK && room == size && strlen(text) == size - 1);
    CHECK(strstr(text, "reported") != NULL);
    char few[10] = "xxxxxxxxx";
    room = 5;
    CHECK(rmm_memory_report(0, few, &room) == RMM_OK && room == size && strncmp(few, text, 4) == 0 && few[4] == 0);
    CHECK(few[5] == 'x');
    free(text);
    size = 0;
    CHECK(rmm_memory_snapshot(0, NULL, &size) == RMM_OK && size > 20);
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(rmm_memory_info(0, &free_bytes, &total_bytes) == RMM_OK && free_bytes > 0 && free_bytes < total_bytes);
    CHECK(rmm_memory_info(-1, NULL, NULL) == RMM_OK);
    rmm_release(pool);
}

enum { num_threads = 4, num_rounds = 2000 };

static void* use(void* argument) {
    rmm_resource* const resource = argument;
    char expected[100];
    snprintf(expected, sizeof expected, "'option%lx'", (unsigned long)pthread_self());
    char options[100];
    snprintf(options, sizeof options, "option%lx=1", (unsigned long)pthread_self());
    size_t wrong = 0;
    for (int i = 0; i < num_rounds; i++) {
        rmm_resource* const mine = rmm_retain(resource);
        void* block = NULL;
        rmm_resource* none = NULL;
        wrong += rmm_allocate(mine, 1000, 0, NULL, &block) != RMM_OK;
        if (i % 100 == 0) wrong += rmm_open("pool", options, NULL, &none) != RMM_INVALID_ARGUMENT;
        wrong += strstr(rmm_last_error(), expected) == NULL;
        wrong += rmm_deallocate(mine, block, 1000, NULL) != RMM_OK;
        rmm_release(mine);
    }
    return (void*)wrong;
}

static void threads_share_a_resource_and_have_errors_of_their_own(void) {
    rmm_resource* pool = open_or_end("pool", "initial=1MiB", NULL);
    pthread_t threads[num_threads];
    for (int i = 0; i < num_threads; i++) pthread_create(&threads[i], NULL, use, pool);
    for (int i = 0; i < num_threads; i++) {
        void* wrong = NULL;
        pthread_join(threads[i], &wrong);
        CHECK(wrong == NULL);
    }
    rmm_statistics s = {sizeof s};
    CHECK(rmm_get_statistics(pool, &s) == RMM_OK && s.num_blocks == 0);
    rmm_release(pool);
}

static void the_child_of_a_fork_gets_codes_and_frees_in_peace(void) {
    rmm_resource* pool = open_or_end("pool", "initial=1MiB", NULL);
    void* block = NULL;
    CHECK(rmm_allocate(pool, 1000, 0, NULL, &block) == RMM_OK);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        num_failed = 0;
        rmm_resource* none = NULL;
        rmm_statistics s = {sizeof s};
        CHECK(rmm_allocate(pool, 1000, 0, NULL, &(void*){NULL}) == RMM_LOGIC_ERROR && says("fork") && says("spawn"));
        CHECK(rmm_open("cuda", NULL, NULL, &none) == RMM_LOGIC_ERROR);
        CHECK(rmm_get_device_resource(-1, &none) == RMM_LOGIC_ERROR);
        CHECK(rmm_set_device_resource(-1, NULL) == RMM_LOGIC_ERROR);
        CHECK(rmm_get_statistics(pool, &s) == RMM_LOGIC_ERROR);
        CHECK(rmm_trim(pool, 0, NULL) == RMM_LOGIC_ERROR);
        CHECK(rmm_memory_info(-1, NULL, NULL) == RMM_LOGIC_ERROR);
        CHECK(rmm_torch_allocate(10, 0, NULL) == NULL && says("spawn"));
        CHECK(rmm_deallocate(pool, block, 1000, NULL) == RMM_OK);
        rmm_torch_deallocate(block, 1000, 0, NULL);
        rmm_release(pool);
        _exit(num_failed);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(rmm_deallocate(pool, block, 1000, NULL) == RMM_OK);
    rmm_release(pool);
}

int main(void) {
    CHECK(rmm_last_error()[0] == 0);
    the_library_is_the_one_of_the_header();
    every_kind_serves_every_default_stream();
    a_log_goes_into_a_file_whose_name_is_quoted();
    wrong_arguments_are_named_with_what_is_right();
    out_of_memory_has_its_figures_as_fields();
    resources_stand_on_each_other_and_go_in_any_order();
    the_resource_of_a_device_is_set_and_asked_for();
    hooks_without_stream_and_size_find_both();
    functions_of_the_caller_are_a_resource();
    texts_are_cut_to_the_room_that_there_is();
    threads_share_a_resource_and_have_errors_of_their_own();
    the_child_of_a_fork_gets_codes_and_frees_in_peace();
    if (num_failed == 0) printf("all well\n");
    return num_failed;
}
