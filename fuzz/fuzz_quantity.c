/* fuzz_quantity.c - durations, sizes, rates, ratios, integers: whatever text is accepted is printed as a text
 * that is read as the same value; and so is every duration and size.
 *
 * Input: one byte that chooses the kind, then the text (or 8 bytes of a number). */
#include "base/quantity.h"
#include <stdlib.h>

static void check(bool holds)
{
	if (!holds)
		abort();
}

static void fuzz_duration(struct rdv_slice in)
{
	char text[RDV_QUANTITY_TEXT];
	int64_t ms, back;

	if (rdv_duration_parse(in, &ms) != REDRIVE_OK)
		return;
	check(ms >= 0);
	rdv_duration_format(ms, text);
	check(rdv_duration_parse(rdv_slice_text(text), &back) == REDRIVE_OK && back == ms);
}

static void fuzz_size(struct rdv_slice in)
{
	char text[RDV_QUANTITY_TEXT];
	uint64_t bytes, back;

	if (rdv_size_parse(in, &bytes) != REDRIVE_OK)
		return;
	rdv_size_format(bytes, text);
	check(rdv_size_parse(rdv_slice_text(text), &back) == REDRIVE_OK && back == bytes);
}

static void fuzz_rate(struct rdv_slice in)
{
	char text[RDV_QUANTITY_TEXT];
	double rate, back;

	if (rdv_rate_parse(in, &rate) != REDRIVE_OK)
		return;
	check(rate >= 0);
	rdv_rate_format(rate, text);
	check(rdv_rate_parse(rdv_slice_text(text), &back) == REDRIVE_OK && back == rate);
}

static void fuzz_ratio(struct rdv_slice in)
{
	char text[RDV_QUANTITY_TEXT];
	double ratio, back;

	if (rdv_ratio_parse(in, &ratio) != REDRIVE_OK)
		return;
	check(ratio >= 0);
	rdv_ratio_format(ratio, text);
	check(rdv_ratio_parse(rdv_slice_text(text), &back) == REDRIVE_OK && back == ratio);
}

static void fuzz_integer(struct rdv_slice in)
{
	struct rdv_buffer b;
	int64_t value, back;

	if (rdv_integer_parse(in, &value) != REDRIVE_OK)
		return;
	rdv_buffer_init(&b, 32);
	rdv_buffer_printf(&b, "%lld", (long long)value);
	check(rdv_integer_parse(rdv_buffer_as_slice(&b), &back) == REDRIVE_OK && back == value);
	rdv_buffer_done(&b);
}

/* Any number at all can be printed; if it is in the range of its kind, it comes back. */
static void fuzz_numbers(struct rdv_slice in)
{
	struct rdv_reader r = rdv_reader(in);
	uint64_t bits = rdv_read_u64(&r), bytes;
	char text[RDV_QUANTITY_TEXT];
	int64_t ms;
	double d;

	rdv_duration_format((int64_t)bits, text);
	if ((int64_t)bits >= 0)
		check(rdv_duration_parse(rdv_slice_text(text), &ms) == REDRIVE_OK && (uint64_t)ms == bits);
	rdv_size_format(bits, text);
	check(rdv_size_parse(rdv_slice_text(text), &bytes) == REDRIVE_OK && bytes == bits);
	memcpy(&d, &bits, sizeof d);
	rdv_rate_format(d, text);
	check(strlen(text) < sizeof text);
	rdv_ratio_format(d, text);
	check(strlen(text) < sizeof text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const kinds[])(struct rdv_slice in) = {fuzz_duration, fuzz_size,    fuzz_rate,
							     fuzz_ratio,    fuzz_integer, fuzz_numbers};

	if (size)
		kinds[data[0] % (sizeof kinds / sizeof kinds[0])](rdv_slice(data + 1, size - 1));
	return 0;
}
