/* clock.c - reading the clocks, saturating arithmetic, dates as text.
 *
 * Dates are computed in whole days since 1970-01-01 of the proleptic Gregorian calendar, whose
 * years are taken to begin in March, so that a leap day is a year's last (the method of Hinnant,
 * "chrono-compatible low-level date algorithms"). Neither locale nor time zone nor libc's calendar plays a part.
 *
 * Parsers walk a cursor over hostile bytes; a mistake makes it fail for good, and is looked at once at
 * the end. A leap second (23:59:60 UTC) is the first of the next minute. All any thread. */
#include "clock.h"
#include <assert.h>
#include <stdio.h>
#include <time.h>

#define DAY_MS 86400000ll
#define EARLIEST_MS (-62167219200000ll) /* 0000-01-01T00:00:00.000Z */
#define LATEST_MS 253402300799999ll     /* 9999-12-31T23:59:59.999Z */

static int64_t read_us(clockid_t clock)
{
	struct timespec t;
	int failed = clock_gettime(clock, &t);

	assert(!failed);
	(void)failed;
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

struct rdv_wall rdv_wall_now(void)
{
	return (struct rdv_wall){read_us(CLOCK_REALTIME) / 1000};
}

struct rdv_mono rdv_mono_now(void)
{
	return (struct rdv_mono){read_us(CLOCK_BOOTTIME) / 1000};
}

struct rdv_now rdv_now(void)
{
	return (struct rdv_now){.mono = rdv_mono_now(), .wall = rdv_wall_now()};
}

int64_t rdv_mono_now_us(void)
{
	return read_us(CLOCK_MONOTONIC);
}

int64_t rdv_ms_add(int64_t a, int64_t b)
{
	int64_t sum;

	if (a == RDV_NEVER || b == RDV_NEVER)
		return RDV_NEVER;
	if (__builtin_add_overflow(a, b, &sum))
		return a < 0 ? INT64_MIN : RDV_NEVER;
	return sum;
}

int64_t rdv_ms_mul(int64_t a, int64_t b)
{
	int64_t product;

	if (__builtin_mul_overflow(a, b, &product))
		return (a < 0) != (b < 0) ? INT64_MIN : RDV_NEVER;
	return product;
}

struct date {
	int64_t year;
	unsigned month, day; /* from 1 */
};

static int64_t days_of(struct date d)
{
	int64_t year = d.year - (d.month <= 2);
	int64_t era = (year >= 0 ? year : year - 399) / 400;
	int64_t year_of_era = year - era * 400;
	int64_t day_of_year = (153 * (d.month > 2 ? d.month - 3 : d.month + 9) + 2) / 5 + d.day - 1;
	int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

	return era * 146097 + day_of_era - 719468;
}

static struct date date_of(int64_t days)
{
	int64_t z = days + 719468;
	int64_t era = (z >= 0 ? z : z - 146096) / 146097;
	int64_t day_of_era = z - era * 146097;
	int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
	int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	int64_t m = (5 * day_of_year + 2) / 153;
	struct date d = {.day = (unsigned)(day_of_year - (153 * m + 2) / 5 + 1),
			 .month = (unsigned)(m < 10 ? m + 3 : m - 9)};

	d.year = year_of_era + era * 400 + (d.month <= 2);
	return d;
}

void rdv_wall_format(struct rdv_wall t, char out[25])
{
	int64_t ms = t.ms < EARLIEST_MS ? EARLIEST_MS : t.ms > LATEST_MS ? LATEST_MS : t.ms;
	int64_t days = (ms - EARLIEST_MS) / DAY_MS + EARLIEST_MS / DAY_MS; /* rounds down before 1970, too */
	unsigned rest = (unsigned)(ms - days * DAY_MS);
	struct date d = date_of(days);

	/* The masks tell the compiler what the calendar knows: the numbers have no more digits than that. */
	snprintf(out, 25, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)d.year % 10000, d.month % 100, d.day % 100,
		 rest / 3600000 % 24, rest / 60000 % 60, rest / 1000 % 60, rest % 1000);
}

/* What the parsers collect. */
struct moment {
	struct date date;
	unsigned hour, minute, second, ms;
	int offset_minutes; /* east of UTC */
};

static unsigned days_in(const struct date *d)
{
	static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = d->year % 4 == 0 && (d->year % 100 != 0 || d->year % 400 == 0);

	return days[d->month - 1] + (leap && d->month == 2);
}

static enum redrive_status moment_to_wall(const struct moment *m, struct rdv_wall *out)
{
	int64_t minutes, ms;

	if (m->date.month < 1 || m->date.month > 12 || m->date.day < 1 || m->date.day > days_in(&m->date))
		return REDRIVE_INVALID;
	if (m->hour > 23 || m->minute > 59 || m->second > 60)
		return REDRIVE_INVALID;
	minutes = days_of(m->date) * 1440 + m->hour * 60ll + m->minute - m->offset_minutes;
	if (m->second == 60 && (minutes + 1) % 1440 != 0)
		return REDRIVE_INVALID;
	ms = minutes * 60000 + m->second * 1000ll + m->ms;
	if (ms < 0 || ms > LATEST_MS)
		return REDRIVE_INVALID;
	out->ms = ms;
	return REDRIVE_OK;
}

static char take(struct rdv_reader *r)
{
	return (char)rdv_read_u8(r);
}

static bool next_is(const struct rdv_reader *r, char c)
{
	return rdv_reader_left(r) && *r->at == (uint8_t)c;
}

static void fail(struct rdv_reader *r)
{
	(void)rdv_read_bytes(r, SIZE_MAX);
}

static void expect(struct rdv_reader *r, const char *text)
{
	if (!rdv_slice_is(rdv_read_bytes(r, strlen(text)), text))
		fail(r);
}

/* Exactly `count` digits. */
static unsigned digits(struct rdv_reader *r, int count)
{
	unsigned v = 0;

	while (count--) {
		char c = take(r);
		if (c < '0' || c > '9')
			fail(r);
		else
			v = v * 10 + (unsigned)(c - '0');
	}
	return v;
}

/* Index of the name that the text goes on with, or -1 and failed. */
static int one_of(struct rdv_reader *r, const char *const names[], int count)
{
	for (int i = 0; i < count; i++) {
		size_t size = strlen(names[i]);
		if (rdv_reader_left(r) >= size && memcmp(r->at, names[i], size) == 0) {
			r->at += size;
			return i;
		}
	}
	fail(r);
	return -1;
}

/* ".123456": milliseconds, the rest is cut. */
static unsigned fraction(struct rdv_reader *r)
{
	unsigned ms = 0, weight = 100;

	if (!next_is(r, '.'))
		return 0;
	take(r);
	do {
		ms += digits(r, 1) * weight;
		weight /= 10;
	} while (rdv_reader_left(r) && *r->at >= '0' && *r->at <= '9');
	return ms;
}

static int offset(struct rdv_reader *r)
{
	char sign = take(r);
	unsigned hours, minutes;

	if (sign == 'Z' || sign == 'z')
		return 0;
	if (sign != '+' && sign != '-')
		fail(r);
	hours = digits(r, 2);
	expect(r, ":");
	minutes = digits(r, 2);
	if (hours > 23 || minutes > 59)
		fail(r);
	return (sign == '-' ? -1 : 1) * (int)(hours * 60 + minutes);
}

static void clock_time(struct rdv_reader *r, struct moment *m)
{
	m->hour = digits(r, 2);
	expect(r, ":");
	m->minute = digits(r, 2);
	expect(r, ":");
	m->second = digits(r, 2);
}

static enum redrive_status finish(const struct rdv_reader *r, const struct moment *m, struct rdv_wall *out)
{
	return r->failed || rdv_reader_left(r) ? REDRIVE_INVALID : moment_to_wall(m, out);
}

enum redrive_status rdv_wall_parse(struct rdv_slice text, struct rdv_wall *out)
{
	struct rdv_reader r = rdv_reader(text);
	struct moment m = {0};
	char t;

	m.date.year = digits(&r, 4);
	expect(&r, "-");
	m.date.month = digits(&r, 2);
	expect(&r, "-");
	m.date.day = digits(&r, 2);
	t = take(&r);
	if (t != 'T' && t != 't')
		fail(&r);
	clock_time(&r, &m);
	m.ms = fraction(&r);
	m.offset_minutes = offset(&r);
	return finish(&r, &m, out);
}

static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
				     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
/* The long names stand first, since the short ones begin them. */
static const char *const weekdays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday",
				       "Sun",    "Mon",    "Tue",     "Wed",       "Thu",      "Fri",    "Sat"};

static unsigned month(struct rdv_reader *r)
{
	return (unsigned)(one_of(r, months, 12) + 1);
}

/* "06 Nov 1994 08:49:37 GMT" */
static void fixdate(struct rdv_reader *r, struct moment *m)
{
	m->date.day = digits(r, 2);
	expect(r, " ");
	m->date.month = month(r);
	expect(r, " ");
	m->date.year = digits(r, 4);
	expect(r, " ");
	clock_time(r, m);
	expect(r, " GMT");
}

/* "06-Nov-94 08:49:37 GMT"; the century is that of 1970 to 2069, as nothing earlier can be answered. */
static void rfc850(struct rdv_reader *r, struct moment *m)
{
	unsigned year;

	m->date.day = digits(r, 2);
	expect(r, "-");
	m->date.month = month(r);
	expect(r, "-");
	year = digits(r, 2);
	m->date.year = year + (year < 70 ? 2000 : 1900);
	expect(r, " ");
	clock_time(r, m);
	expect(r, " GMT");
}

/* "Nov  6 08:49:37 1994" */
static void asctime_date(struct rdv_reader *r, struct moment *m)
{
	m->date.month = month(r);
	expect(r, " ");
	if (next_is(r, ' ')) {
		take(r);
		m->date.day = digits(r, 1);
	} else {
		m->date.day = digits(r, 2);
	}
	expect(r, " ");
	clock_time(r, m);
	expect(r, " ");
	m->date.year = digits(r, 4);
}

/* That the weekday fits the date is not asked: it would only turn a usable answer into none. */
enum redrive_status rdv_wall_parse_http(struct rdv_slice text, struct rdv_wall *out)
{
	struct rdv_reader r = rdv_reader(text);
	struct moment m = {0};
	bool is_long = one_of(&r, weekdays, 14) < 7;

	if (!next_is(&r, ',')) {
		if (is_long)
			fail(&r);
		expect(&r, " ");
		asctime_date(&r, &m);
		return finish(&r, &m, out);
	}
	expect(&r, ", ");
	if (is_long)
		rfc850(&r, &m);
	else
		fixdate(&r, &m);
	return finish(&r, &m, out);
}
