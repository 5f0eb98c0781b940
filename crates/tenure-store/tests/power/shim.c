/*
 * Keeps a shadow of a folder that holds only what was made durable: what a loss of power would leave.
 *
 * Usage:
 *     cc -shared -fPIC -O1 -o shim.so shim.c -ldl -lpthread
 *     LD_PRELOAD=$PWD/shim.so TENURE_POWER_ROOT=/store TENURE_POWER_SHADOW=/shadow program ...
 * Kill the program at any moment, then look at /shadow, or go on with it as the next /store. Both folders must be
 * on filesystems that know when a file was born (ext4, xfs, btrfs, tmpfs). What is in the root at the start is
 * taken to be durable and copied, unless the shadow is there already. Beside the shadow lies `<shadow>.files`,
 * which holds the durable content of every file ever synced; the shadow's names are links into it. A shadow that
 * is there is complete: it is put together as `<shadow>.new`. One that is not was not finished before the kill,
 * and the program has not written anything yet.
 *
 * What counts as durable, as strictly as POSIX lets a filesystem be:
 *   - the content and length of a file, when that file is synced (fsync, fdatasync, msync does not count);
 *   - the names in a folder (made, renamed, removed), when that folder is synced, all at once. Until then a new
 *     file has no name in the shadow, a removed one keeps its name, a renamed one has its old one.
 * A file whose name is durable but whose content is not is empty.
 *
 * Syncs do not reach the real disk, they only copy to the shadow, so a program is not slower for them. With
 * TENURE_POWER_SYNC_US each of them takes so many microseconds, before anything is durable: a program that does
 * not wait for a sync is then more likely to be caught.
 *
 * Not followed: renaming a folder, writes through mmap, O_SYNC, copy_file_range, sendfile, io_uring, syncfs, and
 * writes by raw system calls (names may be changed by raw system calls, since folders are compared by listing).
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX], shadow[PATH_MAX], files[PATH_MAX];
static int active;
static useconds_t sync_us;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

static void die(const char *what, const char *path) {
    fprintf(stderr, "power shim: %s %s: %s\n", what, path, strerror(errno));
    abort();
}

static void join(char *out, const char *one, const char *two) {
    if (snprintf(out, PATH_MAX, "%s%s%s", one, *two ? "/" : "", two) >= PATH_MAX) die("path too long", one);
}

/* ---- files, known by number and birth, so that a number that is used again is another file ---- */

struct file {
    dev_t device;
    uint64_t number, seconds;
    uint32_t nanoseconds;
    int is_inside;
    /* What was written since the last sync, as a list of ranges. */
    struct range { off_t from, to; } *dirty;
    size_t count, room;
    struct file *next;
};

#define BUCKETS 4096
static struct file *known[BUCKETS];

/* Reads number and birth of a file. */
static int identify(int at, const char *path, int flags, struct statx *stat) {
    return statx(at, path, flags, STATX_INO | STATX_BTIME | STATX_TYPE | STATX_SIZE, stat);
}

/* The path of what a descriptor is open on, below the root; NULL if it is elsewhere. */
static const char *inside(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    size_t prefix = strlen(root);
    if (strncmp(path, root, prefix) != 0 || (path[prefix] != '/' && path[prefix] != 0)) return NULL;
    return path[prefix] == '/' ? path + prefix + 1 : path + prefix;
}

static struct file *find(int fd, const struct statx *stat) {
    dev_t device = ((dev_t)stat->stx_dev_major << 32) | stat->stx_dev_minor;
    struct file **slot = &known[stat->stx_ino % BUCKETS];
    for (struct file *file = *slot; file; file = file->next)
        if (file->number == stat->stx_ino && file->device == device && file->seconds == (uint64_t)stat->stx_btime.tv_sec
            && file->nanoseconds == stat->stx_btime.tv_nsec)
            return file;
    struct file *file = calloc(1, sizeof *file);
    char path[PATH_MAX];
    file->device = device;
    file->number = stat->stx_ino;
    file->seconds = stat->stx_btime.tv_sec;
    file->nanoseconds = stat->stx_btime.tv_nsec;
    file->is_inside = inside(fd, path) != NULL;
    file->next = *slot;
    return *slot = file;
}

/* Where the durable content of a file is kept. */
static void content_path(char *out, const struct statx *stat) {
    char name[96];
    snprintf(name, sizeof name, "%llu-%lld-%u", (unsigned long long)stat->stx_ino, (long long)stat->stx_btime.tv_sec,
             stat->stx_btime.tv_nsec);
    join(out, files, name);
}

static void copy_range(int from, int to, off_t at, off_t end) {
    static char buffer[1 << 16];
    while (at < end) {
        size_t want = end - at < (off_t)sizeof buffer ? (size_t)(end - at) : sizeof buffer;
        ssize_t got = pread(from, buffer, want, at);
        if (got <= 0) break; /* It was cut meanwhile. */
        if (real_pwrite(to, buffer, got, at) != got) die("writing", files);
        at += got;
    }
}

/* Copies all data of a file, leaving out its holes. */
static void copy_all(int from, int to, off_t size) {
    off_t at = 0;
    while (at < size) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0) break;
        off_t hole = lseek(from, data, SEEK_HOLE);
        if (hole < 0) hole = size;
        copy_range(from, to, data, hole);
        at = hole;
    }
}

/* Makes the content of a file durable: all of it the first time, then what was written since. */
static void sync_file(const char *path, const struct statx *stat, struct file *file) {
    char content[PATH_MAX];
    content_path(content, stat);
    int to = open(content, O_WRONLY | O_CLOEXEC);
    int is_new = to < 0;
    if (is_new) to = open(content, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int from = open(path, O_RDONLY | O_CLOEXEC);
    if (to < 0 || from < 0) die("opening", to < 0 ? content : path);
    if (ftruncate(to, stat->stx_size) < 0) die("cutting", content);
    if (is_new || !file)
        copy_all(from, to, stat->stx_size);
    else
        for (size_t n = 0; n < file->count; n++) copy_range(from, to, file->dirty[n].from, file->dirty[n].to);
    if (file) file->count = 0;
    close(from);
    close(to);
}

/* ---- folders ---- */

static void remove_all(const char *path) {
    struct stat stat;
    if (lstat(path, &stat) < 0) return;
    if (S_ISDIR(stat.st_mode)) {
        DIR *folder = opendir(path);
        for (struct dirent *entry; folder && (entry = readdir(folder));) {
            char below[PATH_MAX];
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
            join(below, path, entry->d_name);
            remove_all(below);
        }
        if (folder) closedir(folder);
        if (rmdir(path) < 0) die("removing", path);
    } else if (unlink(path) < 0) {
        die("removing", path);
    }
}

/* Gives a file its name in the shadow. A name that stands for another file passes over at once. */
static void link_name(const char *name, const struct statx *stat) {
    char content[PATH_MAX], aside[PATH_MAX];
    struct stat there, wanted;
    content_path(content, stat);
    int made = open(content, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (made < 0) die("making", content);
    close(made);
    if (lstat(content, &wanted) < 0) die("finding", content);
    if (lstat(name, &there) == 0 && there.st_ino == wanted.st_ino) return;
    join(aside, files, "aside");
    unlink(aside);
    if (link(content, aside) < 0 || rename(aside, name) < 0) die("naming", name);
}

/* Where the durable names of a folder without a durable name of its own are kept. */
static void names_path(char *out, const char *folder) {
    char content[PATH_MAX];
    struct statx stat;
    if (identify(AT_FDCWD, folder, AT_SYMLINK_NOFOLLOW, &stat) < 0) die("reading", folder);
    content_path(content, &stat);
    if (snprintf(out, PATH_MAX, "%s-names", content) >= PATH_MAX) die("path too long", folder);
}

/* Where a folder of the root is in the shadow, or aside as long as it has no durable name. */
static void locate(char *out, const char *below) {
    char rest[PATH_MAX], real[PATH_MAX], deeper[PATH_MAX];
    struct stat there;
    snprintf(rest, sizeof rest, "%s", below);
    snprintf(out, PATH_MAX, "%s", shadow);
    snprintf(real, sizeof real, "%s", root);
    for (char *saved, *part = strtok_r(rest, "/", &saved); part; part = strtok_r(NULL, "/", &saved)) {
        join(deeper, real, part);
        strcpy(real, deeper);
        join(deeper, out, part);
        if (lstat(deeper, &there) < 0) names_path(deeper, real);
        if (mkdir(deeper, 0700) < 0 && errno != EEXIST) die("making", deeper);
        strcpy(out, deeper);
    }
}

/* Gives a folder its name in the shadow, with the names in it that are durable already. */
static void name_folder(const char *name, const char *source) {
    char aside[PATH_MAX];
    struct stat there;
    if (lstat(name, &there) == 0) return;
    names_path(aside, source);
    if (rename(aside, name) < 0 && (errno != ENOENT || mkdir(name, 0700) < 0)) die("naming", name);
}

/* Makes the names in a folder durable. What is new comes before what is gone goes. */
static void sync_names(const char *below) {
    char from[PATH_MAX], to[PATH_MAX];
    struct stat there;
    join(from, root, below);
    locate(to, below);
    DIR *folder = opendir(from);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char source[PATH_MAX], name[PATH_MAX];
        struct statx stat;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        join(source, from, entry->d_name);
        join(name, to, entry->d_name);
        /* It may be gone by now; then it is as if it had never been. */
        if (identify(AT_FDCWD, source, AT_SYMLINK_NOFOLLOW, &stat) < 0) continue;
        if (S_ISDIR(stat.stx_mode)) name_folder(name, source);
        if (S_ISREG(stat.stx_mode)) link_name(name, &stat);
    }
    closedir(folder);
    folder = opendir(to);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char source[PATH_MAX], name[PATH_MAX];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        join(source, from, entry->d_name);
        join(name, to, entry->d_name);
        if (lstat(source, &there) < 0 && errno == ENOENT) remove_all(name);
    }
    if (folder) closedir(folder);
}

/* Takes everything that is there at the start for durable. */
static void adopt(const char *below) {
    char from[PATH_MAX];
    join(from, root, below);
    DIR *folder = opendir(from);
    if (!folder) die("opening", from);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char source[PATH_MAX], inner[PATH_MAX];
        struct statx stat;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        join(source, from, entry->d_name);
        if (identify(AT_FDCWD, source, AT_SYMLINK_NOFOLLOW, &stat) < 0) die("reading", source);
        if (S_ISREG(stat.stx_mode)) sync_file(source, &stat, NULL);
        if (!S_ISDIR(stat.stx_mode)) continue;
        join(inner, *below ? below : entry->d_name, *below ? entry->d_name : "");
        char made[PATH_MAX];
        join(made, shadow, inner);
        if (mkdir(made, 0700) < 0) die("making", made);
        adopt(inner);
    }
    closedir(folder);
    sync_names(below);
}

/* ---- what is interposed ---- */

/* Others may write before our own start. */
static void find_real(void) {
    if (real_fdatasync) return;
    real_write = dlsym(RTLD_NEXT, "write");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_pwritev = dlsym(RTLD_NEXT, "pwritev64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
}

__attribute__((constructor)) static void start(void) {
    find_real();
    const char *from = getenv("TENURE_POWER_ROOT"), *to = getenv("TENURE_POWER_SHADOW");
    if (!from || !to) return;
    if (!realpath(from, root)) die("finding", from);
    if (snprintf(files, sizeof files, "%s.files", to) >= (int)sizeof files) die("path too long", to);
    struct stat there;
    if (lstat(to, &there) < 0) {
        snprintf(shadow, sizeof shadow, "%s.new", to);
        remove_all(shadow);
        remove_all(files);
        if (mkdir(shadow, 0700) < 0 || mkdir(files, 0700) < 0) die("making", shadow);
        adopt("");
        if (rename(shadow, to) < 0) die("naming", to);
    }
    snprintf(shadow, sizeof shadow, "%s", to);
    const char *time = getenv("TENURE_POWER_SYNC_US");
    sync_us = time ? strtoul(time, NULL, 10) : 0;
    /* Not for the program, which may take them for settings of its own, nor for its children: what they write
       is not known here, so the shadow must be kept by one process. */
    unsetenv("TENURE_POWER_ROOT");
    unsetenv("TENURE_POWER_SHADOW");
    unsetenv("TENURE_POWER_SYNC_US");
    active = 1;
}

/* Notes that bytes of a file are not what is durable any more. */
static void note(int fd, off_t from, off_t to) {
    struct statx stat;
    int error = errno;
    if (to > from && identify(fd, "", AT_EMPTY_PATH, &stat) == 0 && S_ISREG(stat.stx_mode)) {
        pthread_mutex_lock(&lock);
        struct file *file = find(fd, &stat);
        if (file->is_inside) {
            struct range *last = file->count ? &file->dirty[file->count - 1] : NULL;
            if (last && last->to == from) {
                last->to = to;
            } else {
                if (file->count == file->room) {
                    file->room = file->room ? 2 * file->room : 8;
                    file->dirty = realloc(file->dirty, file->room * sizeof *file->dirty);
                }
                file->dirty[file->count++] = (struct range){ from, to };
            }
        }
        pthread_mutex_unlock(&lock);
    }
    errno = error;
}

/* After a write at the descriptor's own place, which it has moved. */
static void note_moved(int fd, ssize_t wrote) {
    if (!active || wrote <= 0) return;
    int error = errno;
    off_t end = lseek(fd, 0, SEEK_CUR);
    errno = error;
    if (end >= wrote) note(fd, end - wrote, end);
}

static int make_durable(int fd) {
    struct statx stat;
    char path[PATH_MAX];
    if (!active) return 0;
    const char *below = inside(fd, path);
    if (!below) return 0;
    if (sync_us) usleep(sync_us);
    pthread_mutex_lock(&lock);
    /* Only now: with a length from before, a sync that came in between would be cut off again. */
    if (identify(fd, "", AT_EMPTY_PATH, &stat) < 0) die("reading", path);
    if (S_ISDIR(stat.stx_mode)) {
        sync_names(below);
    } else if (S_ISREG(stat.stx_mode)) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        sync_file(link, &stat, find(fd, &stat));
    }
    pthread_mutex_unlock(&lock);
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    find_real();
    ssize_t wrote = real_write(fd, bytes, count);
    note_moved(fd, wrote);
    return wrote;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    find_real();
    ssize_t wrote = real_writev(fd, parts, count);
    note_moved(fd, wrote);
    return wrote;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) {
    find_real();
    ssize_t wrote = real_pwrite(fd, bytes, count, at);
    if (active && wrote > 0) note(fd, at, at + wrote);
    return wrote;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return pwrite64(fd, bytes, count, at); }

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) {
    find_real();
    ssize_t wrote = real_pwritev(fd, parts, count, at);
    if (active && wrote > 0) note(fd, at, at + wrote);
    return wrote;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return pwritev64(fd, parts, count, at); }

int fsync(int fd) {
    find_real();
    return make_durable(fd) ? 0 : real_fsync(fd);
}

int fdatasync(int fd) {
    find_real();
    return make_durable(fd) ? 0 : real_fdatasync(fd);
}
