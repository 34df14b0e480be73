/* fuzz_exec_output.c - standard error from hostile bytes, in pieces: the first byte says how long the pieces are.
 *
 * Properties: the tail is exactly the stream's last RDV_EXEC_TAIL bytes, however it was cut; class, root class,
 * text and stack lie within it and within their bounds; what the tail and the whole stream agree on gives the
 * same words; cleaned text is valid UTF-8, and text that is valid comes through unchanged. */
#include <assert.h>
#include <stdlib.h>
#include "core/record.h"
#include "handlers/clean.h"
#include "handlers/exec_output.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inside(struct rdv_slice s, struct rdv_slice all, size_t most)
{
	assert(s.size <= most);
	if (s.size)
		assert(s.data >= all.data && s.data + s.size <= all.data + all.size);
}

static void check_output(struct rdv_slice kept)
{
	struct rdv_failure f = {.class = {NULL, 0}};

	rdv_exec_output(kept, &f);
	check_inside(f.class, kept, kept.size);
	check_inside(f.root_class, kept, kept.size);
	check_inside(f.text, kept, RDV_EXEC_TEXT);
	check_inside(f.stack, kept, RDV_EXEC_TAIL);
	assert(!f.class.size || !memchr(f.class.data, ' ', f.class.size));
	assert(!f.class.size || !memchr(f.class.data, '\n', f.class.size));
}

static void check_clean(struct rdv_slice in)
{
	struct rdv_buffer b;
	struct rdv_slice out;

	rdv_buffer_init(&b, 1 << 20);
	if (!rdv_buffer_reserve(&b, 3 * in.size + 1))
		abort();
	out = rdv_clean_slice(&b, in, SIZE_MAX, 3 * in.size);
	assert(rdv_utf8_valid(out));
	if (rdv_utf8_valid(in) && (!in.size || !memchr(in.data, 0, in.size)))
		assert(rdv_slice_equal(in, out));
	rdv_buffer_clear(&b);
	out = rdv_clean_slice(&b, in, 10, 21);
	assert(rdv_utf8_valid(out) && out.size <= 21 && rdv_utf8_count(out) <= 10);
	rdv_buffer_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rdv_exec_tail tail;
	size_t piece, wanted;
	struct rdv_slice kept;

	if (size < 1)
		return 0;
	piece = 1 + (size_t)data[0] * 37;
	data++;
	size--;
	tail.size = 0;
	tail.cut = false;
	for (size_t repeat = 0; repeat < 5; repeat++)
		for (size_t at = 0; at < size; at += piece)
			rdv_exec_tail_add(&tail, data + at, size - at < piece ? size - at : piece);
	kept = rdv_exec_tail_slice(&tail);
	wanted = 5 * size < RDV_EXEC_TAIL ? 5 * size : RDV_EXEC_TAIL;
	assert(kept.size == wanted);
	for (size_t i = 0; i < wanted; i++)
		assert(kept.data[i] == data[(5 * size - wanted + i) % size]);
	check_output(kept);
	check_output(rdv_slice(data, size));
	check_clean(rdv_slice(data, size));
	return 0;
}
