/* What trine needs of DPDK: the bound headers, and stand-ins for functions that exist only inline.
 *
 * The data path works on bursts, so that a burst costs one call across the language border, and no field of an mbuf
 * is named outside shim.c. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

/* Verdicts of the port on a received frame. */
#define TRINE_RX_IP_GOOD 1u
#define TRINE_RX_UDP_GOOD 2u
#define TRINE_RX_BAD 4u     /* the port found a wrong checksum */
#define TRINE_RX_CHAINED 8u /* more than one segment: data and len cover the first */

/* A received frame: valid until its mbuf is freed. */
struct trine_rx_frame {
    const uint8_t *data;
    uint32_t len;
    uint32_t verdict;
    struct rte_mbuf *mbuf;
};

/* A frame to send: trine_tx_alloc sets data and mbuf, the caller writes the bytes and sets len. */
struct trine_tx_frame {
    uint8_t *data;
    uint32_t len;
    uint32_t unused;
    struct rte_mbuf *mbuf;
};

/* rte_errno is a thread-local variable behind a macro. */
int trine_errno(void);

/* rte_eal_init, whose several screens of help about a wrong option do not go to standard output. */
int trine_eal_init(int argc, char **argv);

/* Collects what DPDK logs, from now until trine_log_capture_end, which copies the last `size` - 1 bytes of it to `text`
 * and lets the log go to standard error again. One capture at a time, in the whole process. */
int trine_log_capture_begin(void);
void trine_log_capture_end(char *text, size_t size);

uint16_t trine_rx_burst(uint16_t port, uint16_t queue, struct trine_rx_frame *frames, uint16_t count);
void trine_rx_free(const struct trine_rx_frame *frames, uint16_t count);

/* Sends received frames as they are, under the same rules as trine_tx_burst. */
uint16_t trine_rx_send_back(uint16_t port, uint16_t queue, const struct trine_rx_frame *frames, uint16_t count,
                            uint32_t tries);

/* All or nothing: 0, or -ENOENT when the pool has not count mbufs left. */
int trine_tx_alloc(struct rte_mempool *pool, struct trine_tx_frame *frames, uint16_t count);

/* Checksums that the port shall fill in. */
#define TRINE_TX_IP_CKSUM 1u
#define TRINE_TX_UDP_CKSUM 2u

/* Sends frames that trine_tx_alloc prepared; tries a full ring up to `tries` times and frees what is left over.
 * Returns how many the port took. */
uint16_t trine_tx_burst(uint16_t port, uint16_t queue, const struct trine_tx_frame *frames, uint16_t count,
                        uint32_t offload, uint32_t tries);
void trine_tx_free(const struct trine_tx_frame *frames, uint16_t count);

/* Makes frames of `head_len` bytes copied to an mbuf and `body` attached to it as an external buffer, and sends them:
 * the other way to transmit, kept to be measured beside the copy. `body` must stay as it is until the process ends, and
 * IOVA addresses must be virtual ones (EAL without a PCI device). Returns how many the port took. */
uint16_t trine_tx_attached(uint16_t port, uint16_t queue, struct rte_mempool *pool, const uint8_t *head,
                           uint32_t head_len, const uint8_t *body, uint16_t body_len, uint16_t count, uint32_t tries);

/* The offload bits, macros with casts that bindgen cannot evaluate. */
uint64_t trine_rx_offload_checksums(void);
uint64_t trine_tx_offload_ip_checksum(void);
uint64_t trine_tx_offload_udp_checksum(void);
uint64_t trine_tx_offload_fast_free(void);
uint64_t trine_rss_udp_over_ipv4(void);

/* Steers UDP datagrams to `udp_port` (host order) into `queue`; 0, or a negative errno with *reason set when the
 * driver gave one. */
int trine_steer_udp(uint16_t port, uint16_t queue, uint16_t udp_port, const char **reason);
