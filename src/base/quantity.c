/* quantity.c - durations, sizes, rates and ratios: parsing and formatting.
 *
 * Each kind is a table of (unit, weight). Durations and sizes are exact integers: "1.5h" is 5,400,000 ms,
 * and a fraction that does not come out even ("0.5ms") is INVALID rather than rounded, since a delay rounded
 * to 0 would be a hot loop. Rates and ratios are doubles; number / weight is computed one way only, so that
 * format can look for the shortest text that parse turns back into the very same double.
 *
 * Numbers have at most 19 (doubles: 15) digits before the point and 18 behind it; no sign, no exponent,
 * no thousands. The locale plays no part: strtod and printf of doubles run in the C locale. */
#include "quantity.h"
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

__extension__ typedef unsigned __int128 wide;

#define FRACTION_DIGITS 18

struct unit {
	const char *name;
	uint64_t weight;
};

/* Largest first: formatting goes down the table. */
static const struct unit duration_units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
static const struct unit size_units[] = {
	{"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}, {"B", 1}};
static const struct unit rate_units[] = {{"/s", 1}, {"/m", 60}, {"/h", 3600}};
static const struct unit ratio_units[] = {{"%", 100}, {"", 1}};
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Digits and perhaps a fraction, as they stand. */
struct number {
	struct rdv_slice text;
	uint64_t whole, fraction;
	unsigned whole_digits, fraction_digits;
};

static bool is_digit(const struct rdv_reader *r)
{
	return rdv_reader_left(r) && *r->at >= '0' && *r->at <= '9';
}

/* Reads digits into *value; false if there are none, or too many. */
static bool take_digits(struct rdv_reader *r, uint64_t *value, unsigned *count)
{
	*value = 0;
	for (*count = 0; is_digit(r); ++*count)
		if (__builtin_mul_overflow(*value, 10u, value) ||
		    __builtin_add_overflow(*value, (uint64_t)(rdv_read_u8(r) - '0'), value))
			return false;
	return *count != 0;
}

static bool take_number(struct rdv_reader *r, struct number *n)
{
	const uint8_t *start = r->at;

	*n = (struct number){0};
	if (!take_digits(r, &n->whole, &n->whole_digits))
		return false;
	if (rdv_reader_left(r) && *r->at == '.') {
		r->at++;
		if (!take_digits(r, &n->fraction, &n->fraction_digits) || n->fraction_digits > FRACTION_DIGITS)
			return false;
	}
	n->text = rdv_slice(start, (size_t)(r->at - start));
	return true;
}

/* The unit: what stands before the next digit or the end; NULL if it is not in the table. */
static const struct unit *take_unit(struct rdv_reader *r, const struct unit *units, size_t count)
{
	const uint8_t *start = r->at;

	while (rdv_reader_left(r) && !is_digit(r))
		r->at++;
	for (size_t i = 0; i < count; i++)
		if (rdv_slice_is(rdv_slice(start, (size_t)(r->at - start)), units[i].name))
			return &units[i];
	return NULL;
}

static uint64_t power_of_ten(unsigned n)
{
	uint64_t p = 1;

	while (n--)
		p *= 10;
	return p;
}

/* *sum += n * weight; false if that has a fraction or does not fit. */
static bool add_exactly(uint64_t *sum, const struct number *n, uint64_t weight)
{
	uint64_t ten = power_of_ten(n->fraction_digits), product;
	wide scaled = (wide)n->fraction * weight;

	if (scaled % ten || __builtin_mul_overflow(n->whole, weight, &product) ||
	    __builtin_add_overflow(product, (uint64_t)(scaled / ten), &product))
		return false;
	return !__builtin_add_overflow(*sum, product, sum);
}

enum redrive_status rdv_duration_parse(struct rdv_slice text, int64_t *out_ms)
{
	struct rdv_reader r = rdv_reader(text);
	uint64_t sum = 0;

	if (rdv_slice_is(text, "0")) {
		*out_ms = 0;
		return REDRIVE_OK;
	}
	do {
		struct number n;
		const struct unit *unit;
		if (!take_number(&r, &n))
			return REDRIVE_INVALID;
		unit = take_unit(&r, duration_units, COUNT(duration_units));
		if (!unit || !add_exactly(&sum, &n, unit->weight))
			return REDRIVE_INVALID;
	} while (rdv_reader_left(&r));
	if (sum > INT64_MAX)
		return REDRIVE_INVALID;
	*out_ms = (int64_t)sum;
	return REDRIVE_OK;
}

enum redrive_status rdv_size_parse(struct rdv_slice text, uint64_t *out_bytes)
{
	struct rdv_reader r = rdv_reader(text);
	const struct unit *unit;
	uint64_t weight = 1, sum = 0;
	struct number n;

	if (!take_number(&r, &n))
		return REDRIVE_INVALID;
	if (rdv_reader_left(&r)) {
		unit = take_unit(&r, size_units, COUNT(size_units));
		if (!unit || rdv_reader_left(&r))
			return REDRIVE_INVALID;
		weight = unit->weight;
	}
	if (!add_exactly(&sum, &n, weight))
		return REDRIVE_INVALID;
	*out_bytes = sum;
	return REDRIVE_OK;
}

static locale_t c_locale(void)
{
	return newlocale(LC_ALL_MASK, "C", (locale_t)0); /* glibc has it ready: no memory, nothing to free */
}

static enum redrive_status parse_double(struct rdv_slice text, const struct unit *units, size_t count, double *out)
{
	struct rdv_reader r = rdv_reader(text);
	const struct unit *unit;
	struct number n;
	char digits[40];

	if (!take_number(&r, &n) || n.whole_digits > 15)
		return REDRIVE_INVALID;
	unit = take_unit(&r, units, count);
	if (!unit || rdv_reader_left(&r))
		return REDRIVE_INVALID;
	rdv_slice_to_text(n.text, digits, sizeof digits);
	*out = strtod_l(digits, NULL, c_locale()) / (double)unit->weight;
	return REDRIVE_OK;
}

enum redrive_status rdv_rate_parse(struct rdv_slice text, double *out_per_second)
{
	return parse_double(text, rate_units, COUNT(rate_units), out_per_second);
}

enum redrive_status rdv_ratio_parse(struct rdv_slice text, double *out_fraction)
{
	return parse_double(text, ratio_units, COUNT(ratio_units), out_fraction);
}

enum redrive_status rdv_integer_parse(struct rdv_slice text, int64_t *out)
{
	struct rdv_reader r = rdv_reader(text);
	bool negative = text.size && text.data[0] == '-';
	uint64_t value;
	unsigned count;

	if (negative)
		r.at++;
	if (!take_digits(&r, &value, &count) || rdv_reader_left(&r) || value > (uint64_t)INT64_MAX + negative)
		return REDRIVE_INVALID;
	*out = negative ? (int64_t)(0 - value) : (int64_t)value;
	return REDRIVE_OK;
}

static void copy(char out[RDV_QUANTITY_TEXT], const char *text)
{
	snprintf(out, RDV_QUANTITY_TEXT, "%s", text);
}

/* Keeps `text` if it is shorter than what is in `best` ("" = nothing yet). */
static void keep_shorter(char best[RDV_QUANTITY_TEXT], const char *text)
{
	if (!best[0] || strlen(text) < strlen(best))
		copy(best, text);
}

/* value / weight and the unit's name, e.g. "1.5h"; false below one unit ("100ms", not "0.1s") and beyond `most`
 * decimals: "5h10m18.75s" tells more than "5.171875h". */
static bool print_exactly(char out[RDV_QUANTITY_TEXT], uint64_t value, const struct unit *unit, unsigned most)
{
	uint64_t rest = value % unit->weight;
	unsigned decimals = 0;
	wide fraction = 0;
	int n;

	if (value < unit->weight)
		return false;
	while (rest) {
		if (++decimals > most)
			return false;
		fraction = fraction * 10 + (wide)rest * 10 / unit->weight;
		rest = (uint64_t)((wide)rest * 10 % unit->weight);
	}
	n = snprintf(out, RDV_QUANTITY_TEXT, "%llu", (unsigned long long)(value / unit->weight));
	if (decimals)
		n += snprintf(out + n, RDV_QUANTITY_TEXT - (size_t)n, ".%0*llu", (int)decimals,
			      (unsigned long long)fraction);
	snprintf(out + n, RDV_QUANTITY_TEXT - (size_t)n, "%s", unit->name);
	return true;
}

/* So many of unit i are written with larger ones: "83m15s", not "4995s"; behind another unit only what that lacks. */
static bool is_readable(uint64_t number, unsigned i, bool first)
{
	if (i == 0)
		return true;
	if (!first)
		return number < duration_units[i - 1].weight / duration_units[i].weight;
	return number < (duration_units[i].weight == 1 ? 1000 : 100);
}

/* The value in the units of the set, from the largest: whole numbers, the last takes what is left. */
static bool print_parts(char out[RDV_QUANTITY_TEXT], uint64_t value, unsigned set)
{
	size_t size = 0;

	for (unsigned i = 0; i < COUNT(duration_units); i++) {
		char part[RDV_QUANTITY_TEXT];
		bool last = set >> i == 1;
		uint64_t weight = duration_units[i].weight, taken = last ? value : value / weight * weight;
		if (!(set >> i & 1))
			continue;
		if (!is_readable(taken / weight, i, size == 0) ||
		    !print_exactly(part, taken, &duration_units[i], weight > 1000 ? 1 : 3) ||
		    size + strlen(part) >= RDV_QUANTITY_TEXT)
			return false;
		memcpy(out + size, part, strlen(part) + 1);
		size += strlen(part);
		value -= taken;
		if (last)
			return true;
	}
	return false;
}

/* Tries every set of units; there are 31. Sets of large units come first and win ties. */
void rdv_duration_format(int64_t ms, char out[RDV_QUANTITY_TEXT])
{
	uint64_t value = ms < 0 ? 0 - (uint64_t)ms : (uint64_t)ms;
	char best[RDV_QUANTITY_TEXT] = "", text[RDV_QUANTITY_TEXT];

	if (value == 0)
		copy(best, "0s");
	for (unsigned set = 1; value && set < 1u << COUNT(duration_units); set++)
		if (print_parts(text, value, set))
			keep_shorter(best, text);
	snprintf(out, RDV_QUANTITY_TEXT, "%s%s", ms < 0 ? "-" : "", best);
}

void rdv_size_format(uint64_t bytes, char out[RDV_QUANTITY_TEXT])
{
	char text[RDV_QUANTITY_TEXT];

	out[0] = '\0';
	if (bytes == 0)
		copy(out, "0B");
	for (size_t i = 0; bytes && i < COUNT(size_units); i++)
		if (print_exactly(text, bytes, &size_units[i], 3))
			keep_shorter(out, text);
}

/* The shortest decimals of `number` that parse back to `value` with this unit; false if there are none. */
static bool print_back(char out[RDV_QUANTITY_TEXT], double number, const struct unit *unit, double value)
{
	for (int decimals = 0; decimals <= FRACTION_DIGITS; decimals++) {
		double back;
		int n = snprintf(out, RDV_QUANTITY_TEXT, "%.*f%s", decimals, number, unit->name);
		if (n >= RDV_QUANTITY_TEXT)
			return false;
		if (parse_double(rdv_slice(out, (size_t)n), unit, 1, &back) == REDRIVE_OK && back == value)
			return true;
	}
	return false;
}

/* As print_back, for the numbers around value * weight: the product is rounded, the original was not. */
static bool print_near(char out[RDV_QUANTITY_TEXT], const struct unit *unit, double value)
{
	double number = value * (double)unit->weight, below = number, above = number;

	if (print_back(out, number, unit, value))
		return true;
	for (int i = 0; i < 2; i++) {
		below = nextafter(below, 0);
		above = nextafter(above, INFINITY);
		if (print_back(out, below, unit, value) || print_back(out, above, unit, value))
			return true;
	}
	return false;
}

/* The shortest text over the units; "" if there is none. */
static void format_double(double value, const struct unit *units, size_t count, char out[RDV_QUANTITY_TEXT])
{
	char text[RDV_QUANTITY_TEXT];

	out[0] = '\0';
	if (!(value >= 0 && value < 1e15))
		return;
	for (size_t i = 0; i < count; i++)
		if (print_near(text, &units[i], value))
			keep_shorter(out, text);
}

void rdv_rate_format(double per_second, char out[RDV_QUANTITY_TEXT])
{
	locale_t before = uselocale(c_locale());

	format_double(per_second, rate_units, COUNT(rate_units), out);
	if (!out[0])
		snprintf(out, RDV_QUANTITY_TEXT, "%.17g/s", per_second);
	uselocale(before);
}

/* The percent form wherever there is one, since "1" would be taken for 1 %. */
void rdv_ratio_format(double fraction, char out[RDV_QUANTITY_TEXT])
{
	locale_t before = uselocale(c_locale());

	for (size_t i = 0; i < COUNT(ratio_units); i++) {
		format_double(fraction, &ratio_units[i], 1, out);
		if (out[0])
			break;
	}
	if (!out[0])
		snprintf(out, RDV_QUANTITY_TEXT, "%.17g", fraction);
	uselocale(before);
}
