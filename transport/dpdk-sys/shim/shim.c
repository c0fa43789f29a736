#include "shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_flow.h>
#include <rte_prefetch.h>

#define MAX_BURST 64

int trine_errno(void) { return rte_errno; }

int trine_eal_init(int argc, char **argv)
{
    FILE *out = stdout, *nowhere = fopen("/dev/null", "w");
    int result;

    if (nowhere != NULL)
        stdout = nowhere;
    result = rte_eal_init(argc, argv);
    stdout = out;
    if (nowhere != NULL)
        fclose(nowhere);
    return result;
}

static FILE *capture;
static char *captured;
static size_t captured_size;

int trine_log_capture_begin(void)
{
    capture = open_memstream(&captured, &captured_size);
    if (capture == NULL)
        return -errno;
    rte_openlog_stream(capture);
    return 0;
}

void trine_log_capture_end(char *text, size_t size)
{
    size_t skip;

    text[0] = 0;
    rte_openlog_stream(stderr);
    if (capture == NULL)
        return;
    fclose(capture);
    capture = NULL;
    skip = captured_size < size ? 0 : captured_size - (size - 1);
    memcpy(text, captured + skip, captured_size - skip);
    text[captured_size - skip] = 0;
    free(captured);
    captured = NULL;
}

static uint32_t verdict_of(const struct rte_mbuf *m)
{
    uint64_t ip = m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
    uint64_t udp = m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    uint32_t verdict = 0;

    if (ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD)
        verdict |= TRINE_RX_IP_GOOD;
    if (udp == RTE_MBUF_F_RX_L4_CKSUM_GOOD)
        verdict |= TRINE_RX_UDP_GOOD;
    if (ip == RTE_MBUF_F_RX_IP_CKSUM_BAD || udp == RTE_MBUF_F_RX_L4_CKSUM_BAD)
        verdict |= TRINE_RX_BAD;
    if (m->nb_segs != 1)
        verdict |= TRINE_RX_CHAINED;
    return verdict;
}

uint16_t trine_rx_burst(uint16_t port, uint16_t queue, struct trine_rx_frame *frames, uint16_t count)
{
    struct rte_mbuf *mbufs[MAX_BURST];
    uint16_t got = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(count, MAX_BURST));

    for (uint16_t i = 0; i < got; i++)
        rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void *));
    for (uint16_t i = 0; i < got; i++) {
        frames[i].data = rte_pktmbuf_mtod(mbufs[i], const uint8_t *);
        frames[i].len = mbufs[i]->data_len;
        frames[i].verdict = verdict_of(mbufs[i]);
        frames[i].mbuf = mbufs[i];
    }
    return got;
}

void trine_rx_free(const struct trine_rx_frame *frames, uint16_t count)
{
    struct rte_mbuf *mbufs[MAX_BURST];

    for (uint16_t done = 0; done < count;) {
        uint16_t now = RTE_MIN(count - done, MAX_BURST);

        for (uint16_t i = 0; i < now; i++)
            mbufs[i] = frames[done + i].mbuf;
        rte_pktmbuf_free_bulk(mbufs, now);
        done += now;
    }
}

static uint16_t send_all(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count, uint32_t tries)
{
    uint16_t sent = 0;

    /* Without a peer a virtual port takes nothing, for ever: the loop is bounded. */
    for (uint32_t i = 0; i < tries && sent < count; i++)
        sent += rte_eth_tx_burst(port, queue, mbufs + sent, count - sent);
    if (sent < count)
        rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
    return sent;
}

uint16_t trine_rx_send_back(uint16_t port, uint16_t queue, const struct trine_rx_frame *frames, uint16_t count,
                            uint32_t tries)
{
    struct rte_mbuf *mbufs[MAX_BURST];

    count = RTE_MIN(count, MAX_BURST);
    for (uint16_t i = 0; i < count; i++)
        mbufs[i] = frames[i].mbuf;
    return send_all(port, queue, mbufs, count, tries);
}

int trine_tx_alloc(struct rte_mempool *pool, struct trine_tx_frame *frames, uint16_t count)
{
    struct rte_mbuf *mbufs[MAX_BURST];

    if (count > MAX_BURST)
        return -EINVAL;
    if (rte_pktmbuf_alloc_bulk(pool, mbufs, count) != 0)
        return -ENOENT;
    for (uint16_t i = 0; i < count; i++) {
        frames[i].data = rte_pktmbuf_mtod(mbufs[i], uint8_t *);
        frames[i].len = 0;
        frames[i].mbuf = mbufs[i];
    }
    return 0;
}

uint16_t trine_tx_burst(uint16_t port, uint16_t queue, const struct trine_tx_frame *frames, uint16_t count,
                        uint32_t offload, uint32_t tries)
{
    struct rte_mbuf *mbufs[MAX_BURST];
    uint64_t flags = 0;

    count = RTE_MIN(count, MAX_BURST);
    if (offload & TRINE_TX_IP_CKSUM)
        flags |= RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_IPV4;
    if (offload & TRINE_TX_UDP_CKSUM)
        flags |= RTE_MBUF_F_TX_UDP_CKSUM | RTE_MBUF_F_TX_IPV4;
    for (uint16_t i = 0; i < count; i++) {
        struct rte_mbuf *m = frames[i].mbuf;

        m->data_len = frames[i].len;
        m->pkt_len = frames[i].len;
        if (flags != 0) {
            m->ol_flags |= flags;
            m->l2_len = 14;
            m->l3_len = 20;
        }
        mbufs[i] = m;
    }
    return send_all(port, queue, mbufs, count, tries);
}

void trine_tx_free(const struct trine_tx_frame *frames, uint16_t count)
{
    for (uint16_t i = 0; i < count; i++)
        rte_pktmbuf_free(frames[i].mbuf);
}

static void keep_body(void *body, void *nothing)
{
    (void)body;
    (void)nothing;
}

uint16_t trine_tx_attached(uint16_t port, uint16_t queue, struct rte_mempool *pool, const uint8_t *head,
                           uint32_t head_len, const uint8_t *body, uint16_t body_len, uint16_t count, uint32_t tries)
{
    static struct rte_mbuf_ext_shared_info shared = { .free_cb = keep_body };
    struct rte_mbuf *mbufs[2 * MAX_BURST];

    count = RTE_MIN(count, MAX_BURST);
    if (rte_pktmbuf_alloc_bulk(pool, mbufs, 2 * count) != 0)
        return 0;
    for (uint16_t i = 0; i < count; i++) {
        struct rte_mbuf *first = mbufs[i], *second = mbufs[count + i];

        memcpy(rte_pktmbuf_mtod(first, void *), head, head_len);
        first->data_len = head_len;
        if (rte_mbuf_ext_refcnt_read(&shared) == 0)
            rte_mbuf_ext_refcnt_set(&shared, 1);
        rte_mbuf_ext_refcnt_update(&shared, 1);
        rte_pktmbuf_attach_extbuf(second, (void *)(uintptr_t)body, (rte_iova_t)(uintptr_t)body, body_len, &shared);
        second->data_len = body_len;
        first->next = second;
        first->nb_segs = 2;
        first->pkt_len = head_len + body_len;
    }
    return send_all(port, queue, mbufs, count, tries);
}

uint64_t trine_rx_offload_checksums(void) { return RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM; }
uint64_t trine_tx_offload_ip_checksum(void) { return RTE_ETH_TX_OFFLOAD_IPV4_CKSUM; }
uint64_t trine_tx_offload_udp_checksum(void) { return RTE_ETH_TX_OFFLOAD_UDP_CKSUM; }
uint64_t trine_tx_offload_fast_free(void) { return RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE; }
uint64_t trine_rss_udp_over_ipv4(void) { return RTE_ETH_RSS_NONFRAG_IPV4_UDP; }

int trine_steer_udp(uint16_t port, uint16_t queue, uint16_t udp_port, const char **reason)
{
    struct rte_flow_attr attr = { .ingress = 1 };
    struct rte_flow_item_udp spec = { .hdr.dst_port = rte_cpu_to_be_16(udp_port) };
    struct rte_flow_item_udp mask = { .hdr.dst_port = 0xffff };
    struct rte_flow_item pattern[] = {
        { .type = RTE_FLOW_ITEM_TYPE_ETH },
        { .type = RTE_FLOW_ITEM_TYPE_IPV4 },
        { .type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &spec, .mask = &mask },
        { .type = RTE_FLOW_ITEM_TYPE_END },
    };
    struct rte_flow_action_queue to = { .index = queue };
    struct rte_flow_action actions[] = {
        { .type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to },
        { .type = RTE_FLOW_ACTION_TYPE_END },
    };
    struct rte_flow_error error = { 0 };

    *reason = NULL;
    if (rte_flow_create(port, &attr, pattern, actions, &error) != NULL)
        return 0;
    *reason = error.message;
    return rte_errno != 0 ? -rte_errno : -ENOTSUP;
}
