/* callback_work.c - one worker's lock-free span of taken calls and stack of finished ones.
 *
 * The span's three numbers change together in one 64-bit word. A claimer reads the call at `next`, then moves
 * `next` by one; the generation, new at every refill, makes that fail when the span it looked at is no longer
 * the same. A refill happens only when the span is empty, so nobody can claim what it overwrites. The stack has
 * one pusher and many takers of the whole, so it has no ABA problem: a push that meets a taker is tried again.
 * Nothing fails. */
#include "callback_work.h"
#include <assert.h>
#include <stdatomic.h>

static uint64_t span_of(uint64_t generation, uint32_t next, uint32_t count)
{
	return generation << 32 | (uint64_t)next << 16 | count;
}

void rdv_work_refill(struct rdv_work *w, struct rdv_call **list, uint32_t count)
{
	uint64_t generation = (atomic_load_explicit(&w->span, memory_order_relaxed) >> 32) + 1;

	assert(count <= RDV_WORK_SPAN);
	for (uint32_t i = 0; i < count; i++) {
		atomic_store_explicit(&w->taken[i], *list, memory_order_relaxed);
		*list = (*list)->next;
	}
	atomic_store_explicit(&w->span, span_of(generation, 0, count), memory_order_release);
}

/* The lines of a call that running it touches. */
static void expect(const struct rdv_call *call)
{
	__builtin_prefetch(call);
	__builtin_prefetch((const char *)call + 64);
	__builtin_prefetch((const char *)call + 128);
	__builtin_prefetch((const char *)call + 192);
}

struct rdv_call *rdv_work_claim(struct rdv_work *w)
{
	uint64_t span = atomic_load_explicit(&w->span, memory_order_acquire);

	for (;;) {
		uint32_t next = (span >> 16) & 0xffff, count = span & 0xffff;
		struct rdv_call *call;

		if (next >= count)
			return NULL;
		call = atomic_load_explicit(&w->taken[next], memory_order_relaxed);
		if (atomic_compare_exchange_weak_explicit(&w->span, &span, span_of(span >> 32, next + 1, count),
							  memory_order_acq_rel, memory_order_acquire)) {
			if (next + 1 < count) /* whoever gets it: calls live as long as their handler has work */
				expect(atomic_load_explicit(&w->taken[next + 1], memory_order_relaxed));
			return call;
		}
	}
}

bool rdv_work_finish(struct rdv_work *w, struct rdv_call *call)
{
	struct rdv_call *head = atomic_load_explicit(&w->done, memory_order_relaxed);

	do
		call->next = head;
	while (!atomic_compare_exchange_weak(&w->done, &head, call));
	return head == NULL;
}

struct rdv_call *rdv_work_collect(struct rdv_work *w)
{
	struct rdv_call *stack, *list = NULL;

	if (!atomic_load(&w->done))
		return NULL;
	stack = atomic_exchange(&w->done, NULL);
	while (stack) {
		struct rdv_call *next = stack->next;

		stack->next = list;
		list = stack;
		stack = next;
	}
	return list;
}
