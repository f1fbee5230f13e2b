/* Preloaded into every process of a run: each change below $POWER_LOSS_FOLDER is made as usual, and then written down in
 * $POWER_LOSS_JOURNAL. A record is one writev with O_APPEND, so that those of many processes have one order: whoever was
 * told that a call has returned comes after it. fsync and fdatasync are only written down: what they promise is for the
 * model of the disk to say. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define JOURNAL_FD 900
enum { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, MKDIR, LINK };

/* Little-endian, as tests/power_loss/journal.py reads it; then come the two names, and the data. */
struct record {
    uint32_t kind, first_bytes, second_bytes, data_bytes;
    uint64_t inode, offset;
};

static const char *folder(void) {
    static const char *found;
    if (!found) found = getenv("POWER_LOSS_FOLDER");
    return found;
}

static int journal(void) {
    if (fcntl(JOURNAL_FD, F_GETFD) >= 0) return JOURNAL_FD;
    const char *path = getenv("POWER_LOSS_JOURNAL");
    int opened = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
    if (opened < 0 || fcntl(opened, F_DUPFD_CLOEXEC, JOURNAL_FD) != JOURNAL_FD) {
        fprintf(stderr, "the journal %s cannot be opened\n", path ? path : "(unset)");
        abort();
    }
    syscall(SYS_close, opened);
    return JOURNAL_FD;
}

static int is_below(const char *path) {
    size_t length = folder() ? strlen(folder()) : 0;
    return length && !strncmp(path, folder(), length) && (path[length] == '/' || !path[length]);
}

/* The name of an open file or folder, as the kernel has it now; false for one outside. */
static int name_of(int fd, char *name) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, PATH_MAX - 1);
    if (length < 0) return 0;
    name[length] = 0;
    return is_below(name);
}

/* The absolute name of a path that is given to a call; false for one outside. */
static int resolve(int at, const char *path, char *name) {
    char base[PATH_MAX];
    if (path[0] == '/') {
        snprintf(name, PATH_MAX, "%s", path);
    } else {
        if (at != AT_FDCWD) {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
            ssize_t length = readlink(link, base, PATH_MAX - 1);
            if (length < 0) return 0;
            base[length] = 0;
        } else if (!getcwd(base, sizeof base)) {
            return 0;
        }
        while (path[0] == '.' && path[1] == '/') path += 2;
        if (snprintf(name, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
    }
    return is_below(name);
}

static void note(uint32_t kind, uint64_t inode, uint64_t offset, const char *first, const char *second,
                 const struct iovec *data, int parts, size_t bytes) {
    int failed = errno;
    struct record record = {kind, strlen(first), strlen(second), bytes, inode, offset};
    struct iovec all[3 + parts];
    all[0] = (struct iovec){&record, sizeof record};
    all[1] = (struct iovec){(void *)first, record.first_bytes};
    all[2] = (struct iovec){(void *)second, record.second_bytes};
    size_t left = bytes;
    for (int i = 0; i < parts; i++) {
        size_t length = data[i].iov_len < left ? data[i].iov_len : left;
        all[3 + i] = (struct iovec){data[i].iov_base, length};
        left -= length;
    }
    size_t whole = sizeof record + record.first_bytes + record.second_bytes + bytes;
    if (syscall(SYS_writev, journal(), all, 3 + parts) != (ssize_t)whole) abort();
    errno = failed;
}

static uint64_t inode_of(int fd) {
    struct stat found;
    return fstat(fd, &found) ? 0 : found.st_ino;
}

#define REAL(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

static int opened(int fd, int flags) {
    char name[PATH_MAX];
    if (fd < 0 || !(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE || !name_of(fd, name)) return fd;
    note(CREATE, inode_of(fd), 0, name, "", NULL, 0, 0);
    if (flags & O_TRUNC) note(TRUNCATE, inode_of(fd), 0, "", "", NULL, 0, 0);
    return fd;
}

static mode_t mode_in(int flags, va_list rest) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; }

#define OPENING(name)                                                                                                  \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_in(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return opened(REAL(name, path, flags, mode), flags);                                                           \
    }
#define OPENING_AT(name)                                                                                               \
    int name(int at, const char *path, int flags, ...) {                                                               \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_in(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return opened(REAL(name, at, path, flags, mode), flags);                                                       \
    }
OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)
int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static ssize_t written(int fd, const struct iovec *data, int parts, off_t offset, ssize_t bytes) {
    char name[PATH_MAX];
    if (bytes > 0 && fd != JOURNAL_FD && name_of(fd, name)) {
        if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - bytes;
        note(WRITE, inode_of(fd), offset, "", "", data, parts, bytes);
    }
    return bytes;
}

#define WRITING(name, type)                                                                                            \
    ssize_t name(int fd, const void *data, size_t bytes, type offset) {                                                \
        struct iovec one = {(void *)data, bytes};                                                                      \
        return written(fd, &one, 1, offset, REAL(name, fd, data, bytes, offset));                                      \
    }
#define WRITING_PARTS(name, type)                                                                                      \
    ssize_t name(int fd, const struct iovec *data, int parts, type offset) {                                           \
        return written(fd, data, parts, offset, REAL(name, fd, data, parts, offset));                                  \
    }
WRITING(pwrite, off_t)
WRITING(pwrite64, off64_t)
WRITING_PARTS(pwritev, off_t)
WRITING_PARTS(pwritev64, off64_t)
ssize_t write(int fd, const void *data, size_t bytes) {
    struct iovec one = {(void *)data, bytes};
    return written(fd, &one, 1, -1, REAL(write, fd, data, bytes));
}
ssize_t writev(int fd, const struct iovec *data, int parts) {
    return written(fd, data, parts, -1, REAL(writev, fd, data, parts));
}

static int resized(int fd, off_t size, int result) {
    char name[PATH_MAX];
    if (!result && name_of(fd, name)) note(TRUNCATE, inode_of(fd), size, "", "", NULL, 0, 0);
    return result;
}
int ftruncate(int fd, off_t size) { return resized(fd, size, REAL(ftruncate, fd, size)); }
int ftruncate64(int fd, off64_t size) { return resized(fd, size, REAL(ftruncate64, fd, size)); }

/* A file that is extended has its new size, as after ftruncate; PostgreSQL extends none otherwise. */
static int extended(int fd, off_t end, int result) {
    struct stat found;
    return !result && !fstat(fd, &found) && found.st_size == end ? resized(fd, end, 0) : result;
}
int posix_fallocate(int fd, off_t at, off_t bytes) { return extended(fd, at + bytes, REAL(posix_fallocate, fd, at, bytes)); }
int posix_fallocate64(int fd, off64_t at, off64_t bytes) { return extended(fd, at + bytes, REAL(posix_fallocate64, fd, at, bytes)); }
int fallocate(int fd, int mode, off_t at, off_t bytes) { errno = EOPNOTSUPP; return -1; }
int fallocate64(int fd, int mode, off64_t at, off64_t bytes) { errno = EOPNOTSUPP; return -1; }
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t bytes, unsigned flags) { errno = ENOSYS; return -1; }

static int synced(int fd) {
    char name[PATH_MAX];
    if (fcntl(fd, F_GETFD) < 0) return -1;
    if (name_of(fd, name)) note(SYNC, inode_of(fd), 0, name, "", NULL, 0, 0);
    return 0;
}
int fsync(int fd) { return synced(fd); }
int fdatasync(int fd) { return synced(fd); }

static int moved(int kind, int from_at, const char *from, int to_at, const char *to, int result) {
    char first[PATH_MAX], second[PATH_MAX];
    int known = resolve(from_at, from, first), lands = resolve(to_at, to, second);
    if (!result && (known || lands)) note(kind, 0, 0, first, second, NULL, 0, 0);
    return result;
}
int rename(const char *from, const char *to) {
    return moved(RENAME, AT_FDCWD, from, AT_FDCWD, to, REAL(rename, from, to));
}
int renameat(int a, const char *from, int b, const char *to) {
    return moved(RENAME, a, from, b, to, REAL(renameat, a, from, b, to));
}
int link(const char *from, const char *to) {
    return moved(LINK, AT_FDCWD, from, AT_FDCWD, to, REAL(link, from, to));
}
int linkat(int a, const char *from, int b, const char *to, int flags) {
    return moved(LINK, a, from, b, to, REAL(linkat, a, from, b, to, flags));
}

static int named(int kind, int at, const char *path, int result) {
    char name[PATH_MAX];
    if (!result && resolve(at, path, name)) note(kind, 0, 0, name, "", NULL, 0, 0);
    return result;
}
int unlink(const char *path) { return named(UNLINK, AT_FDCWD, path, REAL(unlink, path)); }
int rmdir(const char *path) { return named(UNLINK, AT_FDCWD, path, REAL(rmdir, path)); }
int remove(const char *path) { return named(UNLINK, AT_FDCWD, path, REAL(remove, path)); }
int unlinkat(int at, const char *path, int flags) { return named(UNLINK, at, path, REAL(unlinkat, at, path, flags)); }
int mkdir(const char *path, mode_t mode) { return named(MKDIR, AT_FDCWD, path, REAL(mkdir, path, mode)); }
int mkdirat(int at, const char *path, mode_t mode) { return named(MKDIR, at, path, REAL(mkdirat, at, path, mode)); }
