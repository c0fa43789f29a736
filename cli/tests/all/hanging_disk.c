// A disk that can be made to hang, for LD_PRELOAD: while the file that TRINE_TEST_HANG names exists, no sync returns.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void hang(void) {
    const char *file = getenv("TRINE_TEST_HANG");
    const struct timespec pause = {0, 2000000};
    while (file && access(file, F_OK) == 0)
        nanosleep(&pause, NULL);
}

int fdatasync(int fd) {
    hang();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

int fsync(int fd) {
    hang();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
