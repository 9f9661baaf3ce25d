// A C program of a user: the C interface of the installed library.
#include <rmm/rmm.h>
#include <stdio.h>

int main(void) {
    rmm_resource* pool = NULL;
    void* block = NULL;
    if (rmm_open("pool", "initial=1MiB maximum=8MiB", NULL, &pool) != RMM_OK ||
        rmm_allocate(pool, 1000, 0, NULL, &block) != RMM_OK) {
        printf("%s\n", rmm_last_error());
        return 1;
    }
    const int wrong = rmm_deallocate(pool, block, 1000, NULL) != RMM_OK;
    rmm_release(pool);
    return wrong;
}
