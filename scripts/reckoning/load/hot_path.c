/* The hot path of the load client: what is done for every token while it arrives, and for every event when a response is
 * taken apart. `hot_path.py` compiles and loads it; `ear.py`, `tape.py` and `events.py` do the same in Python where it cannot
 * be compiled, and say what it means. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#define TIMESTAMPNS 35 /* SO_TIMESTAMPNS and SCM_TIMESTAMPNS, asm-generic/socket.h */
#define AT_ONCE 1024
#define TAIL 8
#define ARMED (EPOLLIN | EPOLLRDHUP | EPOLLET)

static const uint8_t LAST_CHUNK[] = {'\r', '\n', '0', '\r', '\n', '\r', '\n'};

enum sign_kind { CAME = 1, ENDED = 2, STRAYED = 3, LOST = 4 };

struct stream { /* ear.STREAM, by the number of its socket */
    int64_t last_read_ns;
    uint8_t tail[TAIL]; /* the last bytes of the running response */
    int32_t exchange;   /* -1: no request in flight */
    int32_t framed;
};

struct row { /* tape.ROW: one read */
    int64_t position, read_ns, kernel_ns;
    int32_t exchange, size;
};

struct sign { /* ear.SIGN: what a read calls for beside keeping it */
    int32_t number, kind;
    int32_t exchange;
    int32_t size;  /* bytes; of LOST the errno, 0 for an orderly end */
    int64_t begin; /* where they stand in the block */
};

struct block { /* tape.Block */
    uint8_t *data;
    struct row *rows;
    int64_t data_length, rows_length, used, count, position;
};

struct ear { /* ear._State */
    struct stream *streams;
    struct sign *signs;  /* room for AT_ONCE */
    int64_t signs_count; /* of the last round */
    int64_t most_read;   /* bytes */
    int64_t reads;       /* so far */
    int32_t epoll;
    int32_t told; /* whether the last read came with the kernel's time */
};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t room_in(const struct ear *ear, const struct block *block) {
    int64_t reads = (block->data_length - block->used) / ear->most_read, rows = block->rows_length - block->count;
    int64_t room = reads < rows ? reads : rows;
    return room < AT_ONCE ? room : AT_ONCE;
}

/* Read ready sockets once each, as many as the block has room for, and return how many were ready. The sockets are registered
 * edge-triggered: one that may hold more than was read is armed again. */
int hear_round(struct ear *ear, struct block *block) {
    struct epoll_event ready[AT_ONCE];
    int64_t most = room_in(ear, block);
    int found = most > 0 ? epoll_wait(ear->epoll, ready, most, 0) : 0;
    ear->signs_count = 0;
    for (int n = 0; n < found; n++) {
        int32_t number = ready[n].data.fd;
        struct stream *stream = &ear->streams[number];
        uint8_t *data = block->data + block->used;
        union { struct cmsghdr header; uint8_t bytes[CMSG_SPACE(sizeof(struct timespec))]; } note;
        struct iovec place = {data, ear->most_read};
        struct msghdr message = {
            .msg_iov = &place, .msg_iovlen = 1, .msg_control = &note, .msg_controllen = sizeof note};
        ssize_t size = recvmsg(number, &message, MSG_DONTWAIT);
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) continue;
        if (size == ear->most_read || (size < 0 && errno == EINTR) || (size > 0 && ready[n].events & ~EPOLLIN))
            epoll_ctl(ear->epoll, EPOLL_CTL_MOD, number, &(struct epoll_event){ARMED, {.fd = number}});
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) {
            ear->signs[ear->signs_count++] = (struct sign){number, LOST, -1, size < 0 ? errno : 0, 0};
            continue;
        }
        struct timespec received = {0, 0};
        ear->reads++;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        ear->told = header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == TIMESTAMPNS;
        if (ear->told) memcpy(&received, CMSG_DATA(header), sizeof received);
        stream->last_read_ns = now_ns();
        block->rows[block->count] = (struct row){block->position + block->used, stream->last_read_ns,
                                                 received.tv_sec * INT64_C(1000000000) + received.tv_nsec,
                                                 stream->exchange, (int32_t)size};
        if (size >= TAIL) {
            memcpy(stream->tail, data + size - TAIL, TAIL);
        } else {
            memmove(stream->tail, stream->tail + size, TAIL - size);
            memcpy(stream->tail + TAIL - size, data, size);
        }
        enum sign_kind kind = 0;
        if (stream->exchange < 0)
            kind = STRAYED;
        else if (!stream->framed)
            kind = CAME;
        else if (memcmp(stream->tail + TAIL - sizeof LAST_CHUNK, LAST_CHUNK, sizeof LAST_CHUNK) == 0)
            kind = ENDED;
        if (kind) ear->signs[ear->signs_count++] = (struct sign){number, kind, stream->exchange, (int32_t)size, block->used};
        block->used += size;
        block->count++;
    }
    return found;
}

/* Make rounds until there is something for the event loop whose own epoll is `loop`, which watches ours as well: a descriptor
 * that is not ours (returns 1), or a sign, a block that is nearly full, `until_ns` (all return 0). With `pace_ns` bytes are left
 * waiting for so long before they are read. */
int hear_until(struct ear *ear, struct block *block, int loop, int64_t until_ns, int64_t pace_ns, int64_t least_room) {
    struct epoll_event woken[16];
    for (;;) {
        int64_t left_ns = until_ns - now_ns();
        int found = epoll_wait(loop, woken, 16, left_ns > 0 ? (left_ns + 999999) / 1000000 : 0);
        int others = 0;
        ear->signs_count = 0;
        if (found < 0) return 0; /* a signal: for the loop */
        for (int n = 0; n < found; n++) others += woken[n].data.fd != ear->epoll;
        if (others < found) {
            left_ns = until_ns - now_ns();
            if (left_ns > pace_ns) left_ns = pace_ns;
            if (!others && left_ns > 0) nanosleep(&(struct timespec){left_ns / 1000000000, left_ns % 1000000000}, NULL);
            int64_t room;
            do {
                room = room_in(ear, block);
            } while (hear_round(ear, block) == room && !ear->signs_count && room_in(ear, block) >= least_room);
        }
        if (others) return 1;
        if (!found || ear->signs_count || room_in(ear, block) < least_room || now_ns() >= until_ns) return 0;
    }
}

/* Copy the reads of one response, given by address and size, to `out`. */
void gather(const uint8_t *const *addresses, const int64_t *sizes, int64_t reads, uint8_t *out) {
    for (int64_t n = 0; n < reads; n++) {
        memcpy(out, addresses[n], sizes[n]);
        out += sizes[n];
    }
}

static int hex_digit(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* --- what an event says ------------------------------------------------------------------------------------------------
 *
 * One pass over the JSON of an event of /v1/chat/completions. It is `usual` when it is valid and says nothing but: at most one
 * choice, with text in at most one channel, and perhaps why it ended or a usage. Whatever else it is, or may be, is left to
 * `answers._read_event`. */

enum { DEEPEST = 32 };

struct span { const uint8_t *begin, *end; }; /* of a string: what is inside of the quotes; `begin` NULL: there is none */

struct event {
    struct span text, reason;
    int64_t tokens; /* usage.completion_tokens, -1 where there is none */
    int content;    /* whether the text is the answer's own */
    int choice, usage;
};

struct text { const uint8_t *at, *end; };

static void skip_space(struct text *t) {
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\r' || *t->at == '\t')) t->at++;
}

static int take(struct text *t, uint8_t c) {
    skip_space(t);
    if (t->at == t->end || *t->at != c) return 0;
    t->at++;
    return 1;
}

static int continues(const struct text *t, int n) { return t->end - t->at > n && (t->at[n] & 0xc0) == 0x80; }

/* A character of several bytes (RFC 3629), or 0: how many bytes. */
static int wide_character(const struct text *t) {
    uint8_t a = *t->at, b = t->end - t->at > 1 ? t->at[1] : 0;
    if (a >= 0xc2 && a <= 0xdf) return continues(t, 1) ? 2 : 0;
    if (a >= 0xe0 && a <= 0xef)
        return continues(t, 1) && continues(t, 2) && !(a == 0xe0 && b < 0xa0) && !(a == 0xed && b > 0x9f) ? 3 : 0;
    if (a >= 0xf0 && a <= 0xf4)
        return continues(t, 1) && continues(t, 2) && continues(t, 3) && !(a == 0xf0 && b < 0x90) && !(a == 0xf4 && b > 0x8f) ? 4 : 0;
    return 0;
}

/* Where the first byte is that is not plain inside of a string: a quote, a backslash, a control character, not ASCII; or `end`.
 * Eight bytes at a time: a byte of `odd` has its high bit where the byte of `word` is one of these (a carry may set it in later
 * bytes too, never in earlier ones). */
static const uint8_t *after_plain(const uint8_t *at, const uint8_t *end) {
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; end - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
        uint64_t odd = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((word - ones * 0x20) & ~word) | word;
        if (odd & highs) return at + __builtin_ctzll(odd & highs) / 8;
    }
#endif
    while (at < end && *at != '"' && *at != '\\' && *at >= 0x20 && *at < 0x80) at++;
    return at;
}

/* The four digits after `\u`, or -1. */
static int code_unit(struct text *t) {
    int unit = 0;
    if (t->end - t->at < 4) return -1;
    for (int n = 0; n < 4; n++) {
        int digit = hex_digit(*t->at++);
        if (digit < 0) return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

/* What follows `\u`: a character, or the two halves of one. */
static int escaped_character(struct text *t) {
    int unit = code_unit(t);
    if (unit < 0xd800 || unit > 0xdfff) return unit >= 0;
    if (unit > 0xdbff || t->end - t->at < 6 || t->at[0] != '\\' || t->at[1] != 'u') return 0;
    t->at += 2;
    unit = code_unit(t);
    return unit >= 0xdc00 && unit <= 0xdfff;
}

static int string(struct text *t, struct span *inside, int *escaped) {
    if (!take(t, '"')) return 0;
    inside->begin = t->at;
    *escaped = 0;
    for (;;) {
        t->at = after_plain(t->at, t->end);
        if (t->at == t->end || *t->at < 0x20) return 0;
        uint8_t c = *t->at;
        if (c == '"') {
            inside->end = t->at++;
            return 1;
        }
        if (c == '\\') {
            *escaped = 1;
            if (t->end - t->at < 2) return 0;
            c = t->at[1];
            t->at += 2;
            if (c == 'u') {
                if (!escaped_character(t)) return 0;
            } else if (!memchr("\"\\/bfnrt", c, 8)) {
                return 0;
            }
        } else {
            int bytes = wide_character(t);
            if (!bytes) return 0;
            t->at += bytes;
        }
    }
}

static int word(struct text *t, const char *expected, int length) {
    skip_space(t);
    if (t->end - t->at < length || memcmp(t->at, expected, length)) return 0;
    t->at += length;
    return 1;
}

static int null(struct text *t) { return word(t, "null", 4); }

static int digits(struct text *t) {
    const uint8_t *begin = t->at;
    while (t->at < t->end && *t->at >= '0' && *t->at <= '9') t->at++;
    return t->at > begin;
}

static int number(struct text *t) {
    if (t->at < t->end && *t->at == '-') t->at++;
    const uint8_t *begin = t->at;
    if (!digits(t) || (*begin == '0' && t->at - begin > 1)) return 0;
    if (t->at < t->end && *t->at == '.') {
        t->at++;
        if (!digits(t)) return 0;
    }
    if (t->at < t->end && (*t->at | 0x20) == 'e') {
        t->at++;
        if (t->at < t->end && (*t->at == '+' || *t->at == '-')) t->at++;
        if (!digits(t)) return 0;
    }
    return 1;
}

static int whole_number(struct text *t, int64_t *value) {
    skip_space(t);
    const uint8_t *begin = t->at;
    if (!digits(t) || t->at - begin > 15 || (*begin == '0' && t->at - begin > 1)) return 0;
    if (t->at < t->end && (*t->at == '.' || (*t->at | 0x20) == 'e')) return 0;
    *value = 0;
    for (const uint8_t *c = begin; c < t->at; c++) *value = *value * 10 + (*c - '0');
    return 1;
}

static int key(struct text *t, struct span *name) {
    int escaped;
    return string(t, name, &escaped) && !escaped && take(t, ':');
}

static int skip_value(struct text *t, int depth) {
    struct span inside;
    int escaped;
    skip_space(t);
    if (t->at == t->end || depth > DEEPEST) return 0;
    switch (*t->at) {
        case '"': return string(t, &inside, &escaped);
        case 't': return word(t, "true", 4);
        case 'f': return word(t, "false", 5);
        case 'n': return null(t);
        case '[':
            t->at++;
            if (take(t, ']')) return 1;
            do {
                if (!skip_value(t, depth + 1)) return 0;
            } while (take(t, ','));
            return take(t, ']');
        case '{':
            t->at++;
            if (take(t, '}')) return 1;
            do {
                if (!key(t, &inside) || !skip_value(t, depth + 1)) return 0;
            } while (take(t, ','));
            return take(t, '}');
        default: return number(t);
    }
}

static int is(const struct span *name, const char *word) {
    size_t length = strlen(word);
    return (size_t)(name->end - name->begin) == length && !memcmp(name->begin, word, length);
}

/* A watched key must come once. */
static int once(int *seen, int bit) {
    int first = !(*seen & bit);
    *seen |= bit;
    return first;
}

static int string_or_null(struct text *t, struct span *inside) {
    int escaped;
    inside->begin = inside->end = NULL;
    return null(t) || string(t, inside, &escaped);
}

static int delta(struct text *t, struct event *event) {
    struct span name, text;
    int seen = 0;
    if (!take(t, '{')) return 0;
    if (take(t, '}')) return 1;
    do {
        if (!key(t, &name)) return 0;
        int content = is(&name, "content");
        if (content || is(&name, "reasoning_content") || is(&name, "reasoning")) {
            if (!once(&seen, content ? 1 : is(&name, "reasoning") ? 2 : 4) || !string_or_null(t, &text)) return 0;
            if (text.begin == text.end) continue;
            if (event->text.begin) return 0;
            event->text = text;
            event->content = content;
        } else if (is(&name, "tool_calls")) {
            if (!once(&seen, 8) || !(null(t) || (take(t, '[') && take(t, ']')))) return 0;
        } else if (!skip_value(t, 0)) {
            return 0;
        }
    } while (take(t, ','));
    return take(t, '}');
}

static int finish_reason(struct text *t, struct span *reason) {
    int escaped = 0;
    if (null(t)) return 1;
    return string(t, reason, &escaped) && !escaped && reason->end > reason->begin;
}

static int at_most_one_choice(struct text *t, struct event *event) {
    struct span name;
    int seen = 0;
    if (!take(t, '[')) return 0;
    if (take(t, ']')) return 1;
    event->choice = 1;
    if (!take(t, '{')) return 0;
    do {
        if (!key(t, &name)) return 0;
        if (is(&name, "delta")) {
            if (!once(&seen, 1) || !delta(t, event)) return 0;
        } else if (is(&name, "finish_reason")) {
            if (!once(&seen, 2) || !finish_reason(t, &event->reason)) return 0;
        } else if (!skip_value(t, 0)) {
            return 0;
        }
    } while (take(t, ','));
    return (seen & 1) && take(t, '}') && take(t, ']');
}

static int usage(struct text *t, struct event *event) {
    struct span name;
    int seen = 0;
    if (null(t)) return 1;
    if (!take(t, '{')) return 0;
    event->usage = 1;
    if (take(t, '}')) return 1;
    do {
        if (!key(t, &name)) return 0;
        if (is(&name, "completion_tokens")) {
            if (!once(&seen, 1) || !whole_number(t, &event->tokens)) return 0;
        } else if (!skip_value(t, 0)) {
            return 0;
        }
    } while (take(t, ','));
    return take(t, '}');
}

static int usual_event(struct text *t, struct event *event) {
    struct span name;
    int seen = 0;
    if (!take(t, '{')) return 0;
    do {
        if (!key(t, &name)) return 0;
        if (is(&name, "choices")) {
            if (!once(&seen, 1) || !at_most_one_choice(t, event)) return 0;
        } else if (is(&name, "usage")) {
            if (!once(&seen, 2) || !usage(t, event)) return 0;
        } else if (is(&name, "error") || is(&name, "meta_info")) {
            if (!once(&seen, is(&name, "error") ? 4 : 8) || !null(t)) return 0;
        } else if (!skip_value(t, 0)) {
            return 0;
        }
    } while (take(t, ','));
    if (!(seen & 1) || !take(t, '}')) return 0;
    skip_space(t);
    return t->at == t->end;
}

/* --- what a response says ---------------------------------------------------------------------------------------------- */

struct response { /* responses.RESPONSE; begins and ends are places in `raw`, -1 for none */
    int64_t head;   /* bytes of its head; 0: the response is not usual, and nothing else is known of it */
    int64_t chunks; /* in `chunk_ns` and `chunk_counts`, behind those of the responses before */
    int64_t total, with_text, first_content_ns; /* total, first_content_ns: -1 where unknown */
    int64_t done;                               /* whether there was a [DONE] */
    int64_t usage_begin, usage_end;             /* the last event with a usage */
    int64_t reason_begin, reason_end;           /* the last finish_reason */
    int64_t text_end;                           /* in `texts`: all text as one JSON string, behind that of the response before */
};

struct chunks { /* of all responses; `counts` are running token counts, -1 where untold */
    int64_t *times_ns, *counts, used, most;
};

/* Note what an event says, as `answers._note_chunk` does; 0 if it is not usual. */
static int note_event(const uint8_t *raw, struct text t, int64_t at_ns, struct response *response, struct chunks *chunks,
                      uint8_t **text_end) {
    int64_t begin = t.at - raw, end = t.end - raw;
    skip_space(&t);
    if (t.end - t.at == 6 && !memcmp(t.at, "[DONE]", 6)) return response->done = 1;
    struct event event = {.tokens = -1};
    if (!usual_event(&t, &event)) return 0;
    int64_t length = event.text.end - event.text.begin;
    if (event.content && response->first_content_ns < 0) response->first_content_ns = at_ns;
    if (event.usage) response->usage_begin = begin, response->usage_end = end;
    if (event.reason.begin) response->reason_begin = event.reason.begin - raw, response->reason_end = event.reason.end - raw;
    if (length || (event.choice && event.tokens > (response->total < 0 ? 0 : response->total))) {
        if (chunks->used == chunks->most) return 0;
        chunks->times_ns[chunks->used] = at_ns;
        chunks->counts[chunks->used++] = event.tokens;
        response->chunks++;
    }
    if (length) {
        memcpy(*text_end, event.text.begin, length);
        *text_end += length;
        response->with_text++;
    }
    if (event.tokens > response->total) response->total = event.tokens;
    return 1;
}

/* Take one whole response apart: a head, and events of one line, one to a chunk (`events._uniform_events`). 0 if it is anything
 * else. `sizes` and `stamps` are of its reads; an event has the time of the read that brought its line feed. */
static int take_apart(const uint8_t *raw, int64_t begin, int64_t end, const int64_t *sizes, const int64_t *stamps,
                      struct response *response, struct chunks *chunks, uint8_t **text_end) {
    const uint8_t *body = memmem(raw + begin, end - begin, "\r\n\r\n", 4);
    if (!body) return 0;
    int64_t at = body + 4 - raw, read = 0, read_end = begin + sizes[0];
    int64_t head = at - begin;
    for (;;) {
        int64_t size = 0, digits = 0;
        for (int digit; at < end && digits < 8 && (digit = hex_digit(raw[at])) >= 0; at++, digits++) size = size * 16 + digit;
        if (!digits || end - at < 4 || raw[at] != '\r' || raw[at + 1] != '\n') return 0;
        at += 2;
        if (!size) break;
        if (end - at < size + 2 || size < 8 || memcmp(raw + at, "data: ", 6)) return 0;
        int64_t line_feed = at + size - 2;
        if (memchr(raw + at + 6, '\n', size - 6) != raw + line_feed || memcmp(raw + line_feed, "\n\n\r\n", 4)) return 0;
        while (read_end <= line_feed) read_end += sizes[++read];
        if (!note_event(raw, (struct text){raw + at + 6, raw + line_feed}, stamps[read], response, chunks, text_end)) return 0;
        at += size + 2;
    }
    if (end - at != 2 || raw[at] != '\r' || raw[at + 1] != '\n') return 0;
    response->head = head;
    return 1;
}

/* Understand responses that lie one behind the other in `raw`; number n has the reads bounds[n] to bounds[n + 1]. `texts` has
 * room for as many bytes as `raw` holds. */
void understand(const uint8_t *raw, const int64_t *sizes, const int64_t *stamps, const int64_t *bounds, int64_t count,
                struct response *responses, int64_t *chunk_ns, int64_t *chunk_counts, int64_t most_chunks, uint8_t *texts) {
    struct chunks chunks = {chunk_ns, chunk_counts, 0, most_chunks};
    uint8_t *text_end = texts;
    int64_t begin = 0;
    for (int64_t n = 0; n < count; n++) {
        const struct response nothing = {.total = -1, .first_content_ns = -1, .usage_begin = -1, .reason_begin = -1};
        int64_t end = begin, used = chunks.used;
        for (int64_t read = bounds[n]; read < bounds[n + 1]; read++) end += sizes[read];
        responses[n] = nothing;
        if (end > begin) {
            *text_end++ = '"';
            if (take_apart(raw, begin, end, sizes + bounds[n], stamps + bounds[n], &responses[n], &chunks, &text_end)) {
                *text_end++ = '"';
            } else {
                responses[n] = nothing;
                chunks.used = used;
            }
        }
        responses[n].text_end = text_end - texts;
        begin = end;
    }
}
