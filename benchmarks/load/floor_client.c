/* The least that any client must do: the floor of CPU time per event on this machine.
 *
 *   cc -O2 -o floor_client floor_client.c
 *   ./floor_client PORT CONCURRENCY REQUESTS_PER_STREAM eager|paced
 *
 * C streams send the same small request over and over and read the answers: epoll and one recv per ready socket, nothing
 * kept, nothing parsed, the end of an answer known by its last five bytes. `eager` waits in epoll as most clients do;
 * `paced` sleeps for a millisecond after each round. Prints the CPU time of the kernel and of the program, in seconds.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char BODY[] = "{\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}";
static char request[512];
static int request_length;

static void ask(int fd) {
    if (send(fd, request, request_length, MSG_NOSIGNAL) != request_length) {
        perror("send");
        exit(1);
    }
}

int main(int count, char **words) {
    if (count != 5) {
        fprintf(stderr, "usage: %s PORT CONCURRENCY REQUESTS_PER_STREAM eager|paced\n", words[0]);
        return 2;
    }
    int streams = atoi(words[2]), rounds = atoi(words[3]), paced = strcmp(words[4], "paced") == 0, one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    request_length = sprintf(request,
                             "POST /v1/chat/completions HTTP/1.1\r\nHost: truth\r\nContent-Length: %zu\r\n\r\n%s",
                             sizeof BODY - 1, BODY);
    struct { int fd, left; } *stream = calloc(streams, sizeof *stream);
    int epoll_fd = epoll_create1(0);
    for (int n = 0; n < streams; n++) {
        stream[n].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        stream[n].left = rounds;
        if (connect(stream[n].fd, (void *)&address, sizeof address)) {
            perror("connect");
            return 1;
        }
        setsockopt(stream[n].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = n};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, stream[n].fd, &event);
    }
    for (int n = 0; n < streams; n++) ask(stream[n].fd);
    static struct epoll_event ready[1024];
    static char data[8192];
    long reads = 0;
    for (int left = streams; left;) {
        int number = epoll_wait(epoll_fd, ready, 1024, -1);
        for (int n = 0; n < number; n++) {
            int s = ready[n].data.u32;
            ssize_t got = recv(stream[s].fd, data, sizeof data, MSG_DONTWAIT);
            if (got <= 0) {
                fprintf(stderr, "the server closed a connection\n");
                return 1;
            }
            reads++;
            if (got >= 5 && memcmp(data + got - 5, "0\r\n\r\n", 5) == 0) {
                if (--stream[s].left)
                    ask(stream[s].fd);
                else
                    left--;
            }
        }
        if (paced) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"reads\": %ld, \"kernel_s\": %.6f, \"program_s\": %.6f}\n", reads,
           usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6, usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6);
    return 0;
}
