// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * LIA, coupled congestion control for MPTCP (RFC 6356), as BPF struct_ops for upstream Linux.
 *
 * The subflows of a connection share one increase of the congestion window, so that together they take no more than
 * one TCP flow on the best path. Slow start, loss and recovery are those of Reno. A socket that is no subflow of
 * MPTCP has no others, and behaves as Reno.
 *
 * The licence note is in README.md beside this file.
 */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define RELOCATED __attribute__((preserve_access_index))
#define inline inline __attribute__((always_inline))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))

/* The fields of the kernel's types that are used. The loader relocates each access to the kernel's layout (CO-RE). */

struct list_head {
	struct list_head *next, *prev;
} RELOCATED;

struct sock {
} RELOCATED;

struct inet_connection_sock {
	void *icsk_ulp_data;
} RELOCATED;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 packets_out;
	u32 max_packets_out;
	u32 srtt_us; /* in 1/8 us */
	u8 is_cwnd_limited : 1;
	_Bool is_mptcp;
} RELOCATED;

struct mptcp_subflow_context {
	struct list_head node;
	struct sock *tcp_sock;
	struct sock *conn;
} RELOCATED;

struct mptcp_sock {
	struct list_head conn_list;
} RELOCATED;

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	u32 (*undo_cwnd)(struct sock *sk);
	u32 flags;
	char name[16];
} RELOCATED;

#define TCP_CONG_NON_RESTRICTED 1

static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;

/*
 * A field of a structure that the verifier knows no type of; 0 if it cannot be read. `from` must not point to const:
 * the compiler would take the value for constant.
 */
#define READ(from, field)                                                                   \
	({                                                                                      \
		typeof((from)->field) value = 0;                                                    \
		bpf_probe_read_kernel(&value, sizeof(value), &(from)->field);                       \
		value;                                                                              \
	})

/* Bounds of what is computed with: no product below exceeds 64 bits. */
#define MAX_SUBFLOWS 16
#define MAX_WINDOW ((1u << 17) - 1) /* segments, 190 MB of 1448 bytes */
#define MAX_RTT ((1u << 23) - 1)    /* us, 8.4 s */
#define SCALE_BITS 8                /* of sums of windows */
#define FRACTION_BITS 24            /* of a segment */

struct member {
	u32 window; /* segments; 0: not counted */
	u32 rtt;    /* us, at least 1 */
};

/* The lesser of both, without a branch: the verifier follows each branch of each subflow. Both are below 2^63. */
static inline u64 at_most(u64 value, u64 limit)
{
	signed long long excess = value - limit;

	asm volatile("" : "+r"(excess)); /* hides from the compiler what it would make a branch of */
	return limit + (excess & (excess >> 63));
}

/* Linux tcp_in_slow_start */
static inline int in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* Linux tcp_is_cwnd_limited: the window, not the application, limits the sender. */
static inline int is_cwnd_limited(const struct tcp_sock *tp)
{
	enum { BYTE_OFFSET = 0, LSHIFT = 4, RSHIFT = 5 };
	u64 field = *((const u8 *)tp + __builtin_preserve_field_info(tp->is_cwnd_limited, BYTE_OFFSET));

	field <<= __builtin_preserve_field_info(tp->is_cwnd_limited, LSHIFT);
	field >>= __builtin_preserve_field_info(tp->is_cwnd_limited, RSHIFT);
	if (field)
		return 1;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* Linux tcp_slow_start, RFC 5681 section 3.1; returns the segments acknowledged beyond the threshold. */
static inline u32 slow_start(struct tcp_sock *tp, u32 acked)
{
	u32 window = min(tp->snd_cwnd + acked, tp->snd_ssthresh);

	acked -= window - tp->snd_cwnd;
	tp->snd_cwnd = min(window, tp->snd_cwnd_clamp);
	return acked;
}

/*
 * One segment more for each `segments` acknowledged. Unlike tcp_cong_avoid_ai of Linux, snd_cwnd_cnt holds the fraction of
 * a segment that has been gained: `segments` varies from one acknowledgement to the next, and a count of acknowledged
 * segments would be compared with its minimum.
 */
static inline void additive_increase(struct tcp_sock *tp, u32 segments, u32 acked)
{
	u64 gained = ((u64)acked << FRACTION_BITS) / segments + tp->snd_cwnd_cnt;
	u32 window = tp->snd_cwnd + (u32)(gained >> FRACTION_BITS);

	tp->snd_cwnd_cnt = gained & ((1u << FRACTION_BITS) - 1);
	tp->snd_cwnd = min(window, tp->snd_cwnd_clamp);
}

/*
 * Window and smoothed round-trip time of a subflow. RFC 6356 section 4.1: of an application-limited subflow what is
 * in flight counts, which is the maximum of the last window of data (Linux tcp_cwnd_validate); a subflow with nothing
 * in flight, as a backup, does not count. Linux does not inflate the window in fast recovery (tcp_cwnd_reduction).
 */
static inline struct member member(struct tcp_sock *subflow, int is_own)
{
	struct member member = {};
	u32 rtt = READ(subflow, srtt_us) >> 3;
	u32 window = READ(subflow, snd_cwnd);

	if (!is_own) {
		u32 in_flight = READ(subflow, max_packets_out);

		if (!rtt || !READ(subflow, packets_out))
			return member;
		window = at_most(window, in_flight);
	}
	member.rtt = at_most(rtt | 1, MAX_RTT); /* not 0 */
	member.window = at_most(window, MAX_WINDOW);
	return member;
}

/* The next subflow in the connection's list, after `node`; its place in the list is returned. */
static inline struct list_head *next_member(struct tcp_sock *own, struct list_head *node, struct member *next)
{
	struct mptcp_subflow_context *context = 0;
	struct tcp_sock *subflow;

	node = READ(node, next);
	context = (void *)node - __builtin_preserve_field_info(context->node, 0);
	subflow = (void *)READ(context, tcp_sock);
	*next = member(subflow, subflow == own);
	return node;
}

/*
 * Segments to be acknowledged for one segment more: cwnd_total / alpha of RFC 6356 section 3, formulae 1 and 2, in
 * packets (section 4.2). With the subflow b of the largest cwnd/rtt^2,
 *
 *   cwnd_total / alpha = (sum of cwnd_i / rtt_i)^2 / (cwnd_b / rtt_b^2) = (sum of cwnd_i * rtt_b / rtt_i)^2 / cwnd_b
 *
 * The second form has no small fractions, so fixed point serves (section 4.1). 0: no subflow counts.
 *
 * The list is read as by mptcp_for_each_subflow of Linux, but without the lock, so each pointer is read safely; a list
 * that changes meanwhile ends early. It is read twice: an array of its members would cost the verifier too many states.
 */
static inline u32 coupled_segments(struct tcp_sock *own)
{
	struct mptcp_subflow_context *context = own->inet_conn.icsk_ulp_data;
	struct mptcp_sock *connection = (void *)READ(context, conn);
	struct list_head *head = &connection->conn_list;
	struct list_head *last = READ(head, prev), *node = head;
	struct member best = {}, one;
	u64 sum = 0;

	for (int i = 0; i < MAX_SUBFLOWS && node != last; i++) {
		node = next_member(own, node, &one);
		if (one.window && (u64)one.window * best.rtt * best.rtt >= (u64)best.window * one.rtt * one.rtt)
			best = one;
	}
	if (!best.window)
		return 0;
	node = head;
	for (int i = 0; i < MAX_SUBFLOWS && node != last; i++) {
		node = next_member(own, node, &one);
		if (one.window)
			sum += ((u64)one.window << SCALE_BITS) * best.rtt / one.rtt;
	}
	sum = min(sum, 0xffffffffull);
	sum = sum * sum / best.window >> (2 * SCALE_BITS);
	return min(sum, 0xffffffffull);
}

SEC("struct_ops/cong_avoid")
void lia_cong_avoid(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	u32 acked = arguments[2];
	u32 segments;

	if (!is_cwnd_limited(tp))
		return;
	/* RFC 6356 section 3: only congestion avoidance is coupled. */
	if (in_slow_start(tp)) {
		acked = slow_start(tp, acked);
		if (!acked)
			return;
	}
	/* Formula 1: the increase is at most that of a single TCP flow. */
	segments = max(tp->snd_cwnd, 1);
	if (tp->is_mptcp) {
		u32 coupled = coupled_segments(tp);

		segments = max(segments, coupled);
	}
	additive_increase(tp, segments, acked);
}

/* RFC 6356 section 3: the decrease is TCP's. Linux tcp_reno_ssthresh, RFC 5681 section 3.1. */
SEC("struct_ops/ssthresh")
u32 lia_ssthresh(u64 *arguments)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)arguments[0];

	return max(tp->snd_cwnd >> 1, 2);
}

/* Linux tcp_reno_undo_cwnd */
SEC("struct_ops/undo_cwnd")
u32 lia_undo_cwnd(u64 *arguments)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)arguments[0];

	return max(tp->snd_cwnd, tp->prior_cwnd);
}

/* For loaders that follow the convention of libbpf, as `bpftool struct_ops register`. */
SEC(".struct_ops")
struct tcp_congestion_ops lia = {
	.cong_avoid = (void *)lia_cong_avoid,
	.ssthresh = (void *)lia_ssthresh,
	.undo_cwnd = (void *)lia_undo_cwnd,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "lia",
};

/* The kernel lets only programs that state a GPL-compatible licence read its structures. */
SEC("license")
const char lia_license[] = "Dual BSD/GPL";
