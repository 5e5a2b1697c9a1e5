/* A server of known timing: the truth that load generators are measured against.
 *
 *   cc -O2 -o truth_server truth_server.c -lm
 *   ./truth_server PORT TTFT_MS TOKENS INTERVAL_MS TOKENS_PER_CHUNK
 *
 * Every POST to a completion path is answered with TOKENS tokens: the first alone, TTFT_MS after the last byte of the
 * request was read, then TOKENS_PER_CHUNK tokens in one event every INTERVAL_MS, on an absolute schedule that does not
 * drift. Events have the form of SGLang's /v1/chat/completions (with `usage` in every event when the request asks for
 * continuous_usage_stats), of /v1/completions, or of /generate.
 *
 * The server measures itself: for every event the time between the schedule and the return of write(). GET /truth
 * gives these numbers as JSON, GET /reset sets them to zero. What a client reports beyond them is the client's error.
 *
 * One thread, epoll, a heap of due times. Single-purpose: it reads only what load generators send.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST_CONNECTIONS 8192
#define LONGEST_REQUEST (1 << 20)
#define SPIN_NS 400000
#define LATENESS_BINS 2000 /* of 10 microseconds; the last one holds the rest */

enum form { CHAT, COMPLETION, GENERATE };

struct connection {
    int fd;
    int heap_at; /* place in the heap, -1 when no event is due */
    enum form form;
    int usage, continuous;
    int sent;        /* tokens sent of the current answer */
    int64_t start;   /* ns: the request's last byte was read */
    int64_t due;     /* ns: the next event */
    char *in;        /* what has been read and not used */
    int in_length;
};

static int64_t ttft_ns, interval_ns;
static int total_tokens, chunk_tokens;
static struct connection connections[MOST_CONNECTIONS]; /* by descriptor */
static struct connection *heap[MOST_CONNECTIONS];
static int heap_size, epoll_fd, open_now;

static struct {
    long requests, events, tokens, failed_writes;
    long lateness[LATENESS_BINS];
    double lateness_sum_us, lateness_max_us;
    int most_open, in_flight, most_in_flight;
    int64_t first_request, last_event;
} truth;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* --- heap of due events ------------------------------------------------------------------------------------------- */

static void heap_put(int at, struct connection *c) {
    heap[at] = c;
    c->heap_at = at;
}

static void heap_sift(int at) {
    struct connection *c = heap[at];
    while (at > 0 && heap[(at - 1) / 2]->due > c->due) {
        heap_put(at, heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        int child = 2 * at + 1;
        if (child >= heap_size) break;
        if (child + 1 < heap_size && heap[child + 1]->due < heap[child]->due) child++;
        if (heap[child]->due >= c->due) break;
        heap_put(at, heap[child]);
        at = child;
    }
    heap_put(at, c);
}

static void heap_add(struct connection *c) {
    heap_put(heap_size++, c);
    heap_sift(c->heap_at);
}

static void heap_remove(struct connection *c) {
    int at = c->heap_at;
    if (at < 0) return;
    c->heap_at = -1;
    if (at == --heap_size) return;
    heap_put(at, heap[heap_size]);
    heap_sift(at);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void close_connection(struct connection *c) {
    if (c->heap_at >= 0) truth.in_flight--;
    heap_remove(c);
    close(c->fd);
    free(c->in);
    memset(c, 0, sizeof *c);
    c->heap_at = -1;
    open_now--;
}

static int send_all(struct connection *c, const char *data, int length) {
    if (send(c->fd, data, length, MSG_NOSIGNAL) == length) return 1;
    truth.failed_writes++; /* the client does not read: its buffer is full, or it has gone */
    close_connection(c);
    return 0;
}

static void reply_json(struct connection *c, const char *body) {
    char text[65536];
    int length = snprintf(text, sizeof text,
                          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                          strlen(body), body);
    send_all(c, text, length);
}

/* Appends one SSE event as one HTTP chunk. */
static int add_event(char *to, const char *data) {
    return sprintf(to, "%zx\r\ndata: %s\n\n\r\n", strlen(data) + 8, data);
}

static const char WORD[] = " and";

static int add_tokens(struct connection *c, char *to, int count) {
    static char data[65536];
    char usage[200] = "null", text[1024] = "";
    int sent = c->sent + count, last = sent >= total_tokens;
    if (c->form == GENERATE) {
        int at = sprintf(data, "{\"text\": \"");
        for (int n = 0; n < sent; n++) at += sprintf(data + at, "%s", WORD);
        sprintf(data + at,
                "\", \"meta_info\": {\"id\": \"%d\", \"finish_reason\": %s, \"prompt_tokens\": 16, "
                "\"completion_tokens\": %d, \"cached_tokens\": 0}}",
                c->fd, last ? "{\"type\": \"length\", \"length\": 0}" : "null", sent);
        return add_event(to, data);
    }
    for (int n = 0; n < count; n++) strcat(text, WORD);
    if (c->continuous)
        sprintf(usage,
                "{\"prompt_tokens\":16,\"total_tokens\":%d,\"completion_tokens\":%d,\"prompt_tokens_details\":null,"
                "\"reasoning_tokens\":0}",
                16 + sent, sent);
    if (c->form == COMPLETION)
        sprintf(data,
                "{\"id\":\"cmpl-%d\",\"object\":\"text_completion\",\"created\":1764400000,\"model\":\"truth\","
                "\"choices\":[{\"index\":0,\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":%s}],\"usage\":%s}",
                c->fd, text, last ? "\"length\"" : "null", usage);
    else
        sprintf(data,
                "{\"id\":\"chatcmpl-%08d\",\"object\":\"chat.completion.chunk\",\"created\":1764400000,\"model\":\"truth\","
                "\"choices\":[{\"index\":0,\"delta\":{\"role\":null,\"content\":\"%s\",\"reasoning_content\":null,"
                "\"tool_calls\":null},\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}],\"usage\":%s}",
                c->fd, text, usage);
    return add_event(to, data);
}

static int add_end(struct connection *c, char *to) {
    char data[512];
    int at = 0;
    if (c->form == CHAT)
        at += add_event(to + at,
                        "{\"id\":\"chatcmpl\",\"object\":\"chat.completion.chunk\",\"created\":1764400000,\"model\":\"truth\","
                        "\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}");
    if (c->form != GENERATE && c->usage) {
        sprintf(data,
                "{\"id\":\"end\",\"object\":\"chat.completion.chunk\",\"created\":1764400000,\"model\":\"truth\",\"choices\":[],"
                "\"usage\":{\"prompt_tokens\":16,\"total_tokens\":%d,\"completion_tokens\":%d}}",
                16 + total_tokens, total_tokens);
        at += add_event(to + at, data);
    }
    at += add_event(to + at, "[DONE]");
    return at + sprintf(to + at, "0\r\n\r\n");
}

static void note_lateness(int64_t due) {
    double late_us = (now_ns() - due) / 1e3;
    int bin = late_us < 0 ? 0 : (int)(late_us / 10);
    truth.lateness[bin < LATENESS_BINS ? bin : LATENESS_BINS - 1]++;
    truth.lateness_sum_us += late_us;
    if (late_us > truth.lateness_max_us) truth.lateness_max_us = late_us;
}

static void send_due(struct connection *c) {
    static char out[131072];
    int count = c->sent == 0 ? 1 : chunk_tokens, at;
    if (count > total_tokens - c->sent) count = total_tokens - c->sent;
    at = add_tokens(c, out, count);
    c->sent += count;
    if (c->sent >= total_tokens) at += add_end(c, out + at);
    int64_t due = c->due;
    if (c->sent >= total_tokens) {
        heap_remove(c);
        truth.in_flight--;
    } else {
        c->due += interval_ns;
        heap_sift(c->heap_at);
    }
    if (!send_all(c, out, at)) return;
    note_lateness(due);
    truth.events++;
    truth.tokens += count;
    truth.last_event = due;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static double lateness_quantile_us(double q) {
    long seen = 0;
    for (int bin = 0; bin < LATENESS_BINS; bin++)
        if ((seen += truth.lateness[bin]) >= q * truth.events) return (bin + 1) * 10.0;
    return 0;
}

static void reply_truth(struct connection *c) {
    char body[2048];
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu_s = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    snprintf(body, sizeof body,
             "{\"requests\": %ld, \"events\": %ld, \"tokens\": %ld, \"failed_writes\": %ld, \"most_open\": %d, "
             "\"most_in_flight\": %d, \"lateness_us\": {\"mean\": %.2f, \"p50\": %.0f, \"p99\": %.0f, \"max\": %.0f}, "
             "\"span_s\": %.6f, \"cpu_s\": %.3f}",
             truth.requests, truth.events, truth.tokens, truth.failed_writes, truth.most_open, truth.most_in_flight,
             truth.events ? truth.lateness_sum_us / truth.events : 0.0, lateness_quantile_us(0.5),
             lateness_quantile_us(0.99), truth.lateness_max_us, (truth.last_event - truth.first_request) / 1e9, cpu_s);
    reply_json(c, body);
}

static void begin_answer(struct connection *c, const char *path, const char *body) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    c->start = now_ns();
    c->form = strstr(path, "chat") ? CHAT : strstr(path, "generate") ? GENERATE : COMPLETION;
    c->usage = strstr(body, "include_usage") != NULL;
    c->continuous = strstr(body, "continuous_usage_stats") != NULL;
    c->sent = 0;
    c->due = c->start + ttft_ns;
    if (truth.requests++ == 0) truth.first_request = c->start;
    if (++truth.in_flight > truth.most_in_flight) truth.most_in_flight = truth.in_flight;
    heap_add(c);
    send_all(c, head, sizeof head - 1);
}

static void answer(struct connection *c, const char *head, const char *body) {
    char path[256] = "";
    sscanf(head, "%*s %255s", path);
    if (strncmp(head, "POST", 4) == 0 && (strstr(path, "completions") || strstr(path, "/generate"))) {
        begin_answer(c, path, body);
    } else if (strcmp(path, "/truth") == 0) {
        reply_truth(c);
    } else if (strcmp(path, "/reset") == 0) {
        int in_flight = truth.in_flight;
        memset(&truth, 0, sizeof truth);
        truth.in_flight = in_flight;
        truth.most_open = open_now;
        reply_json(c, "{}");
    } else if (strstr(path, "/v1/models")) {
        reply_json(c, "{\"object\":\"list\",\"data\":[{\"id\":\"truth\",\"object\":\"model\",\"created\":1,\"owned_by\":\"t\"}]}");
    } else if (strstr(path, "model_info")) {
        reply_json(c, "{\"model_path\":\"truth\",\"tokenizer_path\":\"truth\",\"is_generation\":true}");
    } else if (strstr(path, "server_info")) {
        reply_json(c, "{\"model_path\":\"truth\",\"version\":\"truth\",\"internal_states\":[{}]}");
    } else {
        reply_json(c, "{}");
    }
}

/* Returns whether a whole request was taken from the connection's buffer. */
static int take_request(struct connection *c) {
    char *end = memmem(c->in, c->in_length, "\r\n\r\n", 4);
    if (!end) return 0;
    *end = 0;
    char *field = strcasestr(c->in, "\r\ncontent-length:");
    long length = field ? atol(field + 17) : 0;
    char *body = end + 4;
    if (c->in_length - (body - c->in) < length) {
        *end = '\r';
        return 0;
    }
    if (strcasestr(c->in, "expect: 100-continue")) send_all(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    char kept = body[length];
    body[length] = 0;
    int fd = c->fd;
    answer(c, c->in, body);
    if (connections[fd].in == NULL) return 0; /* closed while answering */
    body[length] = kept;
    c->in_length -= body + length - c->in;
    memmove(c->in, body + length, c->in_length);
    return 1;
}

static void read_from(struct connection *c) {
    ssize_t got = recv(c->fd, c->in + c->in_length, LONGEST_REQUEST - c->in_length, 0);
    if (got <= 0) {
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        close_connection(c);
        return;
    }
    c->in_length += got;
    while (c->heap_at < 0 && take_request(c)) {
    }
}

static void accept_all(int listener) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        if (fd >= MOST_CONNECTIONS) {
            close(fd);
            continue;
        }
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct connection *c = &connections[fd];
        memset(c, 0, sizeof *c);
        c->fd = fd;
        c->heap_at = -1;
        c->in = malloc(LONGEST_REQUEST + 1); /* pages are taken only when touched */
        if (++open_now > truth.most_open) truth.most_open = open_now;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
    }
}

int main(int count, char **words) {
    if (count != 6) {
        fprintf(stderr, "usage: %s PORT TTFT_MS TOKENS INTERVAL_MS TOKENS_PER_CHUNK\n", words[0]);
        return 2;
    }
    ttft_ns = llround(atof(words[2]) * 1e6);
    total_tokens = atoi(words[3]);
    interval_ns = llround(atof(words[4]) * 1e6);
    chunk_tokens = atoi(words[5]);
    if (total_tokens < 1 || total_tokens > 8000 || chunk_tokens < 1 || chunk_tokens > 64 || interval_ns <= 0) {
        fprintf(stderr, "TOKENS must be 1..8000, TOKENS_PER_CHUNK 1..64, INTERVAL_MS > 0\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files = {MOST_CONNECTIONS, MOST_CONNECTIONS};
    if (setrlimit(RLIMIT_NOFILE, &files)) getrlimit(RLIMIT_NOFILE, &files);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener, (void *)&address, size) || listen(listener, 4096)) {
        perror("truth_server");
        return 1;
    }
    getsockname(listener, (void *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, ready[256];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        struct timespec wait, *limit = NULL;
        if (heap_size) {
            int64_t left = heap[0]->due - now_ns();
            if (left < SPIN_NS) left = 0; /* sleep ends late: the last stretch is waited awake */
            wait = (struct timespec){left / 1000000000, left % 1000000000};
            limit = &wait;
        }
        int number = epoll_pwait2(epoll_fd, ready, 256, limit, NULL);
        int64_t now = now_ns();
        while (heap_size && heap[0]->due <= now) send_due(heap[0]);
        for (int n = 0; n < number; n++) {
            int fd = ready[n].data.fd;
            if (fd == listener)
                accept_all(listener);
            else if (connections[fd].in)
                read_from(&connections[fd]);
        }
    }
}
