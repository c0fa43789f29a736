/* SETs of one key by Redis clients with one request under way each, as `redis-benchmark -t set -P 1` sends them, plain or by
 * TRINE.DO with a session a connection: a sequence grows with each request, which redis-benchmark has no way to say. Prints requests a
 * second. `set_load PORT CONNECTIONS REQUESTS plain|do` */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SET "$3\r\nSET\r\n$16\r\nkey:__rand_int__\r\n$3\r\nxxx\r\n"
enum { CONNECTIONS_MAX = 1024, TOKEN = 32, EVENTS = 256 };

struct connection {
    int socket;
    long sequence; /* of the last request */
    char token[TOKEN + 1];
};

static struct connection connections[CONNECTIONS_MAX];

static void fail(const char *what, const char *reply) {
    fprintf(stderr, "set_load: %s %s\n", what, reply);
    exit(1);
}

static void send_all(int socket, const char *bytes, int length) {
    /* A request is far smaller than the socket's buffer, which is empty. */
    if (send(socket, bytes, length, MSG_NOSIGNAL) != length) fail("a request was not sent", "");
}

/* What has come, at least a line. Replies are small and come whole. */
static int receive(int socket, char *reply, int size) {
    int length = recv(socket, reply, size - 1, 0);
    if (length <= 0) fail("the connection was closed", "");
    reply[length] = 0;
    return length;
}

static void open_session(struct connection *connection) {
    static const char request[] = "*1\r\n$13\r\nTRINE.SESSION\r\n";
    char reply[256];
    send_all(connection->socket, request, sizeof request - 1);
    receive(connection->socket, reply, sizeof reply);
    if (sscanf(reply, "*3\r\n$32\r\n%32[0-9a-f]", connection->token) != 1) fail("TRINE.SESSION:", reply);
}

static void request(struct connection *connection) {
    char bytes[256], sequence[24];
    if (!connection->token[0]) return send_all(connection->socket, "*3\r\n" SET, sizeof "*3\r\n" SET - 1);
    int digits = sprintf(sequence, "%ld", ++connection->sequence);
    /* The lowest sequence without an answer is that of this request. */
    int length = sprintf(bytes, "*7\r\n$8\r\nTRINE.DO\r\n$32\r\n%s\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" SET, connection->token, digits,
                         sequence, digits, sequence);
    send_all(connection->socket, bytes, length);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void open_all(int poll, int port, int count, int with_sessions) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < count; i++) {
        struct connection *connection = &connections[i];
        connection->socket = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connection->socket, (struct sockaddr *)&address, sizeof address) != 0) fail("nothing listens", "");
        setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        if (with_sessions) open_session(connection);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        epoll_ctl(poll, EPOLL_CTL_ADD, connection->socket, &event);
    }
}

int main(int count, char **arguments) {
    int is_do = count == 5 && strcmp(arguments[4], "do") == 0;
    if (count != 5 || (!is_do && strcmp(arguments[4], "plain") != 0)) {
        fprintf(stderr, "usage: set_load PORT CONNECTIONS REQUESTS plain|do\n");
        return 2;
    }
    int poll = epoll_create1(0), callers = atoi(arguments[2]);
    long requests = atol(arguments[3]), sent = callers, answered = 0;
    if (callers < 1 || callers > CONNECTIONS_MAX || requests < callers) fail("these numbers are out of range", "");
    open_all(poll, atoi(arguments[1]), callers, is_do);
    double begun = now();
    for (int i = 0; i < callers; i++) request(&connections[i]);
    while (answered < requests) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            char reply[256];
            receive(connection->socket, reply, sizeof reply);
            if (strcmp(reply, "+OK\r\n") != 0) fail("SET:", reply);
            answered++;
            if (sent < requests) {
                sent++;
                request(connection);
            }
        }
    }
    printf("%.1f\n", requests / (now() - begun));
    return 0;
}
