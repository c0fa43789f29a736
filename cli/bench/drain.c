/* Receives UDP datagrams on a port of 127.0.0.1 for five seconds, throws them away, and says what each one cost: what any
 * receiver pays for a flood. `drain PORT PAUSE`: it sleeps PAUSE microseconds between two calls of recvmmsg. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 64, SIZE = 2048 };

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: drain PORT PAUSE\n");
        return 2;
    }
    static char bytes[BATCH][SIZE];
    static struct iovec places[BATCH];
    static struct mmsghdr heads[BATCH];
    for (int i = 0; i < BATCH; i++) {
        places[i] = (struct iovec){bytes[i], SIZE};
        heads[i].msg_hdr.msg_iov = &places[i];
        heads[i].msg_hdr.msg_iovlen = 1;
    }
    int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(descriptor, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("bind");
        return 1;
    }
    long packets = 0, calls = 0;
    for (time_t end = time(NULL) + 5; time(NULL) < end;) {
        int received = recvmmsg(descriptor, heads, BATCH, 0, NULL);
        if (received > 0) {
            packets += received;
            calls++;
        }
        usleep(atoi(arguments[2]));
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double seconds = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"packets\": %ld, \"a_call\": %.1f, \"us_a_packet\": %.2f}\n", packets, (double)packets / calls,
           seconds / packets * 1e6);
    return 0;
}
