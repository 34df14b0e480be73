/* output.c - tables that fit the terminal. Hostile text (keys, error texts) is shown with control characters replaced.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include "output.h"

#define COLUMNS_MAX 24

struct rdv_table {
	const struct rdv_column *columns;
	size_t column_count, cell_count, capacity;
	char **cells; /* owns; row after row */
};

bool rdv_output_color(void)
{
	const char *no = getenv("NO_COLOR");
	return isatty(STDOUT_FILENO) && !(no && *no);
}

static struct winsize window(void)
{
	struct winsize size = {0};
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
		size.ws_col = 0;
	return size;
}

unsigned rdv_output_width(void)
{
	const char *columns = getenv("COLUMNS");
	unsigned width = window().ws_col;
	if (width == 0 && columns)
		width = (unsigned)strtoul(columns, NULL, 10);
	return isatty(STDOUT_FILENO) && width >= 20 ? width : 0;
}

struct rdv_table *rdv_table_new(const struct rdv_column *columns, size_t count)
{
	struct rdv_table *t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	t->columns = columns;
	t->column_count = count < COLUMNS_MAX ? count : COLUMNS_MAX;
	return t;
}

/* Control characters (C0, DEL, and C1 as UTF-8) would move the cursor or colour the screen. */
static bool is_control(const unsigned char *p)
{
	return *p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0);
}

static char *clean(const char *text)
{
	char *copy = strdup(text);
	for (unsigned char *p = (unsigned char *)copy; p && *p; p++) {
		if (!is_control(p))
			continue;
		bool is_space = *p == '\n' || *p == '\t';
		if (*p == 0xc2)
			*p++ = '?';
		*p = is_space ? ' ' : '?';
	}
	return copy;
}

void rdv_print_text(const char *text, unsigned indent)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p == '\n' && p[1])
			printf("\n%*s", (int)indent, "");
		else if (*p == '\n' || *p == '\t')
			putchar(' ');
		else
			putchar(is_control(p) ? '?' : *p);
		if (is_control(p) && *p == 0xc2)
			p++;
	}
}

void rdv_table_cell(struct rdv_table *t, const char *fmt, ...)
{
	if (!t)
		return;
	if (t->cell_count == t->capacity) {
		size_t capacity = t->capacity ? t->capacity * 2 : 256;
		char **cells = realloc(t->cells, capacity * sizeof *cells);
		if (!cells)
			return;
		t->cells = cells;
		t->capacity = capacity;
	}
	char text[2048];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	t->cells[t->cell_count++] = clean(text);
}

void rdv_table_row(struct rdv_table *t)
{
	while (t && t->cell_count % t->column_count != 0) {
		size_t before = t->cell_count;
		rdv_table_cell(t, "%s", "");
		if (t->cell_count == before)
			return;
	}
}

static size_t cell_width(const char *text)
{
	return text ? rdv_utf8_count(rdv_slice_text(text)) : 0;
}

static size_t total_width(const struct rdv_table *t, const size_t widths[COLUMNS_MAX], size_t gap)
{
	size_t total = 0;
	for (size_t c = 0; c < t->column_count; c++)
		total += widths[c] ? widths[c] + (total ? gap : 0) : 0;
	return total;
}

/* The widest column that may shrink, or COLUMNS_MAX. */
static size_t widest_column(const struct rdv_table *t, const size_t widths[COLUMNS_MAX])
{
	size_t widest = COLUMNS_MAX;
	for (size_t c = 0; c < t->column_count; c++) {
		size_t least = t->columns[c].min ? t->columns[c].min : 6;
		if (widths[c] > least && (widest == COLUMNS_MAX || widths[c] > widths[widest]))
			widest = c;
	}
	return widest;
}

/* Fits the widths to the screen: narrows the gaps, then cuts the widest column one by one, then leaves out spare
 * columns (width 0). Returns the gap. */
static size_t measure(const struct rdv_table *t, size_t widths[COLUMNS_MAX])
{
	for (size_t c = 0; c < t->column_count; c++)
		widths[c] = cell_width(t->columns[c].title);
	for (size_t i = 0; i < t->cell_count; i++) {
		size_t width = cell_width(t->cells[i]), c = i % t->column_count;
		if (width > widths[c])
			widths[c] = width;
	}
	unsigned screen = rdv_output_width();
	size_t gap = screen && total_width(t, widths, 2) > screen ? 1 : 2, widest;
	while (screen && total_width(t, widths, gap) > screen && (widest = widest_column(t, widths)) < COLUMNS_MAX)
		widths[widest]--;
	for (size_t c = t->column_count; screen && c > 0 && total_width(t, widths, gap) > screen; c--)
		if (t->columns[c - 1].spare)
			widths[c - 1] = 0;
	return gap;
}

static void print_cell(FILE *out, const char *text, size_t width, bool right, size_t gap)
{
	size_t have = cell_width(text);
	if (width == 0)
		return;
	if (have > width) {
		size_t keep = width > 1 ? width - 1 : width, bytes = 0;
		for (size_t seen = 0; text[bytes] && seen < keep; seen++)
			do
				bytes++;
			while (((unsigned char)text[bytes] & 0xc0) == 0x80);
		fprintf(out, "%.*s%s", (int)bytes, text, width > 1 ? "…" : "");
		have = width;
	} else if (right) {
		fprintf(out, "%*s%s", (int)(width - have), "", text);
		have = width;
	} else {
		fputs(text, out);
	}
	if (gap)
		fprintf(out, "%*s", (int)(width - have + gap), "");
}

static FILE *open_pager(const struct rdv_table *t, const struct rdv_invocation *in)
{
	size_t rows = t->cell_count / t->column_count + 2;
	struct winsize size = window();
	if (!isatty(STDOUT_FILENO) || size.ws_row == 0 || rows < size.ws_row || rdv_option_given(in, RDV_OPT_NO_PAGER))
		return NULL;
	const char *pager = getenv("PAGER");
	return popen(pager && *pager ? pager : "less -FRX", "w");
}

void rdv_table_print(struct rdv_table *t, const struct rdv_invocation *in)
{
	if (!t)
		return;
	assert(t->column_count > 0);
	size_t widths[COLUMNS_MAX];
	size_t gap = measure(t, widths), last = t->column_count - 1;
	while (last > 0 && widths[last] == 0)
		last--;
	FILE *pager = open_pager(t, in), *out = pager ? pager : stdout;
	bool color = rdv_output_color();
	fputs(color ? "\033[1m" : "", out);
	for (size_t c = 0; c < t->column_count; c++)
		print_cell(out, t->columns[c].title, widths[c], t->columns[c].right, c < last ? gap : 0);
	fputs(color ? "\033[0m\n" : "\n", out);
	for (size_t i = 0; i < t->cell_count; i++) {
		size_t c = i % t->column_count;
		print_cell(out, t->cells[i] ? t->cells[i] : "", widths[c], t->columns[c].right, c < last ? gap : 0);
		if (c + 1 == t->column_count)
			fputc('\n', out);
		free(t->cells[i]);
	}
	if (pager)
		pclose(pager);
	free(t->cells);
	free(t);
}

void rdv_print_json(const json_t *value)
{
	json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY);
	putchar('\n');
}

const json_t *rdv_json_at(const json_t *object, const char *path)
{
	char key[64];
	while (object && *path) {
		size_t size = strcspn(path, ".");
		rdv_slice_to_text(rdv_slice(path, size), key, sizeof key);
		object = json_object_get(object, key);
		path += size + (path[size] == '.');
	}
	return object;
}

const char *rdv_json_text(const json_t *object, const char *path, int slot)
{
	static char slots[8][1100]; /* texts for one line of output; the commands have one thread */
	const json_t *value = rdv_json_at(object, path);
	char *out = slots[slot & 7];
	out[0] = '\0';
	if (json_is_string(value))
		rdv_slice_to_text(
			rdv_slice_cut_utf8(rdv_slice(json_string_value(value), json_string_length(value)), 1000), out,
			sizeof slots[0]);
	else if (json_is_integer(value))
		snprintf(out, sizeof slots[0], "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	else if (json_is_real(value))
		snprintf(out, sizeof slots[0], "%.4g", json_real_value(value));
	else if (json_is_boolean(value))
		snprintf(out, sizeof slots[0], "%s", json_is_true(value) ? "true" : "false");
	return out;
}

json_int_t rdv_json_int(const json_t *object, const char *path)
{
	return json_integer_value(rdv_json_at(object, path));
}

void rdv_progress(const char *what, uint64_t done, uint64_t total)
{
	static time_t last; /* a line at most every 5 s when standard error is no terminal */
	double part = total ? (double)done / (double)total : 1;
	if (isatty(STDERR_FILENO)) {
		char bar[31] = "                              ";
		memset(bar, '#', (size_t)(part * 30));
		fprintf(stderr, "\r%s [%s] %llu/%llu", what, bar, (unsigned long long)done, (unsigned long long)total);
		if (done >= total)
			fputc('\n', stderr);
		return;
	}
	time_t now = time(NULL);
	if (now - last >= 5 || done >= total) {
		fprintf(stderr, "%s %llu/%llu\n", what, (unsigned long long)done, (unsigned long long)total);
		last = now;
	}
}
