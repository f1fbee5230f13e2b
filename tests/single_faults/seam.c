/* Preloaded into the process of a request: numbers each change of a file below a folder and each call on a TCP socket,
 * with the steps that Python reports, and lets one of them fail. A step is known by its label and by how often that came
 * before, so that it is the same one in every run. Nothing is counted before seam_begin. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* As tests/single_faults/seam.py has them. */
enum { WELL, ERROR, LOST, TIMEOUT, DEATH_BEFORE, DEATH_AFTER };
enum { LABEL = 200, MOST_LABELS = 4000, DEAD = 9, LONGEST_WAIT_MS = 4000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char label[LABEL]; int times; } seen[MOST_LABELS];
static int labels, counts, journal = -1, armed_nth, armed_how;
static char folder[PATH_MAX], armed[LABEL];
static volatile int released;

void seam_begin(const char *below, int to) {
    snprintf(folder, sizeof folder, "%s", below);
    journal = to;
    counts = 1;
}
void seam_end(void) { counts = 0; }
void seam_arm(const char *label, int nth, int how) {
    snprintf(armed, sizeof armed, "%s", label);
    armed_nth = nth;
    armed_how = how;
}
void seam_release(void) { released = 1; }
void seam_wait(void) {
    for (int ms = 0; !released && ms < LONGEST_WAIT_MS; ms++) nanosleep(&(struct timespec){0, 1000000}, NULL);
}
void seam_die(void) { syscall(SYS_exit_group, DEAD); }

/* What is to become of this step. The journal has a line for each: its number among those of its label, a mark if it is
 * the one that fails, and its label. */
int seam_step(const char *label) {
    if (!counts) return WELL;
    int failed = errno, at, how = WELL;
    char line[LABEL + 40];
    pthread_mutex_lock(&lock);
    for (at = 0; at < labels && strncmp(seen[at].label, label, LABEL - 1); at++);
    if (at == MOST_LABELS) abort();
    if (at == labels) snprintf(seen[labels++].label, LABEL, "%s", label);
    int nth = ++seen[at].times;
    if (armed_how && nth == armed_nth && !strcmp(seen[at].label, armed)) how = armed_how;
    int length = snprintf(line, sizeof line, "%d\t%s\t%s\n", nth, how ? "!" : "", seen[at].label);
    if (syscall(SYS_write, journal, line, length) != length) abort();
    pthread_mutex_unlock(&lock);
    errno = failed;
    return how;
}

/* Ids and random parts of names are not the same in two runs: long words with a digit in them. */
static void plain(char *name) {
    char *to = name;
    for (char *from = name; *from;) {
        char *end = from;
        int digits = 0;
        while (isalnum((unsigned char)*end)) digits += !!isdigit((unsigned char)*end++);
        if (end - from >= 8 && digits) {
            *to++ = '*';
        } else {
            if (end == from) end++;
            memmove(to, from, end - from);
            to += end - from;
        }
        from = end;
    }
    *to = 0;
}

static int step(const char *what, const char *name) {
    char label[LABEL], short_name[150];
    snprintf(short_name, sizeof short_name, "%s", name);
    plain(short_name);
    snprintf(label, sizeof label, "%s %s", what, short_name);
    return seam_step(label);
}

static const char *below(const char *path) {
    size_t length = strlen(folder);
    return length && !strncmp(path, folder, length) && path[length] == '/' ? path + length + 1 : NULL;
}

/* Of a change to an open file; well where it is outside. */
static int of_file(const char *what, int fd) {
    char link[64], name[PATH_MAX];
    if (!counts || fd == journal) return WELL;
    int failed = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, PATH_MAX - 1);
    errno = failed;
    if (length < 0) return WELL;
    name[length] = 0;
    const char *found = below(name);
    return found ? step(what, found) : WELL;
}

/* All that is given to these calls is absolute here. */
static int of_path(const char *what, const char *path) {
    const char *found = counts ? below(path) : NULL;
    return found ? step(what, found) : WELL;
}

static int starts(int how) {
    if (how == DEATH_BEFORE) seam_die();
    if (how == TIMEOUT) seam_wait();
    if (how == ERROR) errno = EIO;
    return how != ERROR;
}
static int ends(int how) {
    if (how == DEATH_AFTER) seam_die();
    if (how == LOST) errno = EIO;
    return how != LOST;
}

#define REAL(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)
#define JUDGED(type, judge, ...)                                                                                       \
    int how = judge;                                                                                                   \
    if (!starts(how)) return -1;                                                                                       \
    type result = REAL(__VA_ARGS__);                                                                                   \
    return ends(how) ? result : -1;

static int making(const char *path, int flags) {
    return flags & O_CREAT && (flags & O_TMPFILE) != O_TMPFILE && access(path, F_OK) ? of_path("create", path) : WELL;
}
#define OPENING(name)                                                                                                  \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                      \
        va_end(rest);                                                                                                  \
        JUDGED(int, making(path, flags), name, path, flags, mode)                                                      \
    }
OPENING(open)
OPENING(open64)

ssize_t write(int fd, const void *data, size_t bytes) { JUDGED(ssize_t, of_file("write", fd), write, fd, data, bytes) }
ssize_t writev(int fd, const struct iovec *data, int parts) {
    JUDGED(ssize_t, of_file("write", fd), writev, fd, data, parts)
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    JUDGED(ssize_t, of_file("write", fd), pwrite, fd, data, bytes, at)
}
ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at) {
    JUDGED(ssize_t, of_file("write", fd), pwrite64, fd, data, bytes, at)
}
int ftruncate(int fd, off_t size) { JUDGED(int, of_file("resize", fd), ftruncate, fd, size) }
int ftruncate64(int fd, off64_t size) { JUDGED(int, of_file("resize", fd), ftruncate64, fd, size) }
int fsync(int fd) { JUDGED(int, of_file("fsync", fd), fsync, fd) }
int fdatasync(int fd) { JUDGED(int, of_file("fsync", fd), fdatasync, fd) }
int rename(const char *from, const char *to) { JUDGED(int, of_path("rename to", to), rename, from, to) }
int link(const char *from, const char *to) { JUDGED(int, of_path("link to", to), link, from, to) }
int linkat(int a, const char *from, int b, const char *to, int flags) {
    JUDGED(int, of_path("link to", to), linkat, a, from, b, to, flags)
}
int unlink(const char *path) { JUDGED(int, of_path("unlink", path), unlink, path) }
int rmdir(const char *path) { JUDGED(int, of_path("unlink", path), rmdir, path) }
int mkdir(const char *path, mode_t mode) { JUDGED(int, of_path("mkdir", path), mkdir, path, mode) }

/* Of a TCP socket: an error resets the connection. What is sent and lost is dropped, and what does not come keeps its
 * reader waiting: nobody blocks an event loop. */
static int of_socket(const char *what, int fd) {
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    if (!counts || getsockname(fd, (struct sockaddr *)&own, &length)) return WELL;
    if (own.ss_family != AF_INET && own.ss_family != AF_INET6) return WELL;
    return step(what, "the other side");
}

static int reset(int how, int when) {
    if (how == (when ? DEATH_AFTER : DEATH_BEFORE)) seam_die();
    if (how != (when ? LOST : ERROR)) return 0;
    errno = ECONNRESET;
    return 1;
}

int connect(int fd, const struct sockaddr *to, socklen_t length) {
    int how = of_socket("connect to", fd);
    if (reset(how == TIMEOUT ? ERROR : how, 0)) return -1;
    int result = REAL(connect, fd, to, length);
    return reset(how, 1) ? -1 : result;
}
ssize_t send(int fd, const void *data, size_t bytes, int flags) {
    int how = of_socket("send to", fd);
    if (reset(how, 0)) return -1;
    ssize_t result = how == TIMEOUT ? (ssize_t)bytes : REAL(send, fd, data, bytes, flags);
    return reset(how, 1) ? -1 : result;
}
static int silent_fd = -1;
ssize_t recv(int fd, void *data, size_t bytes, int flags) {
    int how = WELL;
    if (fd != silent_fd) how = of_socket("receive from", fd);
    if (how == TIMEOUT) silent_fd = fd;
    if (fd == silent_fd && !released) {
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        errno = EAGAIN;
        return -1;
    }
    if (reset(how, 0)) return -1;
    ssize_t result = REAL(recv, fd, data, bytes, flags);
    return reset(how, 1) ? -1 : result;
}
