/* Asks over many connections at once, and counts: the benchmark's one client of all servers.
 *
 *     volley varlink|redis|http PLACE CONNECTIONS PIPELINE SECONDS FRAMES
 *
 * PLACE is the path of a Unix socket, or a TCP port of loopback.
 * FRAMES is a file of calls made beforehand, each behind its length (four bytes, the lowest
 * first). They are sent in turn, round and round, over all connections together. Each connection
 * sends PIPELINE of them in one write and, when all are answered, the next as many, the way
 * redis-benchmark does it. Replies are told apart by their protocol: Varlink's end with a NUL,
 * Redis' begin with their length, and HTTP's say it in a header. A tenth of the time goes by before
 * anything counts.
 *
 * Printed is one line of JSON: calls per second, the median and the 99th in a hundred of the times
 * from a call to its answer, in microseconds, and how many of the answers were errors (Varlink) or
 * nil (Redis); HTTP's must all be 200. Whatever else goes wrong ends it with a message and status 1.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* How long past its time a run goes on in which nothing was answered. */
#define PATIENCE_NS 10000000000u

enum {
    READ_BYTES = 1 << 18,
    MOST_EVENTS = 256,
    CLASSES = 2000000, /* of 50 ns: the last holds what took longer than 0.1 s */
    CLASS_NANOSECONDS = 50,
};

struct frame {
    const char *bytes;
    size_t size;
};

struct connection {
    int descriptor;
    int awaited;       /* replies that are still to come */
    uint64_t sent_at;
    size_t skip;       /* Redis: what is left of a value and its line end; HTTP: of a body */
    char line[1024];   /* Redis, HTTP: the head of a reply that has not come whole */
    size_t line_size;
    int midway;        /* Varlink: the first byte of a reply has been seen already */
};

static struct frame *frames;
static size_t frame_count, next_frame;
static uint32_t classes[CLASSES];
static uint64_t counted, failed;
static int counting, pipeline;
static char *outgoing;
static char incoming[READ_BYTES];

static void __attribute__((noreturn, format(printf, 1, 2))) give_up(const char *what, ...)
{
    va_list rest;
    va_start(rest, what);
    fputs("volley: ", stderr);
    vfprintf(stderr, what, rest);
    fputc('\n', stderr);
    va_end(rest);
    exit(1);
}

static uint64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static size_t read_frames(const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t largest = 0, room = 0;
    unsigned char head[4];

    if (!file)
        give_up("%s: %s", path, strerror(errno));
    while (fread(head, 1, sizeof head, file) == sizeof head) {
        size_t size = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
        char *bytes = malloc(size);
        if (frame_count == room) {
            room = room ? 2 * room : 1024;
            frames = realloc(frames, room * sizeof *frames);
        }
        if (!bytes || !frames || fread(bytes, 1, size, file) != size)
            give_up("%s: a frame is not whole, or there is no memory for it", path);
        frames[frame_count++] = (struct frame){bytes, size};
        if (size > largest)
            largest = size;
    }
    fclose(file);
    if (!frame_count)
        give_up("%s: there are no frames in it", path);
    return largest;
}

static int connected_to_port(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (descriptor < 0 || connect(descriptor, (struct sockaddr *)&address, sizeof address) < 0 ||
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0)
        give_up("port %u: %s", port, strerror(errno));
    return descriptor;
}

static int connected(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof address.sun_path)
        give_up("%s: too long for a socket's path", path);
    strcpy(address.sun_path, path);
    if (descriptor < 0 || connect(descriptor, (struct sockaddr *)&address, sizeof address) < 0)
        give_up("%s: %s", path, strerror(errno));
    return descriptor;
}

/* Send the next calls. What is sent is small beside a socket's buffer, so this never waits long. */
static void fire(struct connection *to)
{
    size_t size = 0, done = 0;

    for (int i = 0; i < pipeline; i++) {
        const struct frame *frame = &frames[next_frame];
        memcpy(outgoing + size, frame->bytes, frame->size);
        size += frame->size;
        if (++next_frame == frame_count)
            next_frame = 0;
    }
    to->awaited = pipeline;
    to->sent_at = now();
    while (done < size) {
        ssize_t taken = send(to->descriptor, outgoing + done, size - done, MSG_NOSIGNAL);
        if (taken < 0)
            give_up("sending: %s", strerror(errno));
        done += (size_t)taken;
    }
}

static int varlink_replies(struct connection *from, const char *at, const char *end)
{
    int replies = 0;

    while (at < end) {
        const char *nul;
        if (!from->midway && end - at > 2 && at[2] == 'e')
            failed += (uint64_t)counting;
        nul = memchr(at, 0, (size_t)(end - at));
        from->midway = !nul;
        if (!nul)
            break;
        replies++;
        at = nul + 1;
    }
    return replies;
}

/* Returns how many of these bytes belong to the value that is being skipped. */
static size_t step_over(struct connection *from, size_t arrived)
{
    size_t part = from->skip < arrived ? from->skip : arrived;

    from->skip -= part;
    return part;
}

static int redis_replies(struct connection *from, const char *at, const char *end)
{
    int replies = 0;

    while (at < end) {
        if (from->skip) {
            at += step_over(from, (size_t)(end - at));
            replies += !from->skip;
            continue;
        }
        if (from->line_size == sizeof from->line - 1)
            give_up("redis answered what is no value");
        from->line[from->line_size++] = *at;
        if (*at++ != '\n')
            continue;
        from->line[from->line_size] = 0;
        if (from->line[0] != '$')
            give_up("redis answered %s", from->line);
        from->line_size = 0;
        if (from->line[1] == '-') {
            failed += (uint64_t)counting;
            replies++;
        } else {
            from->skip = strtoul(from->line + 1, NULL, 10) + 2;
        }
    }
    return replies;
}

static int http_replies(struct connection *from, const char *at, const char *end)
{
    int replies = 0;

    while (at < end) {
        const char *length;
        if (from->skip) {
            at += step_over(from, (size_t)(end - at));
            replies += !from->skip;
            continue;
        }
        if (from->line_size == sizeof from->line - 1)
            give_up("the server's answer has a long head");
        from->line[from->line_size++] = *at++;
        from->line[from->line_size] = 0;
        if (from->line_size < 4 || strcmp(from->line + from->line_size - 4, "\r\n\r\n"))
            continue;
        length = strcasestr(from->line, "\r\nContent-Length: ");
        if (strncmp(from->line, "HTTP/1.1 200 ", 13) || !length)
            give_up("the server answered %s", from->line);
        from->skip = strtoul(length + 18, NULL, 10);
        from->line_size = 0;
        replies += !from->skip;
    }
    return replies;
}

static void count(const struct connection *from, int replies)
{
    uint64_t class = (now() - from->sent_at) / CLASS_NANOSECONDS;

    if (counting) {
        classes[class < CLASSES ? class : CLASSES - 1] += (uint32_t)replies;
        counted += (uint64_t)replies;
    }
}

static double percentile(unsigned part)
{
    uint64_t wanted = counted * part / 100, seen = 0;
    size_t class = 0;

    while (class < CLASSES - 1 && (seen += classes[class]) <= wanted)
        class++;
    return (double)class * CLASS_NANOSECONDS / 1000;
}

int main(int count_of_arguments, char **arguments)
{
    int (*replies)(struct connection *, const char *, const char *);
    struct connection *connections;
    struct epoll_event events[MOST_EVENTS];
    uint64_t warm, window, began = 0, until = 0;
    int connection_count, poll;

    if (count_of_arguments != 7)
        give_up("PROTOCOL SOCKET CONNECTIONS PIPELINE SECONDS FRAMES");
    replies = !strcmp(arguments[1], "varlink") ? varlink_replies
              : !strcmp(arguments[1], "redis") ? redis_replies
                                               : http_replies;
    connection_count = atoi(arguments[3]);
    pipeline = atoi(arguments[4]);
    if (connection_count < 1 || pipeline < 1)
        give_up("there is at least one connection and one call on each");
    outgoing = malloc(read_frames(arguments[6]) * (size_t)pipeline);
    connections = calloc((size_t)connection_count, sizeof *connections);
    poll = epoll_create1(EPOLL_CLOEXEC);
    if (!outgoing || !connections || poll < 0)
        give_up("there is no memory");
    for (int i = 0; i < connection_count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        connections[i].descriptor = strchr(arguments[2], '/')
                                        ? connected(arguments[2])
                                        : connected_to_port((unsigned)atoi(arguments[2]));
        if (epoll_ctl(poll, EPOLL_CTL_ADD, connections[i].descriptor, &event) < 0)
            give_up("%s", strerror(errno));
    }
    warm = now() + (uint64_t)(atof(arguments[5]) * 1e8);
    window = (uint64_t)(atof(arguments[5]) * 9e8);
    for (int i = 0; i < connection_count; i++)
        fire(&connections[i]);
    for (;;) {
        int ready = epoll_wait(poll, events, MOST_EVENTS, 1000);
        uint64_t at = now();
        if (!counting && at >= warm) {
            counting = 1;
            began = at;
            until = at + window;
        }
        /* A machine that stood still for all that time has seen nothing, and goes on. */
        if (counting && at > until && counted) {
            until = at;
            break;
        }
        if (counting && at >= until + PATIENCE_NS)
            give_up("nothing is answered");
        for (int i = 0; i < ready; i++) {
            struct connection *from = events[i].data.ptr;
            ssize_t size = recv(from->descriptor, incoming, sizeof incoming, MSG_DONTWAIT);
            int got;
            if (size <= 0)
                give_up("the connection ended: %s", size ? strerror(errno) : "its peer left");
            got = replies(from, incoming, incoming + size);
            if (got) {
                count(from, got);
                from->awaited -= got;
            }
            if (!from->awaited)
                fire(from);
        }
    }
    printf("{\"calls_per_second\": %.1f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"calls\": %llu, "
           "\"failed\": %llu}\n",
           (double)counted * 1e9 / (double)(until - began), percentile(50), percentile(99),
           (unsigned long long)counted, (unsigned long long)failed);
    return 0;
}
